"""The hub's repositories that scale paper reads, small, in their real layouts, from a server that speaks the hub's API."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hub_server import Hub, Repository

from tokenweight.assets import smoke_base_dir
from tokenweight.evaluation.longbench import TASKS
from tokenweight.evaluation.units import BENCHMARKS

READS = Path(__file__).with_name("hub_reads.py")
PG19 = ("datasets", "emozilla/pg19")
SLIMPAJAMA = ("datasets", "cerebras/SlimPajama-627B")
LLAMA = ("models", "meta-llama/Meta-Llama-3-8B")
Reads = Callable[..., dict[str, Any]]


def parquet(**columns: list[Any]) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer)
    return buffer.getvalue()


def shard(rows: list[dict[str, Any]]) -> bytes:
    """A file of SlimPajama."""
    return bytes(pa.compress("".join(json.dumps(row) + "\n" for row in rows).encode(), "zstd", asbytes=True))


def configured(*subsets: tuple[str, dict[str, str]]) -> bytes:
    """The head of a data set's README that names its subsets' files by split."""
    lines = ["---", "configs:"]
    for subset, files in subsets:
        lines += [f"- config_name: {subset}", "  data_files:"]
        lines += [line for split, path in files.items() for line in (f"  - split: {split}", f"    path: {path}")]
    return "\n".join([*lines, "---", ""]).encode()


def checkpoint(**others: bytes) -> dict[str, bytes]:
    """The shipped base's files, as a model's repository has them."""
    return {path.name: path.read_bytes() for path in smoke_base_dir().iterdir() if path.is_file()} | others


def repositories() -> dict[tuple[str, str], Repository]:
    """Repositories at the commits that the recipes pin."""
    from tokenweight.recipes.recipe import build, scaled

    def pinned(name: str, part: str) -> str:
        return str(getattr(build(name, "paper", scaled(name, "paper")), part).revision)

    def of_benchmark(name: str, files: dict[str, bytes]) -> dict[tuple[str, str], Repository]:
        data = BENCHMARKS[name].hub_data
        assert data is not None
        return {("datasets", data.repo_id): Repository(data.revision, files)}

    book = parquet(
        short_book_title=["A", "B"], publication_date=[1800, 1801], url=["u", "v"], text=["One.\r\nTwo.", "Three."]
    )
    web = [
        {"text": f"Text {i}.", "meta": {"redpajama_set_name": name}}
        for i, name in enumerate(("RedPajamaBook", "RedPajamaC4"))
    ]
    lines = shard(web)
    question = {
        "question": ["Which is a bone?"] * 5,
        "subject": ["anatomy"] * 5,
        "choices": [["Skin", "Femur", "Liver", "Eye"]] * 5,
        "answer": [1] * 5,
    }
    puzzle = {"input": ["If you follow these instructions, do you return?"], "target": ["No"]}
    head, _ = TASKS["samsum"].template.split("{context}")
    dialogue = {
        "context": [f"{head}TEXT\n\n"], "question": ["Dialogue: D\nSummary: "], "answer_prefix": ["Summary:"],
        "answers": [["A"]], "length": [3], "all_classes": pa.array([None], pa.list_(pa.string())),
    }  # fmt: skip
    llama = checkpoint(**{"original/consolidated.00.pth": b"not wanted"})
    return {
        PG19: Repository(pinned("table-3/uniform", "corpus"), {
            "data/train-00000-of-00001.parquet": book, "data/validation-00000-of-00001.parquet": book,
            "data/test-00000-of-00001.parquet": book,
        }),
        SLIMPAJAMA: Repository(pinned("table-3/lcde", "corpus"), {
            "train/chunk1/example_train_0.jsonl.zst": lines, "validation/chunk1/example_holdout_0.jsonl.zst": lines,
            "test/chunk1/example_holdout_0.jsonl.zst": lines,
        }),
        ("datasets", "HuggingFaceFW/fineweb"): Repository(pinned("table-11/uniform", "corpus"), {
            "README.md": configured(("default", {"train": "data/*/*"}), ("sample-100BT", {"train": "sample/100BT/*"})),
            "data/CC-MAIN-2013-20/000_00000.parquet": parquet(text=["Of another subset."], id=["0"]),
            "sample/100BT/000_00000.parquet": parquet(text=["A page."], id=["1"]),
        }),
        **of_benchmark("mmlu", {
            "README.md": configured(("anatomy", {"test": "anatomy/test-*", "dev": "anatomy/dev-*"})),
            "anatomy/test-00000-of-00001.parquet": parquet(**question), "anatomy/dev-00000-of-00001.parquet": parquet(**question),
        }),
        **of_benchmark("bbh", {
            "README.md": configured(("navigate", {"test": "navigate/test-*"})),
            "navigate/test-00000-of-00001.parquet": parquet(**puzzle),
        }),
        **of_benchmark("longbench", {
            "README.md": configured(("samsum", {"test": "samsum/test-*"})),
            "samsum/test-00000-of-00001.parquet": parquet(**dialogue),
        }),
        LLAMA: Repository(pinned("table-3/uniform", "base"), llama, gated=True),
        ("models", "microsoft/phi-2"): Repository(pinned("table-7/uniform", "base"), checkpoint()),
    }  # fmt: skip


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub(repositories()) as server:
        yield server
        server.shutdown()


def with_hub(hub: Hub, home: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A run of Python whose hub is this one; the clients read where it is when they are imported."""
    own = {"HF_ENDPOINT": hub.url, "HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1", "NO_PROXY": "127.0.0.1"}
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=inherited | own | environment)


@pytest.fixture
def reads(hub: Hub, tmp_path: Path) -> Reads:
    """What scale paper reads by these names, from an empty cache unless `home` is given."""

    def run(*names: str, home: str = "home", **environment: str) -> dict[str, Any]:
        done = with_hub(hub, tmp_path / home, str(READS), *names, **environment)
        assert done.returncode == 0, done.stderr
        answers: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return answers

    return run


def test_what_scale_paper_reads_of_the_hub_is_read(reads: Reads, hub: Hub) -> None:
    names = ("pg19", "slimpajama", "fineweb", "reachable", "mmlu", "bbh", "longbench", "llama-3", "phi-2")
    found = reads(*names, HF_TOKEN="hf_of_a_test")
    assert {name: answer for name, answer in found.items() if "refused" in answer} == {}
    got = {name: answer["read"] for name, answer in found.items()}
    assert got["pg19"] == [["One.\nTwo.", ""], ["Three.", ""]]
    assert got["slimpajama"] == [["Text 0.", "RedPajamaBook"], ["Text 1.", "RedPajamaC4"]]
    assert got["fineweb"] == [["A page.", ""]]
    assert got["reachable"] == []
    assert "B. Femur" in got["mmlu"]
    assert "do you return" in got["bbh"]
    assert got["longbench"][0] == TASKS["samsum"].template.format(context="TEXT", input="Dialogue: D\nSummary: ")
    assert {"config.json", "tokenizer.json", "model.safetensors"} <= set(got["llama-3"])
    assert "original" not in got["llama-3"]
    assert not any("/main" in path for path in hub.asked), "a branch was asked for, which moves"


def test_no_more_files_are_fetched_than_hold_enough(reads: Reads, hub: Hub) -> None:
    """1,270 tokens of a repository whose every file has about 2,000."""
    names, row = [f"train/chunk1/example_train_{n}.jsonl.zst" for n in range(5)], "The quiet river ran past the mill. "
    meta = {"redpajama_set_name": "RedPajamaC4"}
    files = {
        name: shard([{"text": f"{n} {i} {row * 2}", "meta": meta} for i in range(100)]) for n, name in enumerate(names)
    }
    hub.repositories[SLIMPAJAMA].files = {**hub.repositories[SLIMPAJAMA].files, **files}
    account = reads("enough")["enough"]["read"]
    assert account["stopped_reading"]
    assert 1270 <= account["tokens"] < 1300
    assert account["sequences"] == 2
    fetched = {path.partition("/resolve/")[2].partition("/")[2] for path in hub.asked if "/resolve/" in path}
    assert {name for name in fetched if name.endswith(".zst")} == {names[0]}


def test_what_is_wrong_with_the_hub_is_one_line_each(reads: Reads, hub: Hub) -> None:
    mmlu, bbh = (("datasets", BENCHMARKS[name].hub_data.repo_id) for name in ("mmlu", "bbh"))
    hub.repositories[PG19].commit = "0" * 40  # the pinned revision is gone
    del hub.repositories["models", "microsoft/phi-2"]
    hub.repositories[mmlu].lies = True
    del hub.repositories[bbh]
    found = reads("llama-3", "pg19", "phi-2", "mmlu", "bbh", "reachable", HF_DATASETS_OFFLINE="0")
    (bbh_line,) = found.pop("reachable")["read"]
    lines = {name: answer["refused"] for name, answer in found.items()}
    assert all(line.count("\n") == 0 for line in lines.values()), lines
    assert "it is gated" in lines["llama-3"]
    assert "hf auth login" in lines["llama-3"]
    assert "emozilla/pg19" in lines["pg19"]
    assert "c021754c8e01c5b1cc83a1f549c1f97fbbb756b8" in lines["pg19"]
    assert "the hub has no such repository" in lines["phi-2"]
    assert "cais/mmlu" in lines["mmlu"]
    assert "--bbh" in bbh_line
    assert "evaluation.bbh.data" in lines["bbh"]


def test_a_connection_that_drops_is_made_again(reads: Reads, hub: Hub) -> None:
    hub.repositories[LLAMA].drops["model.safetensors"] = 2
    hub.repositories[PG19].drops["data/train-00000-of-00001.parquet"] = 1
    found = reads("llama-3", "pg19", HF_TOKEN="hf_of_a_test")
    assert found["pg19"]["read"] == [["One.\nTwo.", ""], ["Three.", ""]]
    assert "model.safetensors" in found["llama-3"]["read"]
    assert sum(path.startswith("GET") and path.endswith("/model.safetensors") for path in hub.asked) == 3


@pytest.mark.slow  # the clients try again for a minute
def test_a_hub_that_is_gone_is_one_line(reads: Reads, hub: Hub) -> None:
    hub.shutdown()
    hub.server_close()
    lines = {name: answer["refused"] for name, answer in reads("phi-2", "mmlu", "fineweb").items()}
    assert all("\n" not in line for line in lines.values())
    assert "--base DIR" in lines["phi-2"]
    assert "corpus.repo_id to DIR" in lines["fineweb"]


SCORED = """
from tokenweight.cli import main
from tokenweight.commands import scoring
from tokenweight.tasks.pieces import run_in_order
scoring.run_flow = lambda _, graph, store, execution, **__: run_in_order(graph, store, execution)
main()
"""


@pytest.mark.slow  # torchrun twice
def test_a_corpus_of_the_hub_is_weighed_by_two_processes_as_its_file_by_one(hub: Hub, tmp_path: Path) -> None:
    file = parquet(text=[f"{name} ran past the river and Eve. " * 200 for name in ("Adam", "Ruth", "Noah")])
    readme = configured(("default", {"train": "data.parquet"}))
    hub.repositories["datasets", "me/texts"] = Repository("d" * 40, {"README.md": readme, "data.parquet": file})
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "data.parquet").write_bytes(file)
    tables = []
    for out, corpus, processes in (("a", f"me/texts@{'d' * 40}", "2"), ("b", str(tmp_path / "texts"), "1")):
        given = ["score", corpus, "--model", str(smoke_base_dir()), "--long-tokens", "128", "--precision", "fp32"]
        places = ["--device", "cpu", "--store", str(tmp_path / f"store-{out}"), "--out", str(tmp_path / out)]
        done = with_hub(hub, tmp_path / "home", "-c", SCORED, *given, *places, "--processes", processes)
        assert done.returncode == 0, done.stderr
        tables.append(pq.read_table(tmp_path / out / "data"))
    assert len(tables[0]) > 32  # shards of either process
    for name in ("input_ids", "long_nll", "short_nll", "loss_weights", "position"):
        assert tables[0][name].equals(tables[1][name]), name
    assert tables[0]["document"][0].as_py().startswith("train:")
