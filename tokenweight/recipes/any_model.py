"""A recipe without method: any model, as it is, under the evaluation of the scale `paper` or `smoke`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from tokenweight.errors import UserError
from tokenweight.recipes import Loaded, paper, smoke
from tokenweight.recipes.cited import Settings, build, cite, replace
from tokenweight.recipes.inputs import Inputs, apply
from tokenweight.recipes.schema import Backend, HubBase, LocalBase

AnyModelScale = Literal["paper", "smoke"]
SAMPLES = (
    "evaluation.ruler.samples", "evaluation.longbench.samples", "evaluation.mmlu.samples", "evaluation.bbh.samples",
    "evaluation.perplexity.documents", "evaluation.pmi.documents",
)  # fmt: skip
LENGTHS = {"ruler": "evaluation.ruler.lengths_tokens", "perplexity": "evaluation.perplexity.lengths_tokens"}


def evaluation_recipe(
    label: str,
    base: LocalBase | HubBase,
    scale: AnyModelScale,
    inputs: Inputs,
    *,
    benchmarks: tuple[str, ...],
    lengths_tokens: tuple[int, ...] = (),
    limit: int | Mapping[str, int] | None = None,
    backend: Backend = "hf",
) -> Loaded:
    """The recipe `evaluate/<label>`, that evaluates `base` on `benchmarks` and does nothing else.

    Lengths are the scale's, as far as the model's context holds them, or `lengths_tokens`. The context is the model's,
    but no longer than the longest length: LongBench is cut to it, as the paper cuts it to its 32k. `limit` is the most
    samples of a task, subject or length, and the most documents of perplexity, of all benchmarks or by benchmark.

    Raises:
        UserError: the context is too short for a length, for all of them, or for a far context.
    """
    settings = replace(paper.EVALUATION, smoke.EVALUATION) if scale == "smoke" else dict(paper.EVALUATION)
    longest = max((*lengths_tokens, *(n for key in LENGTHS.values() for n in settings[key].value)))
    context_tokens = min(base.context_tokens, longest)
    changes: Settings = cite("the model", {"base": {**base.model_dump(), "context_tokens": context_tokens}})
    for benchmark, key in LENGTHS.items():
        lengths = lengths_tokens or tuple(n for n in settings[key].value if n <= base.context_tokens)
        if benchmark in benchmarks:
            _check_lengths(label, benchmark, lengths, settings[key].value, base.context_tokens)
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
    if "pmi" in benchmarks and context_tokens <= recipe.evaluation.pmi.short_tokens:
        short = context_tokens // 4
        raise UserError(
            f"--model {label}: is read with {context_tokens} tokens, which leaves pmi no far context beside a short one of "
            f"{recipe.evaluation.pmi.short_tokens}; give less with --set evaluation.pmi.short_tokens={short} "
            f"--set evaluation.pmi.stride_tokens={max(1, short * 3 // 4)}, or choose --benchmarks without pmi"
        )
    return Loaded(recipe, settings)


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
