"""A recipe without method: any model, as it is, under the evaluation of a scale."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenweight.assets import SHIPPED_CONFIGS, shipped_config
from tokenweight.errors import UserError
from tokenweight.recipes import Loaded, scaled
from tokenweight.recipes.cited import Settings, build, cite, replace
from tokenweight.recipes.inputs import Inputs, apply
from tokenweight.recipes.schema import Backend, HubBase, LocalBase, Scale

SAMPLES = (
    "evaluation.ruler.samples", "evaluation.longbench.samples", "evaluation.mmlu.samples", "evaluation.bbh.samples",
    "evaluation.perplexity.documents", "evaluation.pmi.documents",
)  # fmt: skip
CONTEXT_FIELDS = ("max_position_embeddings", "n_positions", "max_seq_len", "n_ctx", "seq_length")
_AS_IT_IS = "table-3/no-train-8k"  # the recipe that does nothing but evaluate its base
LENGTHS = {"ruler": "evaluation.ruler.lengths_tokens", "perplexity": "evaluation.perplexity.lengths_tokens"}


def evaluation_recipe(
    label: str,
    base: LocalBase | HubBase | str,
    scale: Scale,
    inputs: Inputs,
    *,
    context_tokens: int | None = None,
    benchmarks: tuple[str, ...],
    lengths_tokens: tuple[int, ...] = (),
    limit: int | Mapping[str, int] | None = None,
    backend: Backend = "hf",
) -> Loaded:
    """The recipe `evaluate/<label>`, that evaluates `base` on `benchmarks` and does nothing else.

    `base` may be what --base takes; `context_tokens` takes the place of what its config.json says.

    Lengths are the scale's, as far as the model's context holds them, or `lengths_tokens`. The context is the model's,
    but no longer than the longest length: LongBench is cut to it, as the paper cuts it to its 32k. `limit` is the most
    samples of a task, subject or length, and the most documents of perplexity, of all benchmarks or by benchmark.

    Raises:
        UserError: the context is too short for a length, for all of them, or for a far context.
    """
    settings = scaled(_AS_IT_IS, scale)
    if isinstance(base, str):
        settings, _ = apply(Inputs(base=base, tokenizer=inputs.tokenizer, corpus=inputs.corpus), settings, scale)
        context = context_tokens or _context_tokens(base, settings)
    else:
        settings = replace(settings, cite("the model", {"base": base.model_dump()}))
        context = base.context_tokens
    inputs = inputs.model_copy(update={"tokenizer": None})
    longest = max((*lengths_tokens, *(n for key in LENGTHS.values() for n in settings[key].value)))
    read = min(context, longest)
    changes: Settings = {}
    if settings["base.kind"].value != "pretrain":  # of which it is what it was trained on
        changes = cite("the model", {"base.context_tokens": read})
    for benchmark, key in LENGTHS.items():
        lengths = lengths_tokens or tuple(n for n in settings[key].value if n <= context)
        if benchmark in benchmarks:
            _check_lengths(label, benchmark, lengths, settings[key].value, context)
        changes |= cite("the model's context, or given by you", {key: lengths})
    if limit is not None:
        changes |= cite("--limit", {key: _least(most, settings.get(key)) for key, most in _limits(limit).items()})
    if backend != "hf":
        changes |= cite("--backend", {"evaluation.backend": backend})
    settings, known = apply(inputs, replace(settings, changes), scale)
    if unknown := sorted(set(inputs.assignments()) - known):
        raise UserError(f"--set {unknown[0]}: no such setting of an evaluation; they begin with evaluation.")
    recipe = build(f"evaluate/{label}", scale, settings)
    if recipe.evaluation.backend != backend:
        raise UserError(f"--set evaluation.backend: give --backend {recipe.evaluation.backend} here")
    if "pmi" in benchmarks and read <= recipe.evaluation.pmi.short_tokens:
        short = read // 4
        raise UserError(
            f"--model {label}: is read with {read} tokens, which leaves pmi no far context beside a short one of "
            f"{recipe.evaluation.pmi.short_tokens}; give less with --set evaluation.pmi.short_tokens={short} "
            f"--set evaluation.pmi.stride_tokens={max(1, short * 3 // 4)}, or choose --benchmarks without pmi"
        )
    return Loaded(recipe, settings, frozenset(known))


def _context_tokens(name: str, settings: Settings) -> int:
    """The longest input of a base, by its config.json; of one that the pipeline pre-trains, what it is trained on."""
    kind: str = settings["base.kind"].value
    if kind in ("pretrain", "shipped"):
        return int(settings["base.context_tokens"].value)
    if kind == "hub":
        raise UserError(f"base {name}: give the longest input in tokens, `context`, with a model of the hub")
    path = Path(settings["base.path"].value) / "config.json" if kind == "local" else Path(settings["base.config"].value)
    config: dict[str, Any] = json.loads(
        (shipped_config(str(path)) if str(path) in SHIPPED_CONFIGS else path).read_text()
    )
    for field in CONTEXT_FIELDS:
        if isinstance(config.get(field), int) and config[field] > 0:
            return int(config[field])
    raise UserError(f"base {name}: config.json does not say how long its input may be; give `context`")


def _limits(limit: int | Mapping[str, int]) -> dict[str, int]:
    """The most samples by the setting that says so."""
    if isinstance(limit, int):
        return dict.fromkeys(SAMPLES, limit)
    return {key: most for key in SAMPLES if (most := limit.get(key.split(".")[1])) is not None}


def _least(limit: int, cited: object) -> int:
    known = getattr(cited, "value", None)
    return min(limit, known) if isinstance(known, int) else limit


def _check_lengths(
    label: str, benchmark: str, lengths: tuple[int, ...], usual: tuple[int, ...], context_tokens: int
) -> None:
    if not lengths:
        raise UserError(
            f"--model {label}: reads {context_tokens} tokens, fewer than {benchmark}'s {', '.join(map(str, usual))}; "
            f"give lengths with --lengths, or choose --benchmarks without {benchmark}"
        )
    if lengths[-1] > context_tokens:
        raise UserError(
            f"--lengths {lengths[-1]}: {label} reads {context_tokens} tokens; give lengths up to that "
            "(or --context, where config.json is wrong)"
        )
