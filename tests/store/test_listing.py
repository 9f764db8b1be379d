"""A list of digests in place of data: the same fingerprints, and nothing can be computed from it."""

import re
from pathlib import Path

import pytest

from tokenweight import cli
from tokenweight.corpus.files import documents, list_files
from tokenweight.errors import UserError
from tokenweight.evaluation.data import smoke_eval_dir
from tokenweight.pipeline.digests import file_sha256, listed_digest, listed_files
from tokenweight.pipeline.store import Store
from tokenweight.planning.graph import Planner
from tokenweight.planning.plan import check_before_running
from tokenweight.recipes import Inputs, load
from tokenweight.recipes.inputs import given_by
from tokenweight.recipes.schema import Execution, FilesCorpus


def _list(directory: Path, into: Path) -> Path:
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    into.write_text("".join(f"{file_sha256(path)}  ./{path.relative_to(directory)}\n" for path in files))
    return into


@pytest.fixture
def books(tmp_path: Path) -> Path:
    """A directory of books, and beside it books.sha256."""
    directory = tmp_path / "books"
    (directory / "sea").mkdir(parents=True)
    for number in range(12):
        (directory / ("sea" if number % 2 else ".") / f"book {number}.txt").write_text(f"Book {number}. " * 400)
    (directory / "readme.md").write_text("not a book")
    (directory / ".git").mkdir()
    (directory / ".git/hidden.txt").write_text("not a book either")
    _list(directory, tmp_path / "books.sha256")
    return directory


def _fingerprints(corpus: Path, mmlu: Path, store: Path) -> list[str]:
    recipe = load("table-3/uniform", "mini", Inputs(corpus=str(corpus), mmlu=str(mmlu)))
    graph = Planner(Store(store)).graph([recipe], ["perplexity", "mmlu"])
    assert len(graph.artifacts) > 10
    return [node.identity.fingerprint for node in graph.artifacts]


def test_a_run_has_the_same_fingerprints_by_its_data_and_by_their_digests(tmp_path: Path, books: Path) -> None:
    mmlu = smoke_eval_dir() / "mmlu"
    listed = _fingerprints(tmp_path / "books.sha256", _list(mmlu, tmp_path / "mmlu.sha256"), tmp_path / "a")
    assert listed == _fingerprints(books, mmlu, tmp_path / "b")
    other = (tmp_path / "books.sha256").read_text().replace("a", "b")
    (tmp_path / "other.sha256").write_text(other)
    assert listed != _fingerprints(tmp_path / "other.sha256", mmlu, tmp_path / "c")


def test_below_a_table_stands_the_directory() -> None:
    assert given_by(Inputs(corpus="books.sha256", mmlu="/data/mmlu.sha256")) == {"corpus": "books", "mmlu": "mmlu"}


def test_nothing_is_computed_from_digests(
    tmp_path: Path, books: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus = tmp_path / "books.sha256"
    with pytest.raises(UserError, match="sha256 has only digests"):
        list(documents(FilesCorpus(path=str(corpus)), "train"))
    monkeypatch.chdir(tmp_path)
    command = "tokenweight reproduce table-9 --scale mini --corpus books.sha256 --store store"
    monkeypatch.setattr("sys.argv", command.split())
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert "has only digests, enough to plan and report; to compute, give the directory" in capsys.readouterr().err


def test_mmlu_that_is_digests_alone_is_told_before_anything_runs(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    listing = _list(smoke_eval_dir() / "mmlu", tmp_path / "mmlu.sha256")
    graph = Planner(store).graph([load("table-3/uniform", "smoke", Inputs(mmlu=str(listing)))], ["mmlu"])
    with pytest.raises(UserError, match=r"evaluation\.mmlu\.data: .* has only digests"):
        check_before_running([graph], store, Execution(device="cpu"))


DIGEST = "0" * 64


def test_what_sha256sum_writes_is_read(tmp_path: Path) -> None:
    listing = tmp_path / "some.sha256"
    names = b"\xef\xbb\xbf%b  a.txt\r\n%b *./sub//b c.txt\n\n\\%b  ./new\\nline\\\\.txt\n%b  ./caf\xe9.txt\n"
    listing.write_bytes(names % (DIGEST.encode(), b"A" * 64, b"b" * 64, b"c" * 64))
    assert listed_files(listing) == {
        "a.txt": DIGEST, "sub/b c.txt": "a" * 64, "new\nline\\.txt": "b" * 64, "caf\udce9.txt": "c" * 64
    }  # fmt: skip
    assert listed_digest(listing / "sub/b c.txt") == "a" * 64
    assert listed_digest(listing / "c.txt") is None


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (f"{DIGEST}  a.txt\nabc\n", "line 2: 'abc' is not a line of `sha256sum`"),
        (f"{DIGEST}  /data/a.txt\n", "line 1: /data/a.txt is not a path below the directory"),
        (f"{DIGEST}  ../a.txt\n", "is not a path below the directory"),
        (f"{DIGEST}  a.txt\n{'1' * 64}  ./a.txt\n", "line 2: a.txt occurs twice"),
        ("\n", "is empty"),
    ],
)
def test_a_list_that_is_none_is_one_line(content: str, said: str, tmp_path: Path) -> None:
    listing = tmp_path / "some.sha256"
    listing.write_text(content)
    with pytest.raises(UserError, match=re.escape(said)):
        listed_files(listing)


def test_a_list_without_texts_is_refused_as_such_a_directory_is(tmp_path: Path) -> None:
    listing = tmp_path / "some.sha256"
    listing.write_text(f"{DIGEST}  a.csv\n")
    with pytest.raises(UserError, match=r"holds only \.csv"):
        list_files(FilesCorpus(path=str(listing)))
