"""Inputs made from the schemas by hypothesis: each is accepted or one line; never another exception, and nothing is made."""

from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from tokenweight.errors import StageError, UserError
from tokenweight.evaluation.data import smoke_eval_dir
from tokenweight.evaluation.units import BENCHMARKS
from tokenweight.pipeline.store import Store
from tokenweight.planning.plan import check_inputs
from tokenweight.recipes import Inputs, load
from tokenweight.recipes.execution import execution_for
from tokenweight.recipes.schema import Execution
from tokenweight.tasks.experiments import plan_texts

Tally = Callable[[str, str, str], None]
RECIPE = "table-3/frozen-sparse"
PLAIN: dict[str, Any] = {
    "name": "mine",
    "title": "What I ask",
    "benchmarks": ["mmlu", "perplexity"],
    "set": {"training.learning_rate": 1e-5},
    "rows": [
        {"label": "sparse", "recipe": RECIPE, "set": {"weighting.kappa": 0.3}},
        {"label": "uniform", "group": "off", "recipe": "table-3/uniform"},
        {"recipe": RECIPE, "over": {"weighting.kappa": [0.2, 1.0], "chunking.seed": [0, 1]}},
    ],
    "baseline": "off uniform",
    "seeds": 2,
    "lengths": [512],
    "scales": {"smoke": {"training.steps": 4}, "tiny": {"like": "smoke", "training.steps": 2}},
}
# What people and programs write where something else is meant.
SCALARS = st.sampled_from(
    [None, True, False, 0, -1, 1, 2**31, 2**63, 2**70, 0.5, -0.0, 1e-320, 1e308, float("inf"), float("nan"), "", " ", "0",
     "1e400", "null", "none", "table-3", "../../evil", "/", "~", "a" * 300, "é", "\x00", "\ud83d", "a\nb", "{", "[1", "1_000",
     "0x10", "{short}", "ruler", "mmlu", "frozen", "uniform", "smoke", "hub", "9" * 6000]
)  # fmt: skip
JUNK = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "kind", "seed", ""]), inner, max_size=2)
    ),
    max_leaves=4,
)
BROKEN_YAML = st.sampled_from([":", "\t", "- ", "&a", "*a", "!!python/object:os.system", "]", "\x07"])
NUMBERS = st.sampled_from(
    ["0", "1", "2", "7", "64", "4096", "-1", "0.5", "1e-3", "3.0", "true", "[1024]", "[]", "9" * 11]
)
ODD_KEYS = ["", ".", "a.b", "training", "training.", "scorer.model", "device.x", "é"]


def changed(value: Any, draw: st.DrawFn) -> Any:
    """One place of a document with something else in it, or without it, or twice."""
    if isinstance(value, dict) and value and draw(st.integers(0, 5)):
        key = draw(st.sampled_from(sorted(value)))
        match draw(st.integers(0, 6)):
            case 0:
                return {name: one for name, one in value.items() if name != key}
            case 1:
                return {**value, draw(st.sampled_from([key + "s", "", "é", "set"])): value[key]}
            case _:
                return {**value, key: changed(value[key], draw)}
    if isinstance(value, list) and value and draw(st.integers(0, 4)):
        place = draw(st.integers(0, len(value) - 1))
        one = [] if not draw(st.integers(0, 6)) else [changed(value[place], draw)]
        return [*value[:place], *one, *(value[place:] if not draw(st.integers(0, 6)) else value[place + 1 :])]
    return draw(JUNK)


def leaves(value: dict[str, Any], where: str = "") -> list[str]:
    return [
        leaf
        for key, one in value.items()
        for leaf in (leaves(one, f"{where}{key}.") if isinstance(one, dict) and one else [f"{where}{key}"])
    ]


SETTINGS = leaves(load(RECIPE, "smoke").model_dump(by_alias=True))
EXECUTION = sorted(Execution.model_fields)


def as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def experiment(draw: st.DrawFn, store: Store) -> None:
    document = PLAIN
    for _ in range(draw(st.integers(1, 2))):
        document = changed(document, draw)
    out = io.StringIO()
    yaml = YAML(typ="safe", pure=True)
    yaml.dump(document, out)
    text = out.getvalue()
    if not draw(st.integers(0, 4)):
        place = draw(st.integers(0, len(text)))
        text = text[:place] + draw(BROKEN_YAML) + text[place:]
    for planned in plan_texts(["name: mine\n" + text if "\n" not in text else text], "smoke", Inputs(), store)[0]:
        check_inputs(planned.graph)


def setting(draw: st.DrawFn, store: Store) -> None:
    key, value = draw(st.sampled_from(SETTINGS + ODD_KEYS)), draw(NUMBERS | JUNK)
    texts = (f"{key}={as_text(value)}", *(["seed=1"] if draw(st.booleans()) else []))
    plan_texts([f"{RECIPE}@perplexity"], "smoke", Inputs(settings=texts), store)


def execution(draw: st.DrawFn, store: Store) -> None:
    key, value = draw(st.sampled_from(EXECUTION + ODD_KEYS)), draw(NUMBERS | JUNK)
    execution_for("smoke", (f"{key}={as_text(value)}",))


def with_byte(data: bytes, draw: st.DrawFn) -> bytes:
    if not data or draw(st.integers(0, 3)):
        return data
    place = draw(st.integers(0, len(data)))
    return data[:place] + draw(st.sampled_from([b"\xff", b"\x00", b"\n", b'"', b"[" * 100_000])) + data[place:]


def longbench(draw: st.DrawFn, store: Store) -> None:
    task = draw(st.sampled_from(["trec", "qasper", "passage_count", "passage_retrieval_en", "lcc"]))
    rows = [json.loads(line) for line in (smoke_eval_dir() / "longbench" / f"{task}.jsonl").open()][:3]
    rows = changed(rows, draw)
    data = "".join(json.dumps(row) + "\n" for row in (rows if isinstance(rows, list) else [rows])).encode()
    place = data_of(store, f"{task}.jsonl", with_byte(data, draw))
    given = load(RECIPE, "smoke").evaluation
    benchmark: Any = BENCHMARKS["longbench"]
    for prompt, row in benchmark.load_samples(task, given.longbench.model_copy(update={"data": str(place)})):
        assert isinstance(prompt, str)
        prompt.encode()
        benchmark.score(task, "7", row["answers"], row.get("all_classes"), given)


def bbh(draw: st.DrawFn, store: Store) -> None:
    content = json.loads((smoke_eval_dir() / "bbh" / "snarks.json").read_text())
    data = json.dumps(changed({**content, "examples": content["examples"][:3]}, draw)).encode()
    place = data_of(store, "snarks.json", with_byte(data, draw))
    for document in splits("bbh", [place / "snarks.json"])["test"]:
        document["input"].encode()
        assert isinstance(document["target"], str)


def mmlu(draw: st.DrawFn, store: Store) -> None:
    rows = list(csv.reader((smoke_eval_dir() / "mmlu" / "test" / "anatomy_test.csv").open(newline="")))
    out = io.StringIO()
    table = changed(rows, draw)
    rows = table if isinstance(table, list) else [table]
    cells = [list(map(as_text, row)) if isinstance(row, list) else [as_text(row)] for row in rows]
    csv.writer(out).writerows(cells)
    place = data_of(store, "test.csv", with_byte(out.getvalue().encode(errors="surrogatepass"), draw))
    dev = smoke_eval_dir() / "mmlu" / "dev" / "anatomy_dev.csv"
    for document in splits("mmlu", [dev, place / "test.csv"])["test"]:
        assert document["answer"] in range(4)
        assert len(document["choices"]) == 4
        document["question"].encode()


def splits(name: str, files: list[Path]) -> dict[str, Any]:
    benchmark: Any = BENCHMARKS[name]
    found: dict[str, Any] = benchmark.splits(files, load(RECIPE, "smoke").evaluation)
    return found


def data_of(store: Store, name: str, content: bytes) -> Path:
    place = store.root.parent / "data"
    place.mkdir(exist_ok=True)
    (place / name).write_bytes(content)
    return place


KINDS = {
    "experiment's YAML": experiment, "--set": setting, "--execution": execution, "LongBench": longbench, "BBH": bbh, "MMLU": mmlu,
}  # fmt: skip


def fuzzed(kind: str, count: int, store: Store, tally: Tally) -> None:
    wrong: list[str] = []

    @settings(max_examples=count, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def tried(data: Any) -> None:
        try:
            KINDS[kind](data.draw, store)
            tally("garbage", kind, "accepted")
        except (UserError, StageError) as error:
            tally("garbage", kind, "refused")
            if "\n" in str(error) or not str(error):
                wrong.append(f"not one line: {error!r}")
        except Exception as error:
            if type(error).__module__.startswith("hypothesis"):
                raise
            tally("garbage", kind, "losses")
            wrong.append(repr(error)[:300])

    random.seed(0)
    tried()
    assert not wrong, "\n".join(dict.fromkeys(wrong))
    left = [path for path in store.root.rglob("*") if path.is_file() and not path.name.startswith("digests.json")]
    assert left == [], "nothing is made"


@pytest.mark.parametrize("kind", KINDS)
def test_some_garbage_is_one_line(kind: str, tmp_path: Path, tally: Tally) -> None:
    fuzzed(kind, 8, Store(tmp_path / "store"), tally)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_garbage_is_one_line(kind: str, tmp_path: Path, tally: Tally) -> None:
    fuzzed(kind, 60, Store(tmp_path / "store"), tally)
