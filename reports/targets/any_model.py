"""A row without a recipe: any model, as it is, under the evaluation of a scale."""

from __future__ import annotations

import json
from pathlib import Path

from tokenweight.assets import SHIPPED_CONFIGS, shipped_config
from tokenweight.errors import UserError
from tokenweight.recipes import Inputs, ResolvedRecipe, load_as, scaled
from tokenweight.recipes.inputs import apply, longest_input
from tokenweight.recipes.recipe import Settings, cite, replace
from tokenweight.recipes.schema import HubBase, LocalBase, Scale
from tokenweight.reports.targets.schema import ExperimentSpec

_AS_IT_IS = "table-3/no-train-8k"  # the recipe that does nothing but evaluate its base
LENGTHS = {"ruler": "evaluation.ruler.lengths_tokens", "perplexity": "evaluation.perplexity.lengths_tokens"}
_SAMPLES = {
    **dict.fromkeys(("ruler", "longbench", "mmlu", "bbh"), "samples"),
    "perplexity": "documents",
    "pmi": "documents",
}


def evaluation_recipe(
    spec: ExperimentSpec,
    label: str,
    scale: Scale,
    inputs: Inputs,
    context_tokens: int | None = None,
    base: LocalBase | HubBase | None = None,
) -> ResolvedRecipe:
    """The recipe `evaluate/<label>`, that evaluates the inputs' base on the experiment's benchmarks and does nothing else.

    `context_tokens` takes the place of what its config.json says, `base` that of the model of that name.

    Lengths are the scale's, as far as the model's context holds them, or the experiment's. The context is the model's,
    but no longer than the longest length: LongBench is cut to it, as the paper cuts it to its 32k. The experiment's limit is
    the most samples of a task, subject or length, and the most documents of perplexity, of all benchmarks or by benchmark.

    Raises:
        UserError: the context is too short for a length, for all of them, or for a far context.
    """
    settings, benchmarks = scaled(_AS_IT_IS, scale), spec.measured_on
    if base:
        settings = replace(settings, cite("the model", {"base": base.model_dump()}))
        context = base.context_tokens
    else:
        model = Inputs(base=inputs.base, tokenizer=inputs.tokenizer, corpus=inputs.corpus)
        settings, _ = apply(model, settings, scale)
        context = context_tokens or _context_tokens(inputs.base or "", settings)
    usual: dict[str, tuple[int, ...]] = {name: tuple(settings[key].value) for name, key in LENGTHS.items()}
    read = min(context, max(*spec.lengths, *usual["ruler"], *usual["perplexity"]))
    changes: Settings = {}
    if settings["base.kind"].value != "pretrain":  # of which it is what it was trained on
        changes |= cite("the model", {"base.context_tokens": read})
    for benchmark, key in LENGTHS.items():
        lengths = spec.lengths or tuple(n for n in usual[benchmark] if n <= context)
        if benchmark in benchmarks and not lengths:
            raise UserError(
                f"--model {label}: reads {context} tokens, fewer than {benchmark}'s {', '.join(map(str, usual[benchmark]))}; "
                f"give lengths with --lengths, or choose --benchmarks without {benchmark}"
            )
        if benchmark in benchmarks and lengths[-1] > context:
            raise UserError(
                f"--lengths {lengths[-1]}: {label} reads {context} tokens; give lengths up to that "
                "(or --context, where config.json is wrong)"
            )
        changes |= cite("the model's context, or given by you", {key: lengths})
    for benchmark, field in _SAMPLES.items():
        most = spec.limit.get(benchmark) if isinstance(spec.limit, dict) else spec.limit
        if most is not None:
            key = f"evaluation.{benchmark}.{field}"
            own = settings[key].value if key in settings else None
            changes |= cite("--limit", {key: most if own is None else min(most, own)})
    if spec.backend != "hf":
        changes |= cite("--backend", {"evaluation.backend": spec.backend})
    inputs = inputs.model_copy(update={"base": None, "tokenizer": None})
    loaded = load_as(f"evaluate/{label}", replace(settings, changes), scale, inputs)
    if unknown := sorted(set(inputs.assignments()) - loaded.known):
        raise UserError(f"--set {unknown[0]}: no such setting of an evaluation; they begin with evaluation.")
    evaluation = loaded.recipe.evaluation
    if evaluation.backend != spec.backend:
        raise UserError(f"--set evaluation.backend: give --backend {evaluation.backend} here")
    if "pmi" in benchmarks and read <= evaluation.pmi.short_tokens:
        short = read // 4
        raise UserError(
            f"--model {label}: is read with {read} tokens, which leaves pmi no far context beside a short one of "
            f"{evaluation.pmi.short_tokens}; give less with --set evaluation.pmi.short_tokens={short} "
            f"--set evaluation.pmi.stride_tokens={max(1, short * 3 // 4)}, or choose --benchmarks without pmi"
        )
    return loaded


def _context_tokens(name: str, settings: Settings) -> int:
    """The longest input of a base, by its config.json; of one that the pipeline pre-trains, what it is trained on."""
    kind: str = settings["base.kind"].value
    if kind in ("pretrain", "shipped"):
        return int(settings["base.context_tokens"].value)
    if kind == "hub":
        raise UserError(f"base {name}: give the longest input in tokens, `context`, with a model of the hub")
    path = Path(settings["base.path"].value) / "config.json" if kind == "local" else Path(settings["base.config"].value)
    path = shipped_config(str(path)) if str(path) in SHIPPED_CONFIGS else path
    if tokens := longest_input(json.loads(path.read_text())):
        return tokens
    raise UserError(f"base {name}: config.json does not say how long its input may be; give `context`")
