"""What cannot end well is refused when planned, in one line, before anything is made or paid for."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from transformers import GPT2Config, GPT2LMHeadModel

from tokenweight import files
from tokenweight.assets import smoke_base_dir
from tokenweight.context.checkpoint_files import copy_tokenizer
from tokenweight.errors import UserError
from tokenweight.evaluation.data import smoke_eval_dir
from tokenweight.pipeline.store import Store
from tokenweight.planning.plan import check_before_running
from tokenweight.recipes import Inputs
from tokenweight.recipes.schema import Execution
from tokenweight.tasks.experiments import plan_texts

Tally = Callable[[str, str, str], None]
Command = Callable[..., tuple[int, str, str]]


def planned(store: Path, text: str = "table-3/frozen-sparse@perplexity", **inputs: object) -> list[str]:
    """As `reproduce` begins."""
    place = Store(store)
    wanted, _ = plan_texts([text], "smoke", Inputs(**inputs), place)
    return check_before_running([one.graph for one in wanted], place, Execution(device="cpu"))


@pytest.fixture
def base(tmp_path: Path) -> Callable[..., str]:
    """A copy of the shipped base whose config.json says something else."""

    def made(**changed: object) -> str:
        folder = tmp_path / "base"
        shutil.copytree(smoke_base_dir(), folder)
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, **changed}))
        return str(folder)

    return made


ROPE = {"rope_type": "default", "rope_theta": 1e6}
BASES: dict[str, dict[str, object]] = {
    r"extension\.rope_theta: 306,000 is less than the base's 1,000,000": {"rope_parameters": ROPE},
    r"extension\.long_tokens: 4096 is less than the base's context \(8192\)": {"max_position_embeddings": 8192},
    r"base\.context_tokens: 1024, but this base reads 512": {"max_position_embeddings": 512},
    r"every layer of the base sees the last 256 tokens": {"sliding_window": 256},
}


@pytest.mark.parametrize("message", BASES)
def test_a_base_that_the_recipe_does_not_fit(
    message: str, base: Callable[..., str], tmp_path: Path, tally: Tally
) -> None:
    with pytest.raises(UserError, match=message) as raised:
        planned(tmp_path / "store", base=base(**BASES[message]))
    assert "\n" not in str(raised.value)
    tally("a base that does not fit", "plan", "refused")


def test_a_base_without_rope_is_refused_before_its_corpus_is_read(tmp_path: Path, tally: Tally) -> None:
    GPT2LMHeadModel(GPT2Config(vocab_size=4096, n_embd=8, n_layer=1, n_head=1)).save_pretrained(tmp_path / "base")
    copy_tokenizer(smoke_base_dir(), tmp_path / "base")
    with pytest.raises(UserError, match=r"base/config\.json: the model has no RoPE"):
        planned(tmp_path / "store", base=str(tmp_path / "base"))
    tally("a base that does not fit", "plan", "refused")


SETTINGS = {
    "weighting.score=focal": "reads no short context",
    "weighting.score=mile": "reads no short context",
    "scorer=null": "compares two contexts: give a scorer",
    "scorer.kind=unfrozen": "scorer.kind",
    "training.steps=true": "takes no true",
    "name=../../evil": "no such setting",
    "seed=-1": "seed",
    "seed=4294967296": "seed",
    "chunking.seed=-1": r"chunking\.seed",
    "evaluation.perplexity.lengths_tokens=[]": r"lengths_tokens",
    "extension.rope_theta=5000": "is less than the base's",
}


def test_texts_that_are_trained_on_are_not_measured(tmp_path: Path, tally: Tally) -> None:
    (books := tmp_path / "books").mkdir()
    for number in range(4):
        (books / f"{number}.txt").write_text("One day of many. " * 900)
    given = {"corpus": str(books), "settings": ("corpus.validation_documents=1",)}
    with pytest.raises(UserError, match=r"\(8\) exceeds corpus.validation_documents \(1\): texts .* set both"):
        planned(tmp_path / "store", "table-3/uniform@perplexity", **given)
    given["settings"] += ("evaluation.perplexity.corpus.validation_documents=1",)
    planned(tmp_path / "store", "table-3/uniform@perplexity", **given)
    tally("settings that do not go together", "plan", "refused")


def test_a_store_in_the_corpus_is_refused_and_what_is_not_read_is_said(
    tmp_path: Path, run_command: Command, tally: Tally
) -> None:
    (books := tmp_path / "books").mkdir()
    (books / "all.jsonl").write_text('{"text": "One day of many."}\n' * 17)
    (books / "more.txt.gz").touch()
    text, given = (
        "table-3/uniform@perplexity",
        {"corpus": str(books), "settings": ("evaluation.perplexity.documents=1",)},
    )
    assert planned(tmp_path / "store", text, **given) == [f"{books}: not read: more.txt.gz"]
    assert planned(books / ".store", text, **given)
    code, _, error = run_command(tmp_path, "plan", text, "--corpus", "books", "--store", "books/store")
    assert code == 2
    assert (
        error
        == f"error: --store {books}/store: lies in the corpus {books}, whose files are read; choose another place\n"
    )
    assert sorted(path.name for path in books.iterdir() if path.suffix) == ["all.jsonl", "more.txt.gz"]
    tally("a store in the corpus", "plan", "refused")


@pytest.mark.parametrize("setting", SETTINGS)
def test_settings_that_do_not_go_together(setting: str, tmp_path: Path, tally: Tally) -> None:
    text = "table-3" if setting.startswith("scorer.kind") else "table-3/frozen-sparse@perplexity"
    with pytest.raises(UserError, match=SETTINGS[setting]) as raised:
        planned(tmp_path / "store", text, settings=(setting,))
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "store").exists()
    tally("settings that do not go together", "plan", "refused")


def altered(data: Path, benchmark: str) -> None:
    match benchmark:
        case "mmlu":
            file = data / "test" / "virology_test.csv"
            file.write_text(file.read_text().rstrip()[:-1] + "E\n")
        case "bbh":
            (data / "snarks.json").write_text('{"examples": [{"input": null, "target": "(A)"}]}')
        case "longbench":
            file = data / "hotpotqa.jsonl"
            rows = [json.loads(line) for line in file.read_text().splitlines()]
            rows[-1]["context"] = None
            file.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.parametrize("benchmark", ["mmlu", "bbh", "longbench"])
def test_data_that_are_read_after_training_are_looked_at_before(benchmark: str, tmp_path: Path, tally: Tally) -> None:
    shutil.copytree(smoke_eval_dir() / benchmark, tmp_path / "data")
    text = f"table-3/uniform@{benchmark}"
    planned(tmp_path / "store", text, **{benchmark: str(tmp_path / "data")})
    altered(tmp_path / "data", benchmark)
    with pytest.raises(UserError, match=r"virology_test\.csv|snarks\.json|hotpotqa\.jsonl, line") as raised:
        planned(tmp_path / "store", text, **{benchmark: str(tmp_path / "data")})
    assert "\n" not in str(raised.value)
    tally("altered data", benchmark, "refused")


def test_a_store_that_cannot_be_written_is_planned_and_reported_from(
    tmp_path: Path, run_command: Command, monkeypatch: pytest.MonkeyPatch, tally: Tally
) -> None:
    """Who runs these tests may write anywhere: so the system's answers are a read-only disk's."""
    (store := tmp_path / "store").mkdir()
    refused = OSError(30, "Read-only file system")
    monkeypatch.setattr("tokenweight.pipeline.digests.replace_file", lambda *_: (_ for _ in ()).throw(refused))
    original = files.TemporaryDirectory

    def directory(*, prefix: str, dir: Path) -> TemporaryDirectory[str]:
        if dir.is_relative_to(store):
            raise refused
        return original(prefix=prefix, dir=dir)

    monkeypatch.setattr(files, "TemporaryDirectory", directory)
    (books := tmp_path / "books.jsonl").write_text('{"text": "One day of many."}\n' * 9)
    arguments = ("table-3/uniform@perplexity", "--store", str(store), "--corpus", str(books))
    code, out, error = run_command(tmp_path, "plan", *arguments)
    assert (code, error) == (0, ""), out
    code, _, error = run_command(tmp_path, "reproduce", *arguments, "--set", "evaluation.perplexity.documents=1")
    assert (code, error.count("\n")) == (2, 1)
    assert "--store" in error
    assert [file.suffix for file in store.iterdir()] == [".lock"]
    tally("a store that cannot be written", "plan", "accepted")
