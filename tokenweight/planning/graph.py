"""From recipes to the artifacts that they need, each with its identity. Loads no torch."""

import math
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from tokenweight.assets import smoke_base_dir, tokenizer_dir
from tokenweight.context.extend import Extend, check_extension
from tokenweight.corpus.files import list_files
from tokenweight.corpus.sources import file_parts
from tokenweight.corpus.stages import Chunk
from tokenweight.errors import UserError
from tokenweight.evaluation.model_spec import checked_config
from tokenweight.evaluation.units import BENCHMARKS, Evaluate, Prepare, Unit, benchmark_of
from tokenweight.pipeline.digests import is_there
from tokenweight.pipeline.stage import (
    Artifact,
    Graph,
    HubModel,
    LocalModel,
    LocalTokenizer,
    Stage,
    content_digest,
    replaced,
    value_at,
)
from tokenweight.pipeline.store import Store
from tokenweight.planning.costs import config_of
from tokenweight.recipes import schema
from tokenweight.recipes.recipe import Recipe
from tokenweight.recipes.schema import Base, Chunking, Corpus, Evaluation, Parity
from tokenweight.training.stages import (
    Initialize,
    Pretrain,
    Score,
    ScoreWithEntropy,
    Select,
    Train,
    Weigh,
    config_values,
)

# In the order in which they run: what is wrong with a configuration or with data shows before any long work.
STAGES: tuple[type[Stage], ...] = (
    Initialize, Prepare, Chunk, Pretrain, Score, ScoreWithEntropy, Select, Weigh, Extend, Train, Evaluate,
)  # fmt: skip

_MODEL_SUFFIXES = {".json", ".safetensors", ".bin", ".model", ".txt", ".jinja"}
_TOKENIZER_FILES = {
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "tokenizer.model", "vocab.json",
    "merges.txt", "added_tokens.json",
}  # fmt: skip


def union(graphs: Iterable[Graph]) -> Graph:
    joint = Graph()
    for graph in graphs:
        joint.artifacts += graph.artifacts
        joint.missing += graph.missing
        joint.trained.update(graph.trained)
        for name, leaves in graph.evaluations.items():
            joint.evaluations[name] = list(dict.fromkeys([*joint.evaluations.get(name, ()), *leaves]))
    joint.artifacts, joint.missing = _in_order(joint.artifacts), list(dict.fromkeys(joint.missing))
    return joint


def _in_order(artifacts: Iterable[Artifact]) -> list[Artifact]:
    return sorted(dict.fromkeys(artifacts), key=_place)


def _place(artifact: Artifact) -> int:
    """By its stage, or behind what it is made from: what `select` keeps may be scored."""
    return max(STAGES.index(type(artifact.stage)), *map(_place, artifact.parents), 0)


class Planner:
    def __init__(self, store: Store) -> None:
        self._digests = store.digests
        self._artifacts: dict[str, Artifact] = {}
        self._missing: dict[str, None] = {}
        # Each evaluation asks for the same ones again.
        self._base = cache(self._new_base)
        self._files = cache(self._new_files)
        self._corpus_files = cache(self._new_corpus_files)
        self._data = cache(self._new_data)

    def graph(self, recipes: Iterable[Recipe], benchmarks: Iterable[str]) -> Graph:
        """Artifacts that evaluating `recipes` on `benchmarks` needs; a benchmark's units follow the recipe's context."""
        graph, chosen = Graph(), tuple(benchmarks)
        for recipe in map(_canonical, recipes):
            checkpoint = self._checkpoint(recipe)
            if recipe.training:
                graph.trained[recipe.name] = checkpoint
            graph.evaluations[recipe.name] = [
                self._evaluate(unit, recipe, checkpoint)
                for benchmark in chosen
                for unit in BENCHMARKS[benchmark].units(recipe.evaluation, recipe.context_tokens)
            ]
        graph.artifacts, graph.missing = _in_order(self._artifacts.values()), list(self._missing)
        self._digests.save()
        return graph

    def weights(
        self,
        weigh: Weigh,
        corpus: Corpus,
        base: Base,
        scorer: Base | None,
        chunking: Chunking,
        precision: schema.Precision,
    ) -> Graph:
        """The data set `weigh` of a corpus, read by `base` in whole sequences and by `scorer` on windows."""
        (model, tokenizer), long_tokens = self._base(base), chunking.long_tokens
        chunks = self._chunks(corpus, chunking, tokenizer, weigh.short_tokens)
        windows = {
            "long": (model, long_tokens, long_tokens - 1),
            "short": (self._base(scorer)[0] if scorer else model, weigh.short_tokens, weigh.stride_tokens),
        }
        scores = self._scores(windows, chunks, tokenizer, precision, "long_entropy" in weigh.weighting.inputs)
        leaf = self._made(weigh, {"chunks": chunks, **scores}, _own_function(weigh.weighting))
        self._digests.save()
        return Graph(_in_order(self._artifacts.values()), {leaf.identity.name: [leaf]}, missing=list(self._missing))

    def model(self, base: Base) -> Artifact:
        """A base by its contents, or as it is on the hub."""
        return self._base(base)[0]

    def _made(self, stage: Stage, inputs: Mapping[str, Artifact], files: Mapping[str, str] | None = None) -> Artifact:
        """The artifact of a stage, the same one each time it is asked for.

        `files`: by the dotted field that names them, the digest that takes the place of their path; the artifact keeps
        the path beside it.
        """
        files = files or {}
        sources = {name: value_at(stage, name) for name in files}
        artifact = Artifact(replaced(stage, files), dict(inputs), sources)
        return self._artifacts.setdefault(artifact.fingerprint, artifact)

    # --- models ---

    def _checkpoint(self, recipe: Recipe) -> Artifact:
        base, tokenizer = self._base(recipe.base)
        config, reads = config_of(base), recipe.base.context_tokens
        if recipe.extension:
            check_extension(config, recipe.extension)
        if recipe.training and (own := getattr(config, "max_position_embeddings", reads)) < reads:
            raise UserError(f"base.context_tokens: {reads}, but this base reads {own}; set it to that")
        model = self._made(Extend(extension=recipe.extension), {"model": base}) if recipe.extension else base
        training, scorer = recipe.training, recipe.scorer
        if not (training and recipe.corpus and recipe.chunking):  # a recipe that trains has both
            return model
        chunks = self._read_by(recipe, recipe.corpus, recipe.chunking, tokenizer)
        inputs = {"model": model, "chunks": chunks}
        if scorer and scorer.kind == "frozen":
            stage = Score(
                short_tokens=scorer.short_tokens,
                stride_tokens=scorer.stride_tokens,
                sequences=training.steps * training.sequences_per_step,
                precision=training.precision,
                parity=recipe.parity,
            )
            short_model = self._base(scorer.model)[0] if scorer.model else base
            inputs["scores"] = self._made(stage, {"model": short_model, "chunks": chunks, "tokenizer": tokenizer})
        train = Train(
            training=training,
            weighting=recipe.weighting,
            scorer=scorer.model_copy(update={"model": None}) if scorer else None,  # its model is an input
            seed=recipe.seed,
            parity=recipe.parity,
        )
        return self._made(train, inputs, _own_function(recipe.weighting))

    def _new_base(self, base: Base) -> tuple[Artifact, Artifact]:
        match base:
            case schema.HubBase():
                model = Artifact(HubModel(repo_id=base.repo_id, revision=base.revision))
                return model, model
            case schema.ShippedBase():
                return self._directory(smoke_base_dir())
            case schema.LocalBase():
                checked_config(Path(base.path), f"base {base.path}")
                return self._directory(Path(base.path))
            case schema.PretrainBase():
                return self._pretrained(base)
            case schema.RandomBase():
                _, tokenizer = self._directory(tokenizer_dir(base.tokenizer))
                stage = Initialize(config=config_values(base), seed=base.seed)
                return self._made(stage, {"tokenizer": tokenizer}), tokenizer

    def _directory(self, path: Path) -> tuple[Artifact, Artifact]:
        files = sorted(file for file in path.glob("*") if file.is_file() and file.suffix in _MODEL_SUFFIXES)
        if not files:
            what = "holds no model files" if path.is_dir() else "no such directory"
            raise UserError(f"base {path}: {what}; give a checkpoint directory of transformers")
        digests = self._digests.digest_all(files)
        of_tokenizer = {name: value for name, value in digests.items() if name in _TOKENIZER_FILES}
        sources = {"sha256": str(path)}
        return (
            Artifact(LocalModel(sha256=content_digest(digests)), sources=sources),
            Artifact(LocalTokenizer(sha256=content_digest(of_tokenizer)), sources=sources),
        )

    def _pretrained(self, base: schema.PretrainBase) -> tuple[Artifact, Artifact]:
        (_, tokenizer), training = self._directory(tokenizer_dir(base.tokenizer)), base.training
        # Of a mixture all that its shares allow, read again where the steps read more.
        reads = None if isinstance(base.corpus, schema.MixtureCorpus) else training.steps * training.sequences_per_step
        chunking = Chunking(long_tokens=base.context_tokens, sequences=reads, seed=base.seed)
        chunks = self._chunks(base.corpus, chunking, tokenizer, base.context_tokens)
        stage = Pretrain(
            architecture=base.architecture, context_tokens=base.context_tokens, training=training, seed=base.seed
        )
        return self._made(stage, {"tokenizer": tokenizer, "chunks": chunks}), tokenizer

    # --- data ---

    def _chunks(
        self, corpus: Corpus, chunking: Chunking, tokenizer: Artifact, short_tokens: int, parity: Parity = "paper"
    ) -> Artifact:
        stage = Chunk(
            corpus=corpus,
            chunking=chunking,
            short_tokens=short_tokens if isinstance(corpus, schema.NovelCorpus) else None,  # of token kinds alone
            parity=parity if chunking.mixture == "per_document" else "paper",  # the authors' code has no mixtures
        )
        return self._made(stage, {"tokenizer": tokenizer}, self._corpus_files("corpus", corpus))

    def _read_by(self, recipe: Recipe, corpus: Corpus, chunking: Chunking, tokenizer: Artifact) -> Artifact:
        """The sequences of a recipe, or what its filter keeps of more."""
        chosen, training, context_tokens = recipe.filter, recipe.training, recipe.base.context_tokens
        if chosen is None or training is None:
            return self._chunks(corpus, chunking, tokenizer, context_tokens, recipe.parity)
        candidates = chunking.sequences and math.ceil(chunking.sequences / chosen.share)
        more = chunking.model_copy(update={"sequences": candidates})
        chunks = self._chunks(corpus, more, tokenizer, context_tokens, recipe.parity)
        model, _ = self._base(chosen.model or recipe.base)
        windows = {
            role: (model, tokens, max(1, 3 * tokens // 4))  # the paper's share of overlap (Section 4, Datasets)
            for role, tokens in (("long", chosen.long_tokens), ("short", chosen.short_tokens))
        }
        scores = self._scores(windows, chunks, tokenizer, training.precision)
        return self._made(Select(share=chosen.share), {"chunks": chunks, **scores})

    def _scores(
        self,
        windows: Mapping[str, tuple[Artifact, int, int]],
        chunks: Artifact,
        tokenizer: Artifact,
        precision: schema.Precision,
        has_entropy: bool = False,
    ) -> dict[str, Artifact]:
        """The NLL of all sequences by role: of each a model, its windows' tokens, and their stride; of "long" entropies, too."""
        kinds = {"long": ScoreWithEntropy} if has_entropy else {}
        return {
            role: self._made(
                kinds.get(role, Score)(short_tokens=tokens, stride_tokens=stride, sequences=None, precision=precision),
                {"model": model, "chunks": chunks, "tokenizer": tokenizer},
            )
            for role, (model, tokens, stride) in windows.items()
        }

    def _new_corpus_files(self, where: str, corpus: Corpus) -> dict[str, str]:
        """The digests of a corpus's files, by the dotted field below `where` that names them."""
        found = {}
        for dotted, part in file_parts(corpus).items():
            if Path(part.path).exists():
                found[where + dotted] = self._files(tuple(list_files(part)), Path(part.path))
            else:
                self._missing[f"corpus {part.path}: no such directory; give one with --corpus"] = None
                found[where + dotted] = f"missing:{part.path}"
        return found

    def _new_files(self, paths: tuple[Path, ...], root: Path | None = None) -> str:
        """What a stage's field holds in place of a path: the digest of the files that are read there."""
        return f"sha256:{content_digest(self._digests.digest_all(paths, root=root))}"

    # --- evaluation ---

    def _evaluate(self, unit: Unit, recipe: Recipe, checkpoint: Artifact) -> Artifact:
        evaluation, context_tokens = recipe.evaluation, recipe.context_tokens
        base, tokenizer = self._base(recipe.base)
        inputs, files = {"checkpoint": checkpoint}, dict[str, str]()
        if benchmark_of(unit).prompted:
            prepare = Prepare.of(unit, evaluation, context_tokens)
            inputs["prepared"] = self._made(prepare, {"tokenizer": tokenizer}, self._data(unit, evaluation))
        elif benchmark_of(unit).reads_sequences:
            inputs |= self._planted(recipe, base, tokenizer)
        else:
            files = self._data(unit, evaluation)
        settings = benchmark_of(unit).settings(evaluation)
        if getattr(settings, "scorer", None) == "frozen":  # reads the short windows: by default the base, un-extended
            inputs["scorer"] = self._base(getattr(settings, "scorer_model", None) or recipe.base)[0]
        return self._made(Evaluate.of(unit, evaluation, context_tokens, recipe.endpoint), inputs, files)

    def _planted(self, recipe: Recipe, base: Artifact, tokenizer: Artifact) -> dict[str, Artifact]:
        """The judge's sequences, as long as the recipe's context, and the NLL that the un-extended base gives them."""
        planted = recipe.evaluation.planted
        chunking = Chunking(long_tokens=recipe.context_tokens, sequences=planted.sequences)
        chunks = self._chunks(planted.corpus, chunking, tokenizer, planted.short_tokens)
        stage = Score(**planted.model_dump(exclude={"corpus"}))
        scores = self._made(stage, {"model": base, "chunks": chunks, "tokenizer": tokenizer})
        return {"chunks": chunks, "scores": scores}

    def _new_data(self, unit: Unit, evaluation: Evaluation) -> dict[str, str]:
        """The digests of the raw files that a unit reads, by the dotted field of the stage that names them."""
        if corpus := benchmark_of(unit).corpus(evaluation):
            return self._corpus_files("evaluation.perplexity.corpus", corpus)
        try:
            by_field = benchmark_of(unit).raw_files(unit, evaluation)
        except UserError as error:
            self._missing[str(error)] = None
            return {}
        absent = [file for files in by_field.values() for file in files if not is_there(file)]
        for file in absent:
            self._missing[f"{unit.benchmark} {file}: no such file; give your own (see --help)"] = None
        return {
            f"evaluation.{field}": "missing" if absent else self._files(tuple(files))
            for field, files in by_field.items()
        }


def _own_function(weighting: schema.Weighting) -> dict[str, str]:
    """A score function of the user's is its name and its file's contents, wherever that lies."""
    _, in_file, digest = weighting.score.rpartition("@")
    return {"weighting.score": f"{weighting.label}@{digest}"} if in_file else {}


def _canonical(recipe: Recipe) -> Recipe:
    """The recipe by what it does: lambda = 1 and kappa = 1 are uniform weights (Eq. 8); not all weights need a scorer."""
    weighting = recipe.weighting
    if weighting.lambda_ == 1 or weighting.kappa == 1 or weighting.postprocessing == "uniform":
        return recipe.model_copy(update={"weighting": schema.Weighting(), "scorer": None})
    return recipe if weighting.needs_short_nll else recipe.model_copy(update={"scorer": None})
