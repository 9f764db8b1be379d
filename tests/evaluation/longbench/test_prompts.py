"""LongBench's prompts: official templates, data layouts, and truncation in the middle."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tokenweight.assets import smoke_base_dir
from tokenweight.errors import UserError
from tokenweight.evaluation.benchmark import Unit
from tokenweight.evaluation.longbench import TASKS, hub_prompt, truncate_middle
from tokenweight.evaluation.longbench import LongBench as Benchmark
from tokenweight.evaluation.samples import write_prompts
from tokenweight.evaluation.tokens import TokenCounter
from tokenweight.recipes.schema import Evaluation, LongBench

ROW = {
    "input": "INPUT",
    "context": "CONTEXT LINE 1\nCONTEXT LINE 2",
    "answers": ["A"],
    "length": 6,
    "all_classes": None,
}


@pytest.mark.parametrize("task", TASKS)
def test_prompts_are_the_official_ones(task: str, tmp_path: Path, golden: Callable[[str, str], None]) -> None:
    (tmp_path / f"{task}.jsonl").write_text(json.dumps(ROW | {"answers": ["Paragraph 1"], "all_classes": ["A"]}) + "\n")
    prompt, _ = Benchmark().load_samples(task, LongBench(data=str(tmp_path)))[0]
    spec = TASKS[task]
    golden(
        f"{task}.txt",
        f"{prompt}<GENERATE>\n--- at most {spec.new_tokens} tokens, {spec.metric}, {spec.category}\n",
    )


# Where the mirror puts the official prompt's text: (context's head and tail, question's head and tail, answer prefix).
MIRROR_ENDS = {
    "narrativeqa": ("Question: ", "\n\n", "Answer:"), "qasper": ("Question: ", "\n\n", "Answer:"),
    "hotpotqa": ("Question: ", "\n", "Answer:"), "qmsum": ("Query: ", "\n", "Answer:"),
    "triviaqa": ("", "", "Answer:"), "lcc": ("", "", "Next line of code:\n"),
}  # fmt: skip


@pytest.mark.parametrize("task", MIRROR_ENDS)
def test_rows_of_the_hubs_mirror_give_the_same_prompt(task: str) -> None:
    spec = TASKS[task]
    before, after, prefix = MIRROR_ENDS[task]
    row = dict(ROW, input="" if task == "lcc" else "INPUT")
    official = spec.template.format(context=row["context"], input=row["input"])
    if task == "triviaqa":
        official += prefix  # the official input ends with it, the mirror moves it
    tail = f"{before}{row['input']}{after}{prefix}"
    mirrored = {
        "context": official.removesuffix(tail), "question": f"{before}{row['input']}{after}", "answer_prefix": prefix,
    }  # fmt: skip
    assert official.endswith(tail)
    assert hub_prompt(spec, mirrored) == official
    assert hub_prompt(spec, {"context": "TEXT", "question": "Q"}) == spec.template.format(context="TEXT", input="Q")


def test_hub_rows_are_read_at_a_pinned_revision(monkeypatch: pytest.MonkeyPatch) -> None:
    def load_dataset(repo: str, name: str, split: str, revision: str) -> list[dict[str, object]]:
        assert (repo, name, split) == ("Xnhyacinth/LongBench", "samsum", "test")
        assert len(revision) == 40
        head = TASKS["samsum"].template.partition("{context}")[0]
        row = {"context": f"{head}TEXT\n\n", "question": "Dialogue: D\nSummary: ", "answer_prefix": "Summary:"}
        return [{**row, "answers": ["A"], "length": 3, "all_classes": None}]

    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    prompt, row = Benchmark().load_samples("samsum", LongBench(data="hub"))[0]
    assert prompt == TASKS["samsum"].template.format(context="TEXT", input="Dialogue: D\nSummary: ")
    assert (row["answers"], row["length"]) == (["A"], 3)


def test_a_hub_out_of_reach_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def load_dataset(*args: object, **kwargs: object) -> None:
        raise ConnectionError("offline")

    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    with pytest.raises(UserError, match=r"longbench.data: .*go online once"):
        Benchmark().load_samples("lcc", LongBench(data="hub"))


def test_truncation_keeps_both_ends_and_counts_bos(counter: TokenCounter) -> None:
    prompt = "HEAD " + " ".join(f"number {i} of many" for i in range(600)) + " TAIL"
    kept, n_tokens, untruncated = truncate_middle(prompt, 300, counter)
    ids = counter.tokenizer(kept)["input_ids"]
    assert ids[0] == counter.tokenizer.bos_token_id
    assert 290 <= len(ids) == n_tokens <= 300
    assert untruncated == len(counter.tokenizer(prompt)["input_ids"])
    assert kept.startswith("HEAD number 0")
    assert kept.endswith("of many TAIL")
    assert truncate_middle("short", 300, counter) == ("short", *[len(counter.tokenizer("short")["input_ids"])] * 2)
    with pytest.raises(UserError, match="context_tokens"):
        truncate_middle(prompt, 2, counter)


@pytest.mark.parametrize("task", TASKS)
def test_shipped_samples_lie_on_both_sides_of_1024_tokens_and_fit_4096(
    task: str, evaluation: Evaluation, tmp_path: Path
) -> None:
    made, fill = Benchmark().prepare(Unit("longbench", task), evaluation, smoke_base_dir(), 4096)
    summary = write_prompts(made, tmp_path, **fill)
    rows = [json.loads(line) for line in (tmp_path / "prompts.jsonl").read_text().splitlines()]
    assert summary["n"] == len(rows) == 4
    assert [row["untruncated_tokens"] > 1024 for row in rows] == [False, False, True, True]
    assert summary["share_truncated"] == sum(row["truncated"] for row in rows) / 4
    assert all(row["n_prompt_tokens"] + row["max_new_tokens"] <= 4096 for row in rows)
    assert all(row["truncated"] == (row["untruncated_tokens"] > row["n_prompt_tokens"]) for row in rows)
    assert all(row["length_words"] and row["references"] for row in rows)
    assert all(bool(row["all_classes"]) == (task == "trec") for row in rows)


def test_samples_are_limited_and_errors_named(tmp_path: Path) -> None:
    assert len(Benchmark().load_samples("lcc", LongBench(samples=2))) == 2
    data = LongBench(data=str(tmp_path))
    with pytest.raises(UserError, match=r"longbench.data: .*lcc.jsonl missing"):
        Benchmark().load_samples("lcc", data)
    (tmp_path / "lcc.jsonl").write_text(json.dumps({"input": "", "context": ""}) + "\n")
    with pytest.raises(UserError, match=r"lcc.jsonl, line 1: has no field 'answers'"):
        Benchmark().load_samples("lcc", data)
    null = "context, input or length is null or of another type"
    for task, wrong, told in (
        *(
            ("lcc", {"answers": ["x"]} | one, null)
            for one in ({"context": None}, {"input": "\ud800"}, {"length": "abc"}, {"length": 7.0}, {"length": True})
        ),
        *(("lcc", {"answers": ["x"], "length": one}, f"length is {one}, no number of words") for one in (-1, 0)),
        ("lcc", {"answers": ["x"], "dataset": "trec"}, "is a sample of 'trec'"),
        ("lcc", {"answers": []}, "answers is not a list of texts"),
        ("passage_retrieval_en", {"answers": ["third"]}, "an answer does not read 'Paragraph N'"),
        ("trec", {"answers": ["Place"]}, "all_classes is not a list of class names"),
    ):
        (tmp_path / f"{task}.jsonl").write_text(json.dumps({"input": "", "context": "", "length": 1} | wrong) + "\n")
        with pytest.raises(UserError, match=f"{task}.jsonl, line 1: {told}"):
            Benchmark().load_samples(task, data)
    row = json.dumps({"input": "", "context": "", "length": 1, "answers": ["x"], "_id": "7"})
    (tmp_path / "lcc.jsonl").write_text(f"{row}\n{row}\n")
    with pytest.raises(UserError, match=r'lcc.jsonl, line 2: _id "7" is given twice'):
        Benchmark().load_samples("lcc", data)
    (tmp_path / "lcc.jsonl").write_text("\n")
    with pytest.raises(UserError, match="no sample of lcc"):
        Benchmark().load_samples("lcc", data)
    assert Benchmark().local_files("lcc", data.data) == [tmp_path / "lcc.jsonl"]
    assert Benchmark().local_files("lcc", "hub") == []
