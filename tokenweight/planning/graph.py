"""From recipes to the artifacts that they need, each with its identity. Loads no torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tokenweight.context.extend import Extend
from tokenweight.corpus.assets import smoke_base_dir, tokenizer_dir
from tokenweight.corpus.sources import files_by_field
from tokenweight.corpus.stages import Chunk
from tokenweight.errors import UserError
from tokenweight.evaluation.phrase import text_problem
from tokenweight.evaluation.stages import Evaluate, Prepare
from tokenweight.evaluation.units import (
    Unit,
    benchmark_of,
    prompt_settings_of,
    protocol,
    settings_of,
    template_of,
    units,
)
from tokenweight.pipeline import Digests, Store
from tokenweight.pipeline.listing import is_there
from tokenweight.pipeline.stage import (
    Artifact,
    HubModel,
    LocalModel,
    LocalTokenizer,
    Model,
    Stage,
    content_digest,
    reference,
    replaced,
    with_ancestors,
)
from tokenweight.recipes import ResolvedRecipe
from tokenweight.recipes.recipe import Recipe
from tokenweight.recipes.schema import (
    Base,
    Chunking,
    Corpus,
    Evaluation,
    HubBase,
    LocalBase,
    MixtureCorpus,
    NovelCorpus,
    Parity,
    PretrainBase,
    RandomBase,
    Scorer,
    ShippedBase,
    Weighting,
)
from tokenweight.training.random_base import config_values
from tokenweight.training.stages import Initialize, Pretrain, Score, Train

# In the order in which they run: what is wrong with a configuration or with data shows before any long work.
STAGES: tuple[type[Stage], ...] = (Initialize, Prepare, Chunk, Pretrain, Score, Extend, Train, Evaluate)

_MODEL_SUFFIXES = {".json", ".safetensors", ".bin", ".model", ".txt", ".jinja"}
_TOKENIZER_FILES = {
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "tokenizer.model", "vocab.json",
    "merges.txt", "added_tokens.json",
}  # fmt: skip


@dataclass
class Graph:
    """All artifacts that some recipes need, each once, in the order in which they can be made."""

    artifacts: list[Artifact] = field(default_factory=list)
    checkpoints: dict[str, Artifact] = field(default_factory=dict)  # by recipe name
    evaluations: dict[str, list[Artifact]] = field(default_factory=dict)  # by recipe name
    trained: dict[str, Artifact] = field(default_factory=dict)  # by recipe name
    missing: list[str] = field(default_factory=list)  # inputs that are not there, by name
    _needed: dict[str, set[Artifact]] | None = field(default=None, repr=False, compare=False)  # by recipe name

    def wanted_by(self, artifact: Artifact) -> list[str]:
        """Names of the recipes that need an artifact, directly or through others."""
        if self._needed is None:
            self._needed = {name: with_ancestors(leaves) for name, leaves in self.evaluations.items()}
        return [name for name, needed in self._needed.items() if artifact in needed]

    def part(self, recipes: Iterable[str]) -> Graph:
        """What some of the recipes need, by name."""
        names = dict.fromkeys(recipes)
        evaluations = {name: self.evaluations[name] for name in names}
        needed = with_ancestors(leaf for leaves in evaluations.values() for leaf in leaves)
        return Graph(
            artifacts=[artifact for artifact in self.artifacts if artifact in needed],
            checkpoints={name: self.checkpoints[name] for name in names},
            evaluations=evaluations,
            trained={name: self.trained[name] for name in names if name in self.trained},
            missing=self.missing,
        )


def union(graphs: Iterable[Graph]) -> Graph:
    """All artifacts of some graphs, each once."""
    joint, artifacts = Graph(), dict[Artifact, None]()
    for graph in graphs:
        artifacts.update(dict.fromkeys(graph.artifacts))
        joint.checkpoints.update(graph.checkpoints)
        joint.trained.update(graph.trained)
        joint.missing.extend(note for note in graph.missing if note not in joint.missing)
        for name, leaves in graph.evaluations.items():
            joint.evaluations[name] = list(dict.fromkeys([*joint.evaluations.get(name, ()), *leaves]))
    joint.artifacts = _in_order(artifacts)
    return joint


class Planner:
    """Builds the graph of artifacts of recipes."""

    def __init__(self, store: Store) -> None:
        self._digests = Digests(store.root)
        self._artifacts: dict[str, Artifact] = {}
        self._bases: dict[str, tuple[Artifact, Artifact]] = {}  # by their JSON: each evaluation asks for its own
        self._corpora: dict[str, dict[str, str]] = {}
        self._references: dict[tuple[Path, ...], str] = {}
        self._missing: list[str] = []

    def graph(self, recipes: Iterable[ResolvedRecipe], benchmarks: Iterable[str]) -> Graph:
        """Artifacts that evaluating `recipes` on `benchmarks` needs; a benchmark's units follow the recipe's context."""
        graph = Graph(missing=self._missing)
        chosen = tuple(benchmarks)
        for loaded in recipes:
            recipe = canonical(loaded.recipe)
            checkpoint, trained = self._checkpoint(recipe)
            name = loaded.recipe.name
            graph.checkpoints[name] = checkpoint
            if trained:
                graph.trained[name] = trained
            graph.evaluations[name] = [
                self._evaluate(unit, recipe, checkpoint)
                for benchmark in chosen
                for unit in units(benchmark, recipe.evaluation, recipe.context_tokens)
            ]
        graph.artifacts = _in_order(self._artifacts.values())
        self._digests.save()
        return graph

    def _made(
        self, stage: Stage, inputs: Mapping[str, Artifact], sources: Mapping[str, str | None] | None = None
    ) -> Artifact:
        """The artifact of a stage, the same one each time it is asked for."""
        artifact = Artifact(stage, dict(inputs), dict(sources or {}))
        return self._artifacts.setdefault(artifact.fingerprint, artifact)

    # --- models ---

    def _checkpoint(self, recipe: Recipe) -> tuple[Artifact, Artifact | None]:
        base, tokenizer = self._base(recipe.base)
        model = self._made(Extend(extension=recipe.extension), {"model": base}) if recipe.extension else base
        if not recipe.training:
            return model, None
        trained = self._train(recipe, base, tokenizer, model)
        return trained, trained

    def _train(self, recipe: Recipe, base: Artifact, tokenizer: Artifact, model: Artifact) -> Artifact:
        if not (recipe.corpus and recipe.chunking and recipe.training):
            raise ValueError(f"recipe {recipe.name} has nothing to train on")
        scorer, training = recipe.scorer, recipe.training
        chunks = self._chunks(recipe.corpus, recipe.chunking, tokenizer, recipe.base.context_tokens, recipe.parity)
        inputs = {"model": model, "chunks": chunks}
        if scorer and scorer.kind == "frozen":
            short_model = self._base(scorer.model)[0] if scorer.model else base
            sequences = training.steps * training.sequences_per_step
            inputs["scores"] = self._scores(
                short_model, chunks, scorer, sequences, training.precision, tokenizer, recipe.parity
            )
        stage = Train(
            training=training,
            weighting=recipe.weighting,
            scorer=scorer.model_copy(update={"model": None}) if scorer else None,  # its model is an input
            seed=recipe.seed,
            parity=recipe.parity,
        )
        return self._made(stage, inputs)

    def _scores(
        self,
        model: Artifact,
        chunks: Artifact,
        scorer: Scorer,
        sequences: int,
        precision: Literal["fp32", "bf16"],
        tokenizer: Artifact,
        parity: Parity = "paper",
    ) -> Artifact:
        stage = Score(
            short_tokens=scorer.short_tokens,
            stride_tokens=scorer.stride_tokens,
            sequences=sequences,
            precision=precision,
            parity=parity,
        )
        return self._made(stage, {"model": model, "chunks": chunks, "tokenizer": tokenizer})

    def _base(self, base: Base) -> tuple[Artifact, Artifact]:
        """The base model and its tokenizer (whose fingerprint outlives training)."""
        key = base.model_dump_json()
        if key not in self._bases:
            self._bases[key] = self._new_base(base)
        return self._bases[key]

    def _new_base(self, base: Base) -> tuple[Artifact, Artifact]:
        match base:
            case HubBase():
                model = Artifact(HubModel(repo_id=base.repo_id, revision=base.revision))
                return model, model
            case ShippedBase():
                return self._directory(smoke_base_dir())
            case LocalBase():
                return self._directory(Path(base.path))
            case PretrainBase():
                return self._pretrained(base)
            case RandomBase():
                _, tokenizer = self._directory(tokenizer_dir(base.tokenizer))
                stage = Initialize(config=config_values(base), seed=base.seed)
                return self._made(stage, {"tokenizer": tokenizer}), tokenizer

    def _directory(self, path: Path) -> tuple[Artifact, Artifact]:
        if not path.is_dir():
            raise UserError(f"base {path}: no such directory; give a checkpoint directory of transformers")
        files = sorted(file for file in path.iterdir() if file.is_file() and file.suffix in _MODEL_SUFFIXES)
        if not files:
            raise UserError(f"base {path}: holds no model files; give a checkpoint directory of transformers")
        digests = self._digests.digest_all(files)
        of_tokenizer = {name: value for name, value in digests.items() if name in _TOKENIZER_FILES}
        sources = {"sha256": str(path)}
        return (
            Artifact(LocalModel(sha256=content_digest(digests)), sources=sources),
            Artifact(LocalTokenizer(sha256=content_digest(of_tokenizer)), sources=sources),
        )

    def _pretrained(self, base: PretrainBase) -> tuple[Artifact, Artifact]:
        _, tokenizer = self._directory(tokenizer_dir(base.tokenizer))
        # Of a mixture all that its shares allow, read again where the steps read more.
        reads = (
            None if isinstance(base.corpus, MixtureCorpus) else base.training.steps * base.training.sequences_per_step
        )
        chunking = Chunking(long_tokens=base.context_tokens, sequences=reads)
        chunks = self._chunks(base.corpus, chunking, tokenizer, base.context_tokens)
        stage = Pretrain(
            architecture=base.architecture, context_tokens=base.context_tokens, training=base.training, seed=base.seed
        )
        return self._made(stage, {"tokenizer": tokenizer, "chunks": chunks}), tokenizer

    # --- data ---

    def _chunks(
        self, corpus: Corpus, chunking: Chunking, tokenizer: Artifact, short_tokens: int, parity: Parity = "paper"
    ) -> Artifact:
        stage = Chunk(
            corpus=corpus,
            chunking=chunking,
            short_tokens=short_tokens if isinstance(corpus, NovelCorpus) else None,  # only token kinds depend on it
            parity=parity if chunking.mixture == "per_document" else "paper",  # the authors' code has no mixtures
        )
        return self._with_content(stage, {"tokenizer": tokenizer}, self._corpus_references("corpus", corpus))

    def _corpus_references(self, where: str, corpus: Corpus) -> dict[str, str]:
        """The digests of a corpus's files, by the dotted field below `where` that names them."""
        key = corpus.model_dump_json()
        if key not in self._corpora:
            absent = [field for field in _path_fields(corpus) if not Path(_at(corpus, field)).exists()]
            for field in absent:
                self._note_missing(f"corpus {_at(corpus, field)}: no such directory; give one with --corpus")
            found = {} if absent else files_by_field(corpus)
            self._corpora[key] = {field: f"missing:{_at(corpus, field)}" for field in absent} | {
                field: self._reference(tuple(paths), Path(_at(corpus, field))) for field, paths in found.items()
            }
        return {f"{where}{field}": value for field, value in self._corpora[key].items()}

    def _reference(self, paths: tuple[Path, ...], root: Path | None = None) -> str:
        if paths not in self._references:
            self._references[paths] = reference(self._digests.digest_all(paths, root=root))
        return self._references[paths]

    def _with_content(self, stage: Model, inputs: Mapping[str, Artifact], references: Mapping[str, str]) -> Artifact:
        """The artifact of a stage with digests in place of its paths, which the artifact keeps beside them."""
        sources = {field: _at(stage, f".{field}") for field in references}
        addressed = replaced(stage, references)
        assert isinstance(addressed, Stage)
        return self._made(addressed, inputs, sources)

    # --- evaluation ---

    def _evaluate(self, unit: Unit, recipe: Recipe, checkpoint: Artifact) -> Artifact:
        evaluation, context_tokens = recipe.evaluation, recipe.context_tokens
        inputs = {"checkpoint": checkpoint}
        references: dict[str, str] = {}
        if benchmark_of(unit).prompted:
            inputs["prepared"] = self._prepare(unit, evaluation, self._base(recipe.base)[1], context_tokens)
        elif unit.benchmark == "planted":
            inputs |= self._planted(recipe)
        else:
            references = self._data(unit, evaluation)
        if scorer := self._short_scorer(unit, recipe):
            inputs["scorer"] = scorer
        stage = Evaluate(
            unit=unit,
            evaluation=settings_of(unit, evaluation),
            context_tokens=context_tokens,
            protocol=protocol(unit, evaluation),
            scoring=benchmark_of(unit).scoring(unit),
        )
        return self._with_content(stage, inputs, references)

    def _short_scorer(self, unit: Unit, recipe: Recipe) -> Artifact | None:
        """The frozen model that reads the short windows, if the unit has one: by default the base, un-extended."""
        pmi, phrase = recipe.evaluation.pmi, recipe.evaluation.phrase
        if unit.benchmark == "pmi" and pmi.scorer == "frozen":
            return self._base(pmi.scorer_model or recipe.base)[0]
        return self._base(recipe.base)[0] if unit.benchmark == "phrase" and phrase.scorer == "frozen" else None

    def _planted(self, recipe: Recipe) -> dict[str, Artifact]:
        """The judge's sequences, as long as the recipe's context, and the NLL that the un-extended base gives them."""
        planted, (base, tokenizer) = recipe.evaluation.planted, self._base(recipe.base)
        chunking = Chunking(long_tokens=recipe.context_tokens, sequences=planted.sequences)
        chunks = self._chunks(planted.corpus, chunking, tokenizer, planted.short_tokens)
        scorer = Scorer(kind="frozen", short_tokens=planted.short_tokens, stride_tokens=planted.stride_tokens)
        scores = self._scores(base, chunks, scorer, planted.sequences, planted.precision, tokenizer)
        return {"chunks": chunks, "scores": scores}

    def _prepare(self, unit: Unit, evaluation: Evaluation, tokenizer: Artifact, context_tokens: int) -> Artifact:
        references = self._data(unit, evaluation)
        stage = Prepare(
            unit=unit,
            evaluation=prompt_settings_of(unit, evaluation),
            context_tokens=context_tokens if unit.benchmark == "longbench" else None,
            template=template_of(unit, evaluation),
        )
        return self._with_content(stage, {"tokenizer": tokenizer}, references)

    def _data(self, unit: Unit, evaluation: Evaluation) -> dict[str, str]:
        """The digests of the raw files that a unit reads, by the dotted field of the stage that names them."""
        if unit.benchmark == "phrase" and evaluation.phrase.file and (problem := text_problem(evaluation.phrase)):
            self._note_missing(problem)
            return {"evaluation.phrase.file": "missing"}
        if unit.benchmark in ("perplexity", "pmi", "phrase") and not (
            unit.benchmark == "phrase" and evaluation.phrase.file
        ):
            return self._corpus_references("evaluation.perplexity.corpus", evaluation.perplexity.corpus)
        try:
            by_field = benchmark_of(unit).raw_files(unit, evaluation)
        except UserError as error:
            self._note_missing(str(error))
            return {}
        absent = [file for files in by_field.values() for file in files if not is_there(file)]
        for file in absent:
            self._note_missing(f"{unit.benchmark} {file}: no such file; give your own (see --help)")
        return {
            f"evaluation.{field}": "missing" if absent else self._reference(tuple(files))
            for field, files in by_field.items()
        }

    def _note_missing(self, note: str) -> None:
        if note not in self._missing:
            self._missing.append(note)


def canonical(recipe: Recipe) -> Recipe:
    """The recipe by what it does: lambda = 1 and kappa = 1 are uniform weights and need no scorer (Eq. 8)."""
    weighting = recipe.weighting
    if weighting.lambda_ == 1 or weighting.kappa == 1:
        return recipe.model_copy(update={"weighting": Weighting(), "scorer": None})
    if weighting.postprocessing == "uniform":
        return recipe.model_copy(update={"weighting": Weighting()})
    return recipe


def _at(model: Any, dotted: str) -> Any:
    """The value at a dotted field, which begins with a dot."""
    for key in dotted.split(".")[1:]:
        model = model[int(key)] if isinstance(model, tuple) else getattr(model, key)
    return model


def _path_fields(corpus: Corpus, prefix: str = "") -> list[str]:
    if isinstance(corpus, MixtureCorpus):
        parts = enumerate(corpus.parts)
        return [field for n, part in parts for field in _path_fields(part.corpus, f"{prefix}.parts.{n}.corpus")]
    return [f"{prefix}.path"] if corpus.kind == "files" else []


def _in_order(artifacts: Iterable[Artifact]) -> list[Artifact]:
    return sorted(artifacts, key=lambda artifact: STAGES.index(type(artifact.stage)))
