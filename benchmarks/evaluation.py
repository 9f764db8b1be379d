"""Wall time of the whole evaluation of one model: RULER, LongBench, MMLU, BBH and perplexity, on all visible GPUs.

    python benchmarks/evaluation.py --books DIR --mmlu DIR --bbh DIR --tokenizer DIR --scratch DIR \
        [--config llama3.2-1b] [--length 8192] [--limit N] [--out FILE.json]

The model has the real architecture and random weights (the head not tied to the embeddings): it answers every prompt up
to the longest answer that a task allows, except MMLU, which asks for none; a trained model stops earlier. MMLU and BBH
are given; the books are RULER's haystack, the text for perplexity, and what LongBench's and the two question answering
tasks' contexts are cut from, with the official number of samples and mean length of each task. The scores mean nothing.
Killed and started again with the same --scratch it goes on, and the wall times of both runs are added.
"""

from __future__ import annotations

import json
import os
import platform
import random
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import cyclopts
from cyclopts import Parameter

# Samples and mean length in words: Table 1 and Appendix A of the LongBench paper (Bai et al. 2024).
LONGBENCH = {
    "narrativeqa": (200, 18_409), "qasper": (200, 3_619), "multifieldqa_en": (150, 4_559), "hotpotqa": (200, 9_151),
    "2wikimqa": (200, 4_887), "musique": (200, 11_214), "gov_report": (200, 8_734), "qmsum": (200, 10_614),
    "multi_news": (200, 2_113), "trec": (200, 5_177), "triviaqa": (200, 8_209), "samsum": (200, 6_258),
    "passage_count": (200, 11_141), "passage_retrieval_en": (200, 9_289), "lcc": (500, 1_235),
    "repobench-p": (500, 4_206),
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
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from tokenweight.assets import SHIPPED_CONFIGS, shipped_config
    from tokenweight.context.checkpoint_files import copy_tokenizer
    from tokenweight.training.models import load_tokenizer

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


def by_benchmark(store: Path) -> dict[str, dict[str, float]]:
    """Units, samples, and seconds in which some process worked on them, from the store's records."""
    found: dict[str, dict[str, float]] = {}
    for record in store.glob("evaluate/*/record.json"):
        unit = json.loads(record.read_text())
        summary = json.loads((record.parent / "summary.json").read_text())
        row = found.setdefault(
            str(unit["config"]["unit"]).partition("/")[0], {"units": 0, "samples": 0, "seconds": 0.0}
        )
        row["units"] += 1
        row["samples"] += summary["n"]
        row["seconds"] = round(row["seconds"] + summary["seconds"], 1)
    return found


def main(
    books: Annotated[Path, Parameter(help="Directory of .txt.")],
    mmlu: Annotated[Path, Parameter(help="Directory of MMLU, as --mmlu of evaluate takes it.")],
    bbh: Annotated[Path, Parameter(help="Directory of BBH, as --bbh of evaluate takes it.")],
    tokenizer: Annotated[Path, Parameter(help="Directory with tokenizer.json.")],
    scratch: Annotated[Path, Parameter(help="Model, data, store and table go here.")],
    config: Annotated[str, Parameter(help="A shipped configuration or a config.json.")] = "llama3.2-1b",
    length: int = 8192,
    limit: int | None = None,
    out: Annotated[Path | None, Parameter(help="JSON to write.")] = None,
) -> None:
    """Prepare what is not there yet, run `tokenweight evaluate`, write the wall time."""
    import torch

    model_dir, times = scratch / f"{Path(config).stem}-random", scratch / "times.json"
    if not times.exists():
        words = "\n\n".join(file.read_text(encoding="utf-8") for file in sorted(books.glob("*.txt"))).split(" ")
        write_longbench(words, scratch / "longbench")
        write_questions(words, scratch / "questions")
        parameters = write_model(config, tokenizer, length, model_dir)
        times.write_text(json.dumps({"parameters": parameters, "wall_seconds": []}))
    told = json.loads(times.read_text())
    command = [
        sys.executable, "-c", "from tokenweight.cli import main; main()", "evaluate", "--model", str(model_dir),
        "--lengths", str(length), "--context", str(length), "--store", str(scratch / "store"),
        "--out", str(scratch / "results"), "--longbench", str(scratch / "longbench"), "--mmlu", str(mmlu),
        "--bbh", str(bbh), "--corpus", str(books), "--haystack", str(books),
        "--squad", str(scratch / "questions" / "squad.json"), "--hotpotqa", str(scratch / "questions" / "hotpotqa.json"),
    ]  # fmt: skip
    if not torch.cuda.is_available():
        command += ["--device", "cpu"]
    began = time.monotonic()
    process = subprocess.Popen(command + (["--limit", str(limit)] if limit else []))
    while (code := process.poll()) is None:  # kept as it goes, so that a killed run's time counts
        time.sleep(1)
        lasting = [*told["wall_seconds"], round(time.monotonic() - began, 1)]
        times.write_text(json.dumps(told | {"wall_seconds": lasting}))
    if code:
        raise SystemExit(code)
    told = json.loads(times.read_text())
    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    content = {
        "devices": names or [platform.machine()], "cores": os.cpu_count(),
        "versions": {name: version(name) for name in ("torch", "transformers", "lm-eval", "datasets")}
        | {"python": platform.python_version()},
        "config": config, "parameters": told["parameters"], "length_tokens": length, "limit": limit,
        "wall_seconds": round(sum(told["wall_seconds"]), 1), "runs_seconds": told["wall_seconds"],
        "benchmarks": by_benchmark(scratch / "store"),
    }  # fmt: skip
    print(json.dumps(content, indent=1))
    if out:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    cyclopts.run(main)
