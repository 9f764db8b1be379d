"""HELMET and NoLiMa on small data in their layouts, against plain computations by the libraries that their own code calls."""

from __future__ import annotations

import hashlib
import json
import math
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets import Dataset
from prepared_prompts import Json, prepared, write

from tokenweight.errors import UserError
from tokenweight.evaluation.benchmark import Unit
from tokenweight.evaluation.helmet import METRICS, TASKS
from tokenweight.evaluation.hf_model import EvaluatedModel
from tokenweight.evaluation.nolima import trials
from tokenweight.evaluation.samples import OutputBenchmark
from tokenweight.evaluation.tokens import token_counter
from tokenweight.evaluation.units import BENCHMARKS, UnitStage
from tokenweight.pipeline.experiment import Column
from tokenweight.pipeline.measures import SampleMean
from tokenweight.pipeline.store import Store
from tokenweight.planning.plan import check_before_running, schedule
from tokenweight.recipes import Inputs
from tokenweight.recipes.options import ModelOptions
from tokenweight.recipes.schema import Evaluation, Execution, Helmet, Nolima
from tokenweight.tasks.experiments import plan_models, write_tables
from tokenweight.tasks.pieces import run_in_order

QUESTIONS, DEPTHS = 120, 2  # more than are drawn


def documents(n: int, depth: int, **more: Any) -> list[Json]:
    return [{"title": f"T{n}-{i}", "text": f"Text {n} {'gold' if i == depth else i}.", **more} for i in range(2)]


@pytest.fixture(scope="module")
def helmet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All files for 8k."""
    root = tmp_path_factory.mktemp("helmet")
    for name, task in TASKS.items():
        if task.category == "ICL":
            continue
        for file in filter(None, (task.file.format(size=task.sizes[0]), task.demos)):
            if name == "json_kv":
                pairs = [["a", "1"], ["b", "2"], ["c", "3"]]
                rows: list[Json] = [
                    {
                        "context": f"{{'k{n}': 'v{n}'}}",
                        "question": f"k{n}",
                        "answer": f"v{n}",
                        "demos": pairs,
                        "num_kvs": 1,
                    }
                    for n in range(QUESTIONS)
                ]
            elif "niah" in name:
                rows = [
                    {"context": f"It is {n}.", "query": f"q{n}", "type_needle_v": "number", "answer": [str(n)]}
                    for n in range(QUESTIONS)
                ]
            else:
                rows = [
                    {
                        "qid": f"q{n}", "query": f"What is {n}?",
                        "ctxs": [one | {"id": str(i + 7), "label": i} for i, one in enumerate(documents(n, depth))],
                    }
                    if name.startswith("msmarco")
                    else {
                        "question": f"What is {n}?", "answers": [f"gold {n}", "other"], "ctxs": documents(n, depth),
                        **({"id": f"id{n}", "s_pop": 10 ** (n % 4)} if "popqa" in name else {}),
                    }
                    for n in range(QUESTIONS) for depth in range(DEPTHS)
                ]  # fmt: skip
            write(root / file, rows)
    return root


@pytest.fixture(scope="module")
def nolima(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("nolima")
    entries = [
        {
            "id": f"040{n}", "system_prompt": "", "needle": "Actually, {CHAR} lives next to {1}.",
            "questions": {"onehop": "Who has been to {2}?", "twohop": "Who has been to {3}?"},
            "character_set": ["Yuki", "Stuart", "Katie"],
            "tests": {"T1": {"input_args": ["the castle", "Town", "Land"]}, "T2": {"input_args": ["the sea", "Bay", "Coast"]}},
        }
        for n in range(2)
    ]  # fmt: skip
    (root / "needlesets").mkdir()
    (root / "needlesets/needle_set.json").write_text(json.dumps(entries))
    for n in range(1, 6):
        (root / "haystack/rand_shuffle").mkdir(parents=True, exist_ok=True)
        text = "\n".join(f"Line {i} of the book {n}, a quick fox." for i in range(700))
        (root / f"haystack/rand_shuffle/rand_book_{n}.txt").write_text(text)
    return root


def lines(file: Path) -> Dataset:
    return Dataset.from_list([json.loads(line) for line in file.read_text().splitlines()])


@pytest.mark.parametrize("task", ["kilt_nq", "kilt_popqa_3", "msmarco_rerank_psg"])
def test_questions_demonstrations_and_prompts_are_helmets(
    task: str, helmet: Path, evaluation: Evaluation, checkpoint: Path, tmp_path: Path
) -> None:
    spec = TASKS[task]
    is_ranked, is_popqa = task.startswith("msmarco"), "popqa" in task
    key = "qid" if is_ranked else "id" if is_popqa else "question"
    data, demos = lines(helmet / spec.file.format(size=50)), lines(helmet / str(spec.demos))
    if is_popqa:
        data, demos = (one.filter(lambda row: math.log10(row["s_pop"]) < 3) for one in (data, demos))
    random.seed(42)
    drawn = random.sample(sorted(set(data[key])), min(100, len(set(data[key]))))
    data = data.filter(lambda row: row[key] in drawn)
    given = evaluation.model_copy(update={"helmet": Helmet(data=str(helmet))})
    made = prepared(Unit("helmet", task, 8192), given, checkpoint, tmp_path)
    assert len(made) == len(data) == DEPTHS * len(drawn)

    def passages(row: Json) -> str:
        start = [f"[ID: {one['id']}] " if is_ranked else "" for one in row["ctxs"]]
        texts = [f"Document (Title: {one['title']}): {one['text']}" for one in row["ctxs"]]
        return "\n\n".join(map("".join, zip(start, texts, strict=True)))

    for number in (0, 1, len(data) - 1):
        row = data[number]
        others = demos.filter(lambda one, row=row: one[key] != row[key]) if is_ranked or is_popqa else demos
        seed, seen = int(hashlib.sha256(row[key].encode()).hexdigest(), 16) % 2**31, dict[str, Json]()
        for one in others.shuffle(seed=seed):
            seen.setdefault(one[key], one)
        shown = [
            f"{passages(one)}\n\nQuery: {one['query']}\nRanking: 8 > 7\n\n"
            if is_ranked
            else f"{passages(one)}\n\nQuestion: {one['question']}\nAnswer: {one['answers'][0]}\n\n"
            for one in list(seen.values())[:2]
        ]
        end = f"Query: {row['query']}\nRanking:" if is_ranked else f"Question: {row['question']}\nAnswer:"
        prompt = made[number]["prompt"]
        assert prompt.startswith("You are provided with a list" if is_ranked else "Use the given documents")
        assert prompt.endswith(
            ("ID1 > ID2" if is_ranked else "[answer]") + f"\n\n{''.join(shown)}{passages(row)}\n\n{end}"
        )
        assert made[number]["references"] == (["8 1"] if is_ranked else row["answers"])


def test_recall_is_drawn_shown_and_cut_as_helmets(
    helmet: Path, evaluation: Evaluation, checkpoint: Path, tmp_path: Path
) -> None:
    given = evaluation.model_copy(update={"helmet": Helmet(data=str(helmet), samples=3)})
    rows = lines(helmet / "json_kv/test_k105_dep6.jsonl").shuffle(seed=42).select(range(3))
    asked = "Extract the value corresponding to the specified key in the JSON object below."
    shown = "Key: a\nCorresponding value: 1\n\nKey: b\nCorresponding value: 2\n\n"
    expected = [f"{r['context']}\n\n{asked}\n\n{shown}Key: {r['question']}\nCorresponding value:" for r in rows]
    made = prepared(Unit("helmet", "json_kv", 8192), given, checkpoint, tmp_path / "kv")
    assert [one["prompt"] for one in made] == expected
    copy = Path(shutil.copytree(helmet, tmp_path / "copy"))
    row = {"context": "é" * 9000, "query": "q", "type_needle_v": "number", "answer": ["1"]}
    write(copy / "ruler/niah_multikey_2/validation_8192.jsonl", [row])
    given = evaluation.model_copy(update={"helmet": Helmet(data=str(copy))})
    (one,) = prepared(Unit("helmet", "ruler_niah_mk_2", 8192), given, checkpoint, tmp_path / "cut")
    counter = token_counter(checkpoint)
    kept = one["prompt"].count("é")
    assert one["truncated"]
    assert counter.count_whole(one["prompt"]) + 1 == one["n_prompt_tokens"] <= 8192 - 50
    more = one["prompt"].replace("é" * kept, "é" * (kept + 1))
    assert counter.count_whole(more) + 1 > 8192 - 50
    assert one["prompt"].endswith("é\nWhat is the special magic number for q mentioned in the provided text?\nThe special "
                                  "magic number for q mentioned in the provided text is")  # fmt: skip


@pytest.mark.parametrize(
    ("metric", "output", "references", "expected"),
    [
        ("substring_exact_match", " The Gold, of course", ["silver", "gold"], 1.0),
        ("substring_exact_match", " old", ["gold"], 0.0),
        ("substring_exact_match", " no", ["Answer"], 1.0),  # HELMET's: the prompt's last word is part of the prediction
        ("exact_match", " Label: 12. \nlabel: 3", ["12"], 1.0),
        ("exact_match", " 12 or 3", ["12"], 0.0),
        ("ruler_recall", " 12 and 34", ["12", "34", "56", "78"], 0.5),
        (
            "ndcg_at_10",
            " ID3 > [ID: 1] > ID2",
            ["1 3", "2 1"],
            round((3 / math.log2(3) + 1 / 2) / (3 + 1 / math.log2(3)), 5),
        ),
        ("ndcg_at_10", "1 > 1 > 2", ["1 1", "2 1"], 1.0),
        ("ndcg_at_10", "none", ["1 1"], 0.0),
    ],
)
def test_metrics_are_helmets(metric: str, output: str, references: list[str], expected: float) -> None:
    prefix = "label:" if metric == "exact_match" else "Answer:"
    assert METRICS[metric](output, references, prefix) == expected


def test_needles_names_and_places_are_nolimas(
    nolima: Path, evaluation: Evaluation, checkpoint: Path, tmp_path: Path
) -> None:
    given = evaluation.model_copy(update={"nolima": Nolima(data=str(nolima))})
    made = prepared(Unit("nolima", "twohop", 500), given, checkpoint, tmp_path)
    assert len(made) == 5 * 2 * 2 * 26
    tokenizer = token_counter(checkpoint).tokenizer
    book, entry, depth = 3, 1, 7
    number = ((book * 2 + entry) * 2 + 1) * 26 + depth  # its second test
    np.random.seed(42 + 401 + book)
    name = [str(np.random.choice(["Yuki", "Stuart", "Katie"])) for _ in range(depth + 1)][-1]
    ids = tokenizer((nolima / f"haystack/rand_shuffle/rand_book_{book + 1}.txt").read_text(), add_special_tokens=False)
    ids, share = ids["input_ids"], np.linspace(0, 100, 26)[depth] / 100
    place = next(i for i, id in enumerate(ids) if i / 501 >= share and "\n" in tokenizer.decode([id]))
    start = place - round(500 * share)
    before, after = tokenizer.decode(ids[start : place + 1]), tokenizer.decode(ids[place + 1 : start + 500])
    haystack = f"{before[: before.rfind(chr(10))]} Actually, {name} lives next to the sea.\n{after}"
    assert made[number]["references"] == [name]
    assert made[number]["prompt"] == (
        f"You will answer a question based on the following book snippet:\n\n{haystack}\n\nUse the information provided in the "
        "book snippet to answer the question. Your answer should be short and based on either explicitly stated facts or "
        "strong, logical inferences.\n\nQuestion: Who has been to Coast?\n\n Return only the final answer with no additional "
        "explanation or reasoning."
    )
    benchmark = BENCHMARKS["nolima"]
    assert isinstance(benchmark, OutputBenchmark)
    scores = [benchmark.score("twohop", text, [name], None, given).score for text in (f"It is {name}.", "It")]
    assert scores == [1.0, 0.0]


def test_both_are_planned_evaluated_and_shown_by_length(
    helmet: Path, nolima: Path, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        EvaluatedModel, "generate_until", lambda self, asked, **_: [" 8 > 7, Yuki\ngold" for _ in asked]
    )
    model = Path(shutil.copytree(checkpoint, tmp_path / "model"))
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 8192}))
    store, how = Store(tmp_path / "store"), ModelOptions(scale="smoke", device="cpu", limit=2)
    places = (
        f"evaluation.helmet.data={helmet}",
        f"evaluation.nolima.data={nolima}",
        "evaluation.nolima.max_new_tokens=4",
    )
    names = ["helmet", "nolima"]
    with pytest.raises(
        UserError, match=r"missing: evaluation.helmet.data: give HELMET.*; evaluation.nolima.data: give"
    ):
        plan_models([str(model)], how, Inputs(), store, names, None)
    short = r"reads 512 tokens, and the shortest samples of helmet need 8192; give a model whose config.json says at least so many"
    with pytest.raises(
        UserError, match=f"{short}, and its data, which are not shipped, with --set evaluation.helmet.data=DIR, or"
    ):
        plan_models([str(checkpoint)], how, Inputs(), store, ["helmet"], None)
    with pytest.raises(UserError, match=f"{short}, or choose --benchmarks without helmet"):
        plan_models([str(checkpoint)], how, Inputs(settings=places), store, ["helmet"], None)
    with pytest.raises(UserError, match=r"reads 4096 tokens, .*need 8192; give --lengths 8192, or choose"):
        plan_models([str(model)], how, Inputs(settings=places), store, ["helmet"], [4096])
    planned, _ = plan_models([str(model)], how, Inputs(settings=places), store, names, None)
    about = "Scale smoke, on data of the user's own. Limited to 2 of the samples of each task at each length: "
    assert planned.manifest.about.startswith(about)
    mixed, _ = plan_models([str(model)], how, Inputs(settings=places), store, ["helmet", "mmlu"], None)
    assert mixed.manifest.about.startswith("Scale smoke: shipped miniatures of mmlu at short lengths")
    run_in_order(planned.graph, store, Execution(device="cpu", eval_batch_sequences=8))
    assert {entry.action for entry in schedule(planned.graph, store)} == {"reuse"}
    table = json.loads(write_tables(planned, store, tmp_path, figures=False)["json"].read_text())
    labels = [" ".join(filter(None, (column["group"], column["label"]))) for column in table["columns"]]
    assert labels == [
        "HELMET recall 8k", "HELMET RAG 8k", "HELMET re-ranking 8k", "NoLiMa 250", "NoLiMa 500", "NoLiMa 1k", "NoLiMa 2k",
        "NoLiMa 4k", "NoLiMa 4k onehop", "NoLiMa 4k twohop",
    ]  # fmt: skip
    assert [key for key in (column["key"] for column in table["columns"]) if key in names] == names  # of a figure
    (row,) = table["rows"]
    assert [cell["n"] for cell in row["cells"]] == [8, 8, 2, *[4] * 5, 2, 2]
    assert {cell["status"] for cell in row["cells"]} == {"complete"}
    assert [cell["value"] for cell in row["cells"]][:3] == [0, 0, 100]  # of a first line
    units = [unit for entry in planned.manifest.rows for unit in entry.units]
    assert {unit.length_tokens for unit in units} == {8192, 250, 500, 1000, 2000, 4000}
    file = helmet / "kilt/nq-train-multikilt_1000_k3_dep6.jsonl"
    moved = Path(shutil.copytree(helmet, tmp_path / "moved"))
    again = (f"evaluation.helmet.data={moved}", *places[1:])
    assert not plan_models([str(model)], how, Inputs(settings=again), store, names, None)[1]
    (moved / file.relative_to(helmet)).write_text(file.read_text().replace("Text", "Word"))
    changed, _ = plan_models([str(model)], how, Inputs(settings=again), store, names, None)
    left = [entry.artifact.stage for entry in schedule(changed.graph, store) if entry.action != "reuse"]
    assert {stage.unit.id for stage in left if isinstance(stage, UnitStage)} == {"helmet/kilt_nq/8192"}
    (moved / file.relative_to(helmet)).write_text("{}\n")
    changed, _ = plan_models([str(model)], how, Inputs(settings=again), store, names, None)
    with pytest.raises(UserError, match=r"train-multikilt_1000_k3_dep6.jsonl, line 1: has no field 'question'"):
        check_before_running([changed.graph], store, Execution(device="cpu"))
    (moved / file.relative_to(helmet)).unlink()
    (moved / "msmarco/test_reranking_data_k50_dep3.jsonl").unlink()
    missing = r"missing: evaluation.helmet.data: \S*k3_dep6.jsonl, \S*k50_dep3.jsonl missing; give HELMET's unpacked"
    with pytest.raises(UserError, match=missing):
        plan_models([str(model)], how, Inputs(settings=again), store, names, None)


def test_a_file_of_another_layout_is_named_without_words_of_python(tmp_path: Path) -> None:
    file = tmp_path / "needle_set.json"
    file.write_text(json.dumps([{"id": "1", "reasoning_type": "world_knowledge"}]))
    with pytest.raises(
        UserError, match=r"needle_set.json: does not have NoLiMa's layout \(field '\w+' is missing\); give"
    ):
        trials(file, "onehop")


def test_categories_without_a_folder_are_left_out_and_said(
    helmet: Path, tmp_path: Path, evaluation: Evaluation
) -> None:
    (tmp_path / "part").mkdir()
    (tmp_path / "part/kilt").symlink_to(helmet / "kilt")
    given = evaluation.model_copy(update={"helmet": Helmet(data=str(tmp_path / "part"))})
    benchmark, column = (
        BENCHMARKS["helmet"],
        Column(key="helmet", label="HELMET", measure=SampleMean(benchmark="helmet")),
    )
    columns, notes = benchmark.columns(column, given, 8192)
    assert [(one.key, one.group, one.label) for one in columns] == [("helmet", "HELMET RAG", "8k")]
    assert notes == [
        "HELMET in percent: RAG by substring match.",
        "HELMET's recall left out: no json_kv/, ruler/ in part.",
        "HELMET's re-ranking left out: no msmarco/ in part.",
        "HELMET's ICL left out: no icl/ in part.",
    ]
    assert {unit.task for unit in benchmark.units(given, 8192)} == {name for name in TASKS if name.startswith("kilt")}


def test_ids_that_no_answer_could_name_are_refused(helmet: Path, tmp_path: Path, evaluation: Evaluation) -> None:
    copy = Path(shutil.copytree(helmet, tmp_path / "copy"))
    file = copy / "msmarco/test_reranking_data_k50_dep3.jsonl"
    file.write_text(file.read_text().replace('"id": "8"', '"id": "q0d1"'))
    given = evaluation.model_copy(update={"helmet": Helmet(data=str(copy))})
    with pytest.raises(UserError, match=r"k50_dep3.jsonl: .*\(id 'q0d1' in `ctxs` is no text of digits"):
        BENCHMARKS["helmet"].check_data(Unit("helmet", "msmarco_rerank_psg", 8192), given)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", ": 0 tokens do not fill 250 at depth 0.00; give NoLiMa's own$"),
        (b"A quick fox.\n" * 24, r": \d+ tokens do not fill 250 at depth \S+; give NoLiMa's own$"),
        (b"\xff\xfe", ", line 1: not UTF-8"),
    ],
)
def test_a_book_that_cannot_be_used_is_named_before_any_work(
    content: bytes, message: str, nolima: Path, checkpoint: Path, tmp_path: Path
) -> None:
    copy, store = Path(shutil.copytree(nolima, tmp_path / "copy")), Store(tmp_path / "store")
    (copy / "haystack/rand_shuffle/rand_book_2.txt").write_bytes(content)
    how = ModelOptions(scale="smoke", device="cpu", limit=1)
    settings = (f"evaluation.nolima.data={copy}", "evaluation.nolima.max_new_tokens=4")
    planned, _ = plan_models([str(checkpoint)], how, Inputs(settings=settings), store, ["nolima"], None)
    with pytest.raises(UserError, match=rf"rand_book_2.txt{message}"):
        check_before_running([planned.graph], store, Execution(device="cpu"))
