"""`tokenweight score`: a data set of weights from a corpus, and that the trainers of docs/trainers.md learn with them as ours."""

from __future__ import annotations

import re
import runpy
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, default_data_collator

from tokenweight.assets import smoke_base_dir
from tokenweight.commands import scoring as command
from tokenweight.pipeline.stage import Graph
from tokenweight.pipeline.store import Store
from tokenweight.recipes.schema import Execution
from tokenweight.tasks.pieces import run_in_order
from tokenweight.training import scoring, weighing
from tokenweight.weighting import (
    Weighting,
    install_head,
    model_nll,
    plan_windows,
    score_windows,
    token_weights,
    weighted_nll,
)  # fmt: skip

LONG, SHORT, STRIDE = 128, 32, 24
GIVEN = {
    "--model": "my-model", "--long-tokens": str(LONG), "--short-tokens": str(SHORT), "--stride-tokens": str(STRIDE),
    "--postprocessing": "sparse", "--kappa": "0.25", "--precision": "fp32", "--device": "cpu",
}  # fmt: skip
PAGE = (Path(__file__).parents[2] / "docs" / "trainers.md").read_text()
Run = Callable[..., tuple[int, str, str]]


def in_order(_name: str, graph: Graph, store: Store, execution: Execution, **_: Any) -> None:
    run_in_order(graph, store, execution)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two texts, the shipped base as my-model, and a random model of its tokenizer as another."""
    place = tmp_path_factory.mktemp("score")
    (place / "texts").mkdir()
    for name in ("a", "b"):
        words = np.random.default_rng(ord(name)).choice(["the", "river", "ran", "past", name, "Eve", "and"], 400)
        (place / "texts" / f"{name}.txt").write_text(" ".join(words))
    shutil.copytree(smoke_base_dir(), place / "my-model")
    shutil.copytree(smoke_base_dir(), place / "another", ignore=shutil.ignore_patterns("*.safetensors"))
    with torch.random.fork_rng():
        AutoModelForCausalLM.from_config(
            AutoConfig.from_pretrained(smoke_base_dir(), num_hidden_layers=1)
        ).save_pretrained(place / "another")
    return place


@pytest.fixture
def run(place: Path, run_command: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `tokenweight score` in this process; `options` are added to those given, or take their place (None: leave out)."""
    monkeypatch.setattr(command, "run_flow", in_order)

    def run(out: str, corpus: str = "texts", **options: str | bool | None) -> tuple[int, str, str]:
        changes = {f"--{name.replace('_', '-')}": value for name, value in {"out": out, **options}.items()}
        given = ((name, value) for name, value in {**GIVEN, **changes}.items() if value)
        arguments = [text for name, value in given for text in ((name,) if value is True else (name, value))]
        return run_command(place, "score", corpus, *arguments)

    return run


@pytest.fixture
def weighted(place: Path, run: Run) -> Path:
    if not (place / "weighted").exists():
        code, out, err = run("weighted")
        assert (code, err) == (0, ""), err
        assert out.splitlines()[-1] == "weighted"
    return place / "weighted"


def table(directory: Path) -> dict[str, Any]:
    parts = [pq.read_table(file) for file in sorted((directory / "data").iterdir())]
    columns = {name: np.concatenate([part[name].to_numpy() for part in parts]) for name in parts[0].column_names}
    return {
        name: np.stack(list(values)) if name not in ("document", "position") else values
        for name, values in columns.items()
    }


def model_of(directory: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)


def test_its_columns_are_those_of_training(weighted: Path, place: Path) -> None:
    found, model = table(weighted), model_of(place / "my-model").eval()
    install_head(model)
    ids = torch.from_numpy(found["input_ids"]).long()
    plan, bos = plan_windows(LONG, SHORT, STRIDE), AutoTokenizer.from_pretrained(place / "my-model").bos_token_id
    with torch.no_grad():
        long_nll = model_nll(model, ids)
    short_nll = plan.with_own_context(score_windows(model, ids, plan, bos_token_id=bos), long_nll)
    for name, expected in (("long_nll", long_nll), ("short_nll", short_nll), ("score", (long_nll - short_nll).abs())):
        np.testing.assert_allclose(found[name], expected.numpy(), atol=2e-4)
    given = torch.from_numpy(found["long_nll"]), torch.from_numpy(found["short_nll"])
    sparse = Weighting(postprocessing="sparse", kappa=0.25)
    own = token_weights(*given, sparse, sequence_ids=range(len(ids)), seed=0)
    np.testing.assert_array_equal(found["loss_weights"], own.numpy())
    assert set(found["document"]) == {"a.txt", "b.txt"}
    for row in range(len(ids)):  # each sequence is where it says it is
        text = AutoTokenizer.from_pretrained(place / "my-model").decode(ids[row, 1:])
        assert text.strip() in (place / "texts" / found["document"][row]).read_text()
    assert sorted(found["position"][found["document"] == "a.txt"])[0] == 0


def test_its_seed_settles_ties(run: Run, place: Path) -> None:
    """Most scores are 0, and more tokens are kept than have another."""
    found = {}
    for seed in (0, 3):
        code, _, error = run(f"seed-{seed}", score="ppmi", kappa="0.9", seed=str(seed))
        assert (code, error) == (0, ""), error
        found[seed] = table(place / f"seed-{seed}")
        given = (torch.from_numpy(found[seed][name]) for name in ("long_nll", "short_nll"))
        ppmi = Weighting(score="ppmi", postprocessing="sparse", kappa=0.9)
        own = token_weights(*given, ppmi, sequence_ids=range(len(found[seed]["score"])), seed=seed)
        np.testing.assert_array_equal(found[seed]["loss_weights"], own.numpy())
    assert (found[0]["loss_weights"] != found[3]["loss_weights"]).any()


def test_the_card_says_what_was_done_and_no_paths(weighted: Path, place: Path) -> None:
    card = (weighted / "README.md").read_text()
    assert "config" not in card.split("---")[1]  # or load_dataset gives again what a directory of that name had
    for words in ("my-model, sha256", "the model itself", "32 tokens, one every 24", "sparse, kappa 0.25", "torch 2."):
        assert words in card
    assert str(place) not in card


def test_load_dataset_reads_what_is_there_now(weighted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    shutil.copytree(weighted, place := tmp_path / "weighted")
    n = len(table(weighted)["input_ids"])
    assert len(datasets.load_dataset(str(place), split="train")) == n
    (file,) = (place / "data").glob("*.parquet")
    pq.write_table(pq.read_table(file).slice(1), file)
    assert len(datasets.load_dataset(str(place), split="train")) == n - 1


def test_another_weighting_asks_no_model_and_another_scorer_does(
    weighted: Path, run: Run, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scored: list[str] = []
    monkeypatch.setattr(scoring.models, "load_model", lambda path, *_, **__: scored.append(path.name) or model_of(path))
    (place / "own.py").write_text("def far(position): return position")
    assert run("again")[0] == 0
    assert run("far", score="own.py:far", postprocessing="raw", kappa=None)[0] == 0
    assert not scored
    assert (table(place / "far")["loss_weights"] == np.arange(1, LONG)).all()
    monkeypatch.undo()
    monkeypatch.setattr(command, "run_flow", in_order)
    monkeypatch.chdir(place)
    assert run("weak", scorer="another")[0] == 0
    weak, own = table(place / "weak"), table(weighted)
    assert (weak["long_nll"] == own["long_nll"]).all()
    assert (weak["short_nll"][:, : SHORT - 1] != weak["long_nll"][:, : SHORT - 1]).mean() > 0.9
    assert "another, sha256" in (place / "weak" / "README.md").read_text()


def test_rows_that_are_token_ids_are_scored_as_they_are(weighted: Path, run: Run, place: Path) -> None:
    whole = table(weighted)
    rows = whole["input_ids"][::-1].astype(np.int64).tolist()
    (place / "tokens").mkdir()
    for part, own in enumerate((rows[:3], rows[3:])):
        pq.write_table(pa.table({"input_ids": own}), place / "tokens" / f"{part}.parquet")
    (place / "tokens" / "more.parquet.gz").touch()
    code, _, err = run("as-it-is", "tokens", as_is=True, long_tokens=None)
    assert (code, err) == (0, f"{place}/tokens: not read: more.parquet.gz\n")
    found = table(place / "as-it-is")
    for name in ("input_ids", "long_nll", "score"):
        np.testing.assert_allclose(found[name], whole[name][::-1], atol=1e-5)
    assert found["document"].tolist()[2:4] == ["0.parquet:3", "1.parquet:1"]


def test_entropies_are_scored_where_weights_look_at_them(weighted: Path, run: Run, place: Path) -> None:
    assert run("mile", score="mile", postprocessing="raw", kappa=None)[0] == 0
    found, model = table(place / "mile"), model_of(place / "my-model").eval()
    with torch.no_grad():
        log_p = model(torch.from_numpy(found["input_ids"]).long()).logits[:, :-1].log_softmax(-1)
    np.testing.assert_allclose(found["loss_weights"], 1 - (log_p.exp() * log_p).sum(-1).numpy(), atol=1e-4)
    assert (found["long_nll"] == table(weighted)["long_nll"]).all()


def test_a_score_of_ones_own_is_told_how_often_training_predicts_each_position(run: Run, place: Path) -> None:
    lines = "def counted(position, position_counts):", "    return position_counts[position.long()] + position / 1000"
    (place / "own.py").write_text("\n".join(lines))
    code, _, err = run("counted", score="own.py:counted", postprocessing="raw", kappa=None)
    assert (code, err) == (0, ""), err
    found = table(place / "counted")
    for name in ("score", "loss_weights"):  # once a sequence, however many sequences a shard has
        np.testing.assert_allclose(
            found[name], 1 + np.arange(1, LONG)[None].repeat(len(found[name]), 0) / 1000, rtol=1e-6
        )


def test_shards_are_resumed(weighted: Path, run: Run, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weighing, "TOKENS_PER_SHARD", 2 * LONG)
    real, calls = weighing.token_weights, []

    def interrupted(*given: Any, **more: Any) -> Tensor:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*given, **more)

    monkeypatch.setattr(weighing, "token_weights", interrupted)
    assert run("parts", seed="1")[0] == 130
    assert run("parts", seed="1")[0] == 0
    shards = sorted(file.name for file in (place / "parts" / "data").iterdir())
    assert len(calls) == len(shards) + 1 > 3
    assert shards[0] == f"train-00000-of-{len(shards):05d}.parquet"
    assert (table(place / "parts")["long_nll"] == table(weighted)["long_nll"]).all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"out": "texts"}, "--out texts: is not empty; choose another"),
        ({"out": "texts/weighted"}, "--out texts/weighted: lies in the corpus "),
        ({"short_tokens": "4096"}, "each must be smaller than the one before and fit the models"),
        ({"score": "exact"}, "--score exact: is not offered here; choose one of abs_pmi, "),
        ({"score": "own.py:lost"}, "has no function 'lost'"),
        (
            {"corpus": "uneven", "as_is": True, "long_tokens": "64"},
            "--long-tokens 64: with --as-is the rows set the length",
        ),
        (
            {"corpus": "texts", "as_is": True, "long_tokens": None},
            "a.txt, which is text; with --as-is only token ids in .parquet files are read; leave --as-is out",
        ),
        (
            {"corpus": "uneven", "as_is": True, "long_tokens": None},
            "row 2: has 64 tokens in `input_ids`, the first row 128",
        ),
        ({"scorer": "nowhere/at/all"}, "--scorer nowhere/at/all: no such directory"),
        ({"model": "no-model/here/x"}, "--model no-model/here/x: no such directory"),
        ({"corpus": "no/corpus"}, "CORPUS no/corpus: does not exist"),
        ({"corpus": "none"}, "error: CORPUS: "),
    ],
)
def test_mistakes_are_one_line(run: Run, place: Path, changes: dict[str, Any], message: str) -> None:
    (place / "own.py").write_text("def far(position): return position")
    (place / "uneven").mkdir(exist_ok=True)
    (place / "none").mkdir(exist_ok=True)
    pq.write_table(pa.table({"input_ids": [[1] * LONG, [1] * 64]}), place / "uneven" / "rows.parquet")
    code, _, err = run(**{"out": "x", **changes})
    assert (code, err.count("\n")) == (2, 1)
    assert message in err


# --- docs/trainers.md


@pytest.fixture(scope="module")
def known() -> dict[str, Any]:
    """The names of the sections that were run, over the tests."""
    return {}


@pytest.fixture
def page(
    known: dict[str, Any], weighted: Path, place: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Callable[..., Any]]:
    """Runs a section's code, a block after the other, unless it has; returns its names and those of sections before."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.chdir(place)

    def run(section: str, **given: Any) -> dict[str, Any]:
        if section in known:
            return known
        known[section] = True
        text = re.split(r"^## ", PAGE.partition(f"\n## {section}\n")[2], flags=re.MULTILINE)[0]
        for number, block in enumerate(re.findall(r"```python\n(.*?)```", text, re.DOTALL)):
            file = tmp_path / f"block-{number}.py"
            code = block.replace('"run"', f'"{tmp_path}/run", use_cpu=True, report_to=[], save_strategy="no"')
            file.write_text(code.replace("8192", "32").replace("6144", "24"))
            known.update(runpy.run_path(str(file), init_globals={**known, **given}))
        return known

    yield run
    shutil.rmtree(tmp_path / "cache", ignore_errors=True)


def gradients(model: Any, loss: Tensor) -> Tensor:
    model.zero_grad()
    loss.backward()
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


@pytest.fixture
def ours(weighted: Path, place: Path) -> tuple[Any, dict[str, Tensor], Tensor]:
    """The model, the first rows, and the gradient of this project's loss with their weights."""
    found, model = table(weighted), model_of(place / "my-model")
    batch = {
        "input_ids": torch.from_numpy(found["input_ids"][:2]).long(),
        "loss_weights": torch.from_numpy(found["loss_weights"][:2]),
    }
    head = model_of(place / "my-model")
    install_head(head)
    return model, batch, gradients(head, weighted_nll(model_nll(head, batch["input_ids"]), batch["loss_weights"]))


def close(found: Tensor, expected: Tensor) -> bool:
    difference = float((found - expected).norm() / expected.norm())
    assert difference < 1e-5, difference
    return True


def test_plain_pytorch_and_trainers_learn_as_ours(page: Callable[..., Any], ours: Any) -> None:
    model, batch, expected = ours
    known = page("Plain PyTorch")
    assert close(gradients(model, known["weighted_loss"](model, batch)), expected)
    known = page("HF Trainer", rows=known["rows"])
    assert close(gradients(model, known["Weighted"]().compute_loss(model, dict(batch))), expected)
    steps = {}
    for classes in [known["WeightedTrainer"]]:
        trained = model_of(Path("my-model"))
        rows = [{name: value[row] for name, value in batch.items()} for row in range(2)]
        arguments = known["TrainingArguments"](
            "run", max_steps=1, optim="sgd", learning_rate=1.0, max_grad_norm=0.0, per_device_train_batch_size=1,
            gradient_accumulation_steps=2, remove_unused_columns=False, use_cpu=True, report_to=[], save_strategy="no",
        )  # fmt: skip
        before = torch.cat([parameter.detach().flatten() for parameter in trained.parameters()])
        classes(trained, arguments, train_dataset=rows, data_collator=default_data_collator).train()
        steps[classes.__name__] = before - torch.cat(
            [parameter.detach().flatten() for parameter in trained.parameters()]
        )
    assert all((step - expected).norm() < 1e-3 * expected.norm() for step in steps.values())


def test_losses_of_logits_and_labels_learn_as_ours(page: Callable[..., Any], ours: Any) -> None:
    model, batch, expected = ours
    known = page("torchtitan and NeMo AutoModel")
    rows = [{name: value[row] for name, value in batch.items()} for row in range(2)]
    labels = torch.stack([known["labels_with_weights"](row) for row in rows])
    logits = model(input_ids=batch["input_ids"][:, :-1]).logits
    assert close(gradients(model, known["weighted_sum"](logits, labels) / labels.numel()), expected)


def test_trl_learns_as_ours(page: Callable[..., Any], ours: Any) -> None:
    pytest.importorskip("trl")
    model, batch, expected = ours
    known = page("Plain PyTorch")
    known = page("HF Trainer", rows=known["rows"])
    known = page("TRL", rows=known["rows"])
    assert known["WeightedSFT"].compute_loss is known["Weighted"].compute_loss
    assert close(gradients(model, known["Weighted"]().compute_loss(model, dict(batch))), expected)
