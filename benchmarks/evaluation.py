"""Time of the whole evaluation of one model on one GPU (or CPU), and what it goes into: benchmark by benchmark, in one process.

    python benchmarks/evaluation.py --books DIR --mmlu DIR --tokenizer DIR --scratch DIR \
        [--bbh DIR] [--scale paper] [--config llama3.2-1b] [--length 8192] [--limit N] [--side-by-side N] [--out FILE.json]

The model has the real architecture and random weights (the head not tied to the embeddings): it answers every prompt up
to the longest answer that a task allows, except MMLU, which asks for none; a trained model stops earlier. At scale paper
MMLU and BBH are given; the books are RULER's haystack, the text for perplexity, and what LongBench's and the two question
answering tasks' contexts are cut from, with the official number of samples and mean length of each task. At scale mini
(`--config mini --length 4096`, its own base's shape) what is not given is what the scale ships. The scores mean nothing.

Loading: imports aside, until the model can be asked. Prefill: passes over more than one token a sequence, log-likelihoods
among them. Decode: the rest of generating. Python: all else, encoding prompts, scoring, writing samples. Each process
evaluates the model twice: a slot's next model finds the prompts encoded. `--side-by-side N`: N such processes on the same
GPU at once, as N slots.
"""

from __future__ import annotations

import functools
import json
import multiprocessing
import os
import platform
import random
import shutil
import time
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal

import cyclopts
import torch
from cyclopts import Parameter
from transformers import AutoConfig, AutoModelForCausalLM

from tokenweight.assets import SHIPPED_CONFIGS, SHIPPED_TOKENIZERS, shipped_config, tokenizer_dir
from tokenweight.context.checkpoint_files import copy_tokenizer
from tokenweight.evaluation.run import load
from tokenweight.evaluation.units import Evaluate
from tokenweight.pipeline.store import Store
from tokenweight.planning.plan import schedule
from tokenweight.recipes.execution import default_execution
from tokenweight.recipes.options import EvaluationInputs, ModelOptions
from tokenweight.tasks.experiments import plan_models
from tokenweight.tasks.pieces import make_piece, model_key, pieces_of
from tokenweight.training.models import load_tokenizer

# Samples and mean length in words: Table 1 and Appendix A of the LongBench paper (Bai et al. 2024).
LONGBENCH = {
    "narrativeqa": (200, 18_409), "qasper": (200, 3_619), "multifieldqa_en": (150, 4_559), "hotpotqa": (200, 9_151),
    "2wikimqa": (200, 4_887), "musique": (200, 11_214), "gov_report": (200, 8_734), "qmsum": (200, 10_614),
    "multi_news": (200, 2_113), "trec": (200, 5_177), "triviaqa": (200, 8_209), "samsum": (200, 6_258),
    "passage_count": (200, 11_141), "passage_retrieval_en": (200, 9_289), "lcc": (500, 1_235),
    "repobench-p": (500, 4_206),
}  # fmt: skip
MINI: dict[str, Any] = {  # scale mini's own base, tokenweight/recipes/mini.yaml
    "model_type": "llama", "hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 8, "vocab_size": 8192,
    "num_attention_heads": 8, "num_key_value_heads": 8, "rope_theta": 306_000.0,
}  # fmt: skip
QUESTIONS = 600  # of each of SQuAD's and HotpotQA's layouts; RULER asks 500


def write_longbench(words: list[str], out_dir: Path) -> None:
    """The 16 tasks in the official layout, contexts cut from the words; lengths vary by a half around the mean."""
    out_dir.mkdir(parents=True, exist_ok=True)
    for task, (samples, mean_words) in LONGBENCH.items():
        draw = random.Random(task)
        rows = []
        for _ in range(samples):
            count = int(mean_words * draw.uniform(0.5, 1.5))
            start = draw.randrange(len(words) - count)
            classes = ["Person", "Place"] if task == "trec" else None
            answer = "Paragraph 1" if task == "passage_retrieval_en" else words[start]
            rows.append(
                {"input": "What comes next?", "context": " ".join(words[start : start + count]), "length": count,
                 "answers": [answer], "all_classes": classes, "dataset": task}
            )  # fmt: skip
        (out_dir / f"{task}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def write_questions(words: list[str], out_dir: Path) -> tuple[Path, Path]:
    """Files in the schemas of SQuAD and HotpotQA: a paragraph of 100 words each, asked for its first word."""
    out_dir.mkdir(parents=True, exist_ok=True)
    paragraphs = [" ".join(words[100 * i : 100 * (i + 1)]) for i in range(QUESTIONS)]
    asked = [f"Which word comes first in passage {i}?" for i in range(QUESTIONS)]
    squad = [
        {"paragraphs": [{"context": text, "qas": [
            {"question": question, "is_impossible": False, "answers": [{"text": text.split()[0], "answer_start": 0}]}
        ]}]}
        for text, question in zip(paragraphs, asked, strict=True)
    ]  # fmt: skip
    hotpotqa = [
        {"question": question, "answer": text.split()[0], "context": [[f"Passage {i}", [text]]],
         "supporting_facts": [[f"Passage {i}", 0]]}
        for i, (text, question) in enumerate(zip(paragraphs, asked, strict=True))
    ]  # fmt: skip
    (out_dir / "squad.json").write_text(json.dumps({"data": squad}))
    (out_dir / "hotpotqa.json").write_text(json.dumps(hotpotqa))
    return out_dir / "squad.json", out_dir / "hotpotqa.json"


def write_model(config: str, tokenizer_dir: Path, context_tokens: int, out_dir: Path) -> int:
    """Random weights of that configuration in bf16, with the tokenizer; returns the number of parameters."""
    if config == "mini":
        values = MINI
    else:
        values = json.loads((shipped_config(config) if config in SHIPPED_CONFIGS else Path(config)).read_text())
    # With tied embeddings random weights repeat the prompt's last token, and a stop string may end the answer at once.
    own = {"max_position_embeddings": context_tokens, "tie_word_embeddings": False}
    built = AutoConfig.for_model(**{**values, **own})
    tokenizer = load_tokenizer(tokenizer_dir)
    for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
        setattr(built, name, getattr(tokenizer, name))
    torch.manual_seed(0)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = AutoModelForCausalLM.from_config(built, dtype=torch.bfloat16)
    model.save_pretrained(out_dir)
    copy_tokenizer(tokenizer_dir, out_dir)
    return int(model.num_parameters())


class Clock:
    """Seconds of prefill and of generation in an evaluation, measured round the model's own calls."""

    def __init__(self) -> None:
        self.prefill = self.prefill_generating = self.generation = 0.0
        self._generating = False

    def watch(self, lm: Any) -> None:
        """Measure the calls of a loaded harness model from now on."""
        lm.model.forward = self._forward(lm.model.forward)
        lm._model_generate = self._generate(lm._model_generate)

    def _forward(self, forward: Any) -> Any:
        @functools.wraps(forward)
        def timed(input_ids: Any = None, *arguments: Any, **keywords: Any) -> Any:
            if input_ids is None or input_ids.shape[-1] == 1:
                return forward(input_ids, *arguments, **keywords)
            began = now()
            try:
                return forward(input_ids, *arguments, **keywords)
            finally:
                seconds = now() - began
                self.prefill += seconds
                self.prefill_generating += seconds * self._generating

        return timed

    def _generate(self, generate: Any) -> Any:
        def timed(*arguments: Any, **keywords: Any) -> Any:
            began, self._generating = now(), True
            try:
                return generate(*arguments, **keywords)
            finally:
                self._generating = False
                self.generation += now() - began

        return timed


def now() -> float:
    """Seconds on the clock, when the GPU has done what it was asked."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def slot(asked: dict[str, Any], first: Path, then: Path) -> list[dict[str, Any]]:
    """Evaluate the model twice in this process, from stores that hold the same prompts."""
    return [measure(asked, first), measure(asked, then)]


def measure(asked: dict[str, Any], store_dir: Path) -> dict[str, Any]:
    """Evaluate in this process; by benchmark units, samples, seconds, and the shares of what they went into."""
    planned, execution = planned_evaluation(asked, store_dir)
    store, clock, models = Store(store_dir), Clock(), {}
    loading = 0.0

    def loaded(artifact: Any, checkpoint_dir: Path) -> Any:
        nonlocal loading
        key = model_key(artifact)
        if key not in models:
            began = now()
            models[key] = load(key.backend, checkpoint_dir, key.context_tokens, execution, key.precision)
            loading += now() - began
            clock.watch(models[key].lm)
        return models[key]

    found: dict[str, Any] = {}
    for piece in pieces_of([planned.graph], [schedule(planned.graph, store)]):
        if piece.reused:
            continue
        before, began = dict(vars(clock), loading=loading), now()
        make_piece(piece.artifacts, store, execution, loaded=loaded)
        if piece.stage == "evaluate":
            seconds = now() - began
            spent = {name: value - before[name] for name, value in dict(vars(clock), loading=loading).items()}
            decode = spent["generation"] - spent["prefill_generating"]
            parts = {"loading": spent["loading"], "prefill": spent["prefill"], "decode": decode}
            parts["python"] = seconds - sum(parts.values())
            samples = sum(
                json.loads((store.path(artifact.identity) / "summary.json").read_text())["n"]
                for artifact in piece.artifacts
            )
            stage = piece.artifacts[0].stage
            assert isinstance(stage, Evaluate)
            found[stage.unit.benchmark] = {
                "units": len(piece.artifacts), "samples": samples, "seconds": round(seconds, 1),
                "samples_per_second": round(samples / seconds, 1),
                **{f"share_{name}": round(value / seconds, 3) for name, value in parts.items()},
            }  # fmt: skip
    return found


def planned_evaluation(asked: dict[str, Any], store_dir: Path) -> Any:
    """The planned experiment, and how it runs."""
    # The command offers the scales that fit any model; a benchmark may take mini's samples and lengths too.
    how = ModelOptions.model_construct(scale=asked["scale"], limit=asked["limit"], context_tokens=asked["length"])
    names = ["ruler", "longbench", "mmlu", "perplexity", *(["bbh"] if "bbh" in asked["data"] else [])]
    lengths = [] if asked["scale"] == "mini" else [asked["length"]]
    inputs = EvaluationInputs(**asked["data"])
    planned, _ = plan_models([asked["model"]], how, inputs, Store(store_dir), names, lengths)
    changes = {"slots_per_gpu": asked["slots"], "device": "auto"}
    return planned, default_execution(asked["scale"]).model_copy(update=changes)


def prepare(asked: dict[str, Any], store_dir: Path) -> None:
    """Make the prompts and all else that comes before a model is asked."""
    planned, execution = planned_evaluation(asked, store_dir)
    for piece in pieces_of([planned.graph], [schedule(planned.graph, Store(store_dir))]):
        if not piece.reused and piece.stage != "evaluate":
            make_piece(piece.artifacts, Store(store_dir), execution)


def main(
    books: Annotated[Path, Parameter(help="Directory of .txt.")],
    mmlu: Annotated[Path, Parameter(help="Directory of MMLU, as --mmlu of evaluate takes it.")],
    tokenizer: Annotated[Path, Parameter(help="Directory with tokenizer.json, or the name of a shipped one.")],
    scratch: Annotated[Path, Parameter(help="Model, data and stores go here.")],
    bbh: Annotated[Path | None, Parameter(help="Directory of BBH, as --bbh of evaluate takes it.")] = None,
    scale: Literal["paper", "mini"] = "paper",
    config: Annotated[str, Parameter(help="A shipped configuration, mini, or a config.json.")] = "llama3.2-1b",
    length: int = 8192,
    limit: int | None = None,
    side_by_side: int = 1,
    out: Annotated[Path | None, Parameter(help="JSON to write.")] = None,
) -> None:
    """Prepare what is not there yet, evaluate, and print what it took."""
    tokenizer = tokenizer_dir(str(tokenizer)) if str(tokenizer) in SHIPPED_TOKENIZERS else tokenizer
    model_dir, data = scratch / f"{Path(config).stem}-random", {"corpus": str(books), "mmlu": str(mmlu)}
    parameters = write_model(config, tokenizer, length, model_dir)
    if scale == "paper":
        words = "\n\n".join(file.read_text(encoding="utf-8") for file in sorted(books.glob("*.txt"))).split(" ")
        write_longbench(words, scratch / "longbench")
        squad, hotpotqa = write_questions(words, scratch / "questions")
        data |= {"longbench": str(scratch / "longbench"), "haystack": str(books)}
        data |= {"squad": str(squad), "hotpotqa": str(hotpotqa)}
    if bbh is not None:
        data["bbh"] = str(bbh)
    asked = {
        "model": str(model_dir), "data": data, "scale": scale, "limit": limit, "length": length, "slots": side_by_side
    }  # fmt: skip
    prepare(asked, scratch / "store")
    stores = [[scratch / f"store-{number}-{model}" for number in range(side_by_side)] for model in ("first", "next")]
    for store in (store for model in stores for store in model):
        shutil.rmtree(store, ignore_errors=True)
        shutil.copytree(scratch / "store", store)
    began = time.perf_counter()
    threads = max(1, (os.cpu_count() or 1) // side_by_side)  # as slots share the cores
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(side_by_side, spawn, torch.set_num_threads, (threads,)) as pool:
        first, then = zip(*pool.map(slot, [asked] * side_by_side, *stores), strict=True)
    seconds = {
        name: [round(sum(row["seconds"] for row in one.values()), 1) for one in processes]
        for name, processes in (("first", first), ("next", then))
    }
    content = {
        "device": torch.cuda.get_device_name(0) if torch.cuda.is_available() else platform.machine(),
        "cores": os.cpu_count(),
        "versions": {name: version(name) for name in ("torch", "transformers", "lm-eval", "datasets")}
        | {"python": platform.python_version()},
        "scale": scale, "config": config, "parameters": parameters, "length_tokens": length, "limit": limit,
        "side_by_side": side_by_side, "wall_seconds": round(time.perf_counter() - began, 1),
        "process_seconds": seconds, "benchmarks": first[0], "benchmarks_of_the_next_model": then[0],
    }  # fmt: skip
    print(json.dumps(content, indent=1))
    if out:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    cyclopts.run(main)
