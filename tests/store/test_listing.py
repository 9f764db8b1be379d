"""A list of digests in place of data: the same fingerprints, and nothing can be computed from it."""

from pathlib import Path

import pytest

from tokenweight import cli
from tokenweight.corpus.files import documents
from tokenweight.errors import UserError
from tokenweight.evaluation.smoke_data import smoke_eval_dir
from tokenweight.graph import Planner
from tokenweight.recipes import Inputs, load
from tokenweight.recipes.inputs import told
from tokenweight.recipes.schema import FilesCorpus
from tokenweight.store import Store, file_sha256
from tokenweight.store.listing import listed_digest, listed_files


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
    _list(directory, tmp_path / "books.sha256")
    return directory


def _fingerprints(corpus: Path, mmlu: Path, store: Path) -> list[str]:
    recipe = load("table-3/uniform", "mini", Inputs(corpus=str(corpus), mmlu=str(mmlu)))
    graph = Planner(Store(store)).graph([recipe], ["perplexity", "mmlu"])
    assert len(graph.nodes) > 10
    return [node.identity.fingerprint for node in graph.nodes]


def test_a_run_has_the_same_fingerprints_by_its_data_and_by_their_digests(tmp_path: Path, books: Path) -> None:
    mmlu = smoke_eval_dir() / "mmlu"
    listed = _fingerprints(tmp_path / "books.sha256", _list(mmlu, tmp_path / "mmlu.sha256"), tmp_path / "a")
    assert listed == _fingerprints(books, mmlu, tmp_path / "b")
    other = (tmp_path / "books.sha256").read_text().replace("a", "b")
    (tmp_path / "other.sha256").write_text(other)
    assert listed != _fingerprints(tmp_path / "other.sha256", mmlu, tmp_path / "c")


def test_below_a_table_stands_the_directory() -> None:
    assert told(Inputs(corpus="books.sha256", mmlu="/data/mmlu.sha256")) == ("Run with --corpus books, --mmlu mmlu.",)


def test_nothing_is_computed_from_digests(
    tmp_path: Path, books: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus = tmp_path / "books.sha256"
    with pytest.raises(UserError, match="sha256 has digests alone"):
        list(documents(FilesCorpus(path=str(corpus)), "train"))
    monkeypatch.chdir(tmp_path)
    command = "tokenweight reproduce table-9 --scale mini --corpus books.sha256 --store store"
    monkeypatch.setattr("sys.argv", command.split())
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert "digests alone, enough to plan and report; to compute, give the directory" in capsys.readouterr().err


def test_a_line_that_is_none_is_named(tmp_path: Path) -> None:
    listing = tmp_path / "some.sha256"
    listing.write_text(f"{'0' * 64}  a.txt\n{'1' * 64} *./sub/b c.txt\n")
    assert listed_files(listing) == {"a.txt": "0" * 64, "sub/b c.txt": "1" * 64}
    assert listed_digest(listing / "sub/b c.txt") == "1" * 64
    assert listed_digest(listing / "c.txt") is None
    listing.write_text(f"{'0' * 64}  a.txt\nabc\n")
    with pytest.raises(UserError, match="line 2: not a line of `sha256sum`"):
        listed_files(listing)
