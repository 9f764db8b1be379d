"""The numbers behind Table 1 for one text: long NLL, short NLL and weight of every token (Section 3).

What is written of them: one page, and a LaTeX table in the form of Table 1.
"""

import hashlib
import json
import re
import unicodedata
from bisect import bisect_left
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tokenweight.context.checkpoint_files import checkpoint_sha256
from tokenweight.context.extend import load_config
from tokenweight.corpus.token_texts import Tokens, first_tokens_with_text, highest_span, text_of
from tokenweight.errors import StageError, UserError
from tokenweight.inspection.request import Options, chosen_span
from tokenweight.latex import environment, printed
from tokenweight.pipeline.store import package_versions
from tokenweight.training.models import bos_token_id, load_model, load_tokenizer, resolve_device
from tokenweight.webpage import page_environment, plain_environment, script_json
from tokenweight.weighting.scores import ScoreError
from tokenweight.weighting.step import weighted_step
from tokenweight.weighting.windows import WindowPlan, plan_windows, score_windows

FloatArray = NDArray[np.float32]
TOKENS_PER_BLOCK = 13  # columns of Table 1
# Levels and colours of weights and NLLs, the same in the page and in the LaTeX table. Above 1 is a bluish green and below
# 1 a pale vermilion: two hues that readers with any colour vision deficiency tell apart. In grey, darker is farther from
# 1, and what is above 1 is underlined too, thicker with the weight. A level is how many of the bounds (NLLs: of nats) a
# value exceeds.
PALETTE: dict[str, Any] = json.loads((Path(__file__).parent / "palette.json").read_text(encoding="utf-8"))
WEIGHT_BOUNDS: list[float] = PALETTE["bounds"]["weight"]

_NAMED = ("tokenweight", "torch", "transformers")  # the first is unknown where the package is not installed
_MARKS = {"\n": r"$\hookleftarrow$", "\t": r"$\rightarrow$", "'": r"\textquotesingle{}", "’": "’"}
_LIGATURES = re.compile(r"(?<=-)(?=-)|(?<=,)(?=,)")  # -- would print as a dash, ,, as a quotation mark
_REST_OF_A_CHARACTER = r"$\triangleleft$"


def inspect(checkpoint: Path, text: Path, options: Options) -> tuple[dict[str, Any], range]:
    """Score the tokens of a text as a training step does: the content of inspection.json, and the tokens of the table.

    Models are named by directory name and content digest, never by path. UserError for what is wrong with the input.
    """
    # 1. All that can be checked before weights are loaded.
    scorer, weighting = options.scorer, options.weighting
    if not (words := text_of(text, "TEXT")):
        raise UserError(f"TEXT {text}: the file is empty; give one with text")
    config = load_config(checkpoint)
    scorer_config = load_config(scorer) if scorer else config
    tokenizer = load_tokenizer(checkpoint)
    if scorer and load_tokenizer(scorer).get_vocab() != tokenizer.get_vocab():
        raise UserError(f"--scorer {scorer}: has another vocabulary than CHECKPOINT; use one with the same")
    tokens = _tokens(text, words, tokenizer, options.long_tokens, config.max_position_embeddings)
    for name, model_config in (("CHECKPOINT", config), ("--scorer", scorer_config)):
        if max(tokens.ids) >= model_config.vocab_size:
            raise UserError(
                f"{name}: the model knows {model_config.vocab_size} tokens, its tokenizer gives token "
                f"{max(tokens.ids)}; use its own tokenizer"
            )
    if options.device == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda: torch sees no GPU; run where one is, or leave --device out")
    device = resolve_device(options.device)
    precision = torch.bfloat16 if device.type == "cuda" and config.dtype is torch.bfloat16 else torch.float32
    span = chosen_span(tokens, options)
    plan = window_plan(options, len(tokens.ids), scorer_config.max_position_embeddings if scorer else len(tokens.ids))
    # 2. Short context: the scorer's, or the model's own.
    token_ids = torch.tensor([tokens.ids], device=device)
    model = load_model(scorer or checkpoint, precision).to(device).eval()
    own_first_window = not scorer or weighting.own_first_window
    bos = bos_token_id(tokenizer, scorer_config)
    short_nll = score_windows(model, token_ids, plan, bos_token_id=bos, first_window=not own_first_window)
    # 3. Long context, and weights.
    if scorer:
        del model
        model = load_model(checkpoint, precision).to(device).eval()
    try:
        with torch.no_grad():
            step = weighted_step(
                model,
                token_ids,
                weighting,
                sequence_ids=[0],
                seed=options.seed,
                short_nll=short_nll,
                own_first_window=plan if own_first_window else None,
            )
    except ScoreError as error:
        raise StageError(str(error)) from None
    except FloatingPointError as error:
        raise StageError(f"{error} for this text; the checkpoint may be damaged, copy it again") from None
    if own_first_window:
        short_nll = plan.with_own_context(short_nll, step.nll)
    # 4. What is reported.
    read, weights = "".join(tokens.texts), step.weights[0].cpu().numpy()
    content = {
        "checkpoint": _model(checkpoint),
        "scorer": {"kind": "frozen", **_model(scorer)} if scorer else {"kind": "unfrozen"},
        "text": {
            "name": text.name,
            "sha256": hashlib.sha256(read.encode()).hexdigest(),
            "characters": len(read),
            "whole_text": tokens.whole_text,
        },
        "settings": {
            "long_tokens": plan.long_tokens,
            "short_tokens": plan.short_tokens,
            "stride_tokens": plan.stride_tokens,
            "windows": len(plan.starts),
            "weighting": weighting.model_dump(mode="json", by_alias=True) | {"score": weighting.label},
            "seed": options.seed,
            "precision": str(precision).removeprefix("torch."),  # of both passes; their NLL is in fp32 either way
            "device": device.type,
        },
        "versions": package_versions(),
        **_numbers(tokens, plan, step.nll[0].cpu().numpy(), short_nll[0].cpu().numpy(), weights),
    }
    return content, span or highest_span(weights)


def _numbers(
    tokens: Tokens, plan: WindowPlan, long_nll: FloatArray, short_nll: FloatArray, weights: FloatArray
) -> dict[str, Any]:
    """The summary and the numbers of each token; arrays have shape [M], M = N - 1, column j is about token j + 1.

    `summary` holds counts, means over the M predictions (nats) and shares of them (0 to 1); its
    `first_window_predictions` have the same context in both passes: unfrozen, their difference is exactly 0. `tokens`
    holds lists of length N, null where a token has no prediction (the first). difference = long - short NLL
    (so PMI = -difference).
    """
    short_context_tokens = np.arange(1, plan.predictions + 1)  # before the token; the long pass had j + 1
    for start, (first, stop) in zip(plan.starts, plan.scored_ranges, strict=True):
        short_context_tokens[first:stop] -= start
    return {
        "summary": {
            "tokens": plan.long_tokens,
            "predictions": plan.predictions,
            "first_window_predictions": plan.scored_ranges[0][1],
            "mean_long_nll": _mean(long_nll),
            "mean_short_nll": _mean(short_nll),
            "mean_abs_pmi": _mean(np.abs(long_nll - short_nll)),
            "mean_weight": _mean(weights),
            "max_weight": float(weights.max()),
            "share_above_1": _mean(weights > 1),
            "share_zero": _mean(weights == 0),
        },
        "tokens": {
            "id": tokens.ids,
            "text": tokens.texts,
            "added": {str(index): name for index, name in tokens.added.items()},
            "long_nll": _shortest(long_nll),
            "short_nll": _shortest(short_nll),
            "difference": _shortest(long_nll - short_nll),
            "weight": _shortest(weights),
            "short_context_tokens": [None, *short_context_tokens.tolist()],
        },
    }


def _model(directory: Path) -> dict[str, str]:
    place = directory.resolve()
    name = f"{place.parent.name}/{place.name}" if place.name == "model" else place.name  # as stages leave theirs
    return {"name": name, "sha256": checkpoint_sha256(directory)}


def _mean(values: Any) -> float:
    return float(np.mean(values, dtype=np.float64))


def _shortest(values: FloatArray) -> list[float | None]:
    """Each float32 as the shortest decimal that reads back as it, behind nothing for the first token."""
    return [None, *(float(str(value)) for value in values)]


def _tokens(path: Path, text: str, tokenizer: Any, long_tokens: int | None, context_tokens: int) -> Tokens:
    wanted = long_tokens or context_tokens
    if wanted > context_tokens:
        raise UserError(f"--long-tokens {wanted}: exceeds the checkpoint's context ({context_tokens}); lower it")
    tokens = first_tokens_with_text(tokenizer, text, wanted)
    if long_tokens and len(tokens.ids) < long_tokens:
        raise UserError(f"--long-tokens {wanted}: {path} has {len(tokens.ids)} tokens; lower it or leave it out")
    if len(tokens.ids) < 2:
        raise UserError(f"TEXT {path}: has fewer than 2 tokens, which leaves nothing to predict; give a longer text")
    return tokens


def window_plan(options: Options, long_tokens: int, scorer_context_tokens: int) -> WindowPlan:
    short_tokens, stride_tokens = options.windows(long_tokens, scorer_context_tokens)
    if options.scorer and short_tokens > scorer_context_tokens:
        raise UserError(
            f"--short-tokens {short_tokens}: exceeds the scorer's context ({scorer_context_tokens}); lower it"
        )
    try:
        return plan_windows(long_tokens, short_tokens, stride_tokens)
    except ValueError as error:
        raise UserError(f"--short-tokens, --stride-tokens: {error}; change one of them") from None


# --- What is written ---


def weight_level(weight: float) -> int:
    """-6 to -1 below weight 1, 0 at 1, 1 to 6 above, in equal ratios on both sides."""
    if weight >= 1:
        return bisect_left(WEIGHT_BOUNDS, weight)
    return -(bisect_left(WEIGHT_BOUNDS, 1 / weight) if weight > 0 else len(WEIGHT_BOUNDS))


def in_words(content: dict[str, Any]) -> dict[str, str]:
    """The settings of an inspection's report for the console, the page and the table: scorer, windows, weighting."""
    scorer, settings, weighting = content["scorer"], content["settings"], content["settings"]["weighting"]
    count = settings["windows"]
    words = [weighting["score"], weighting["postprocessing"]]
    words += [f"{name} {weighting[name]:g}" for name in ("lambda", "kappa") if weighting[name] is not None]
    unfrozen, uniform = scorer["kind"] == "unfrozen", weighting["postprocessing"] == "uniform"
    return {
        "scorer": "the checkpoint itself (unfrozen)"
        if unfrozen
        else f"{scorer['name']} (frozen, {scorer['sha256'][:8]})",
        "windows": f"{count} window{'s' if count > 1 else ''} of {settings['short_tokens']:,} tokens, "
        f"one every {settings['stride_tokens']:,}",
        "weighting": "uniform" if uniform else ", ".join(words),
    }


def page(content: dict[str, Any]) -> str:
    """The page of an inspection's report: no network, no other file; its script reads one array per quantity."""
    versions = content["versions"]
    template = page_environment(Path(__file__).parent).get_template("page.html.jinja")
    return template.render(
        content=content,
        data=script_json(content["tokens"] | {"bounds": PALETTE["bounds"]}),
        palette=PALETTE,
        versions=", ".join(f"{name} {versions[name]}" for name in _NAMED if name in versions),
        **in_words(content),
    )


def summary(content: dict[str, Any], span: range, options: Options) -> str:
    """What the console shows of an inspection's report, with the `options` that were left to their defaults."""
    given = {"--short-tokens": options.short_tokens, "--stride-tokens": options.stride_tokens}
    template = plain_environment(Path(__file__).parent).get_template("summary.txt.jinja")
    defaults = [option for option, value in given.items() if value is None]
    return template.render(content=content, span=span, defaults=defaults, **in_words(content))


def table(content: dict[str, Any], span: range) -> str:
    """The tokens in `span` (of an inspection's report) in LaTeX: a document by itself, or to `\\input` in one."""
    tokens = content["tokens"]
    templates = environment(Path(__file__).parent)
    templates.filters |= {"tex": escape, "nats": nats, "box": _box}
    return templates.get_template("span.tex.jinja").render(
        blocks=[span[first : first + TOKENS_PER_BLOCK] for first in range(0, len(span), TOKENS_PER_BLOCK)],
        shown=[escape(tokens["added"].get(str(index), "")) or token(text) for index, text in enumerate(tokens["text"])],
        palette=PALETTE["light"],
        first=span.start,
        last=span.stop - 1,
        content=content,
        **in_words(content),
    )


def escape(text: str) -> str:
    """Text that LaTeX prints as it is, line breaks and tabs as marks; other characters as their code point."""
    characters = (
        _MARKS.get(character) or printed(character) or rf"{{\scriptsize U+{ord(character):04X}}}"
        for character in unicodedata.normalize("NFC", text)
    )
    return _LIGATURES.sub("{}", "".join(characters))


def token(text: str) -> str:
    """A token for a cell: without the space that begins it, as in Table 1, unless there is nothing else."""
    if not text:
        return _REST_OF_A_CHARACTER
    return escape(text.removeprefix(" ")) or r"\textvisiblespace{}"


def nats(value: float | None) -> str:
    """The size of a number of nats with two decimals as Table 1 has them; what would round to nothing is "<0.01"."""
    if value is None:
        return "--"
    return r"\textless{}0.01" if 0 < abs(value) < 0.005 else f"{abs(value):.2f}"


def _box(text: str, weight: float | None) -> str:
    level = 0 if weight is None else weight_level(weight)
    return rf"\colorbox{{tw{'Above' if level > 0 else 'Below'}{abs(level)}}}{{{text}}}" if level else text
