"""From recipes to the artifacts that they need, each with its identity. Loads no torch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tokenweight.corpus.assets import smoke_base_dir, tokenizer_dir
from tokenweight.errors import UserError
from tokenweight.evaluation.phrase_text import text_problem
from tokenweight.evaluation.prepare import data_files, prompt_identity, protocol
from tokenweight.evaluation.units import Unit, units
from tokenweight.pipeline import Digests, Identity, Store, canonical_json
from tokenweight.pipeline.listing import is_there
from tokenweight.recipes import Loaded
from tokenweight.recipes.schema import (
    Architecture,
    Base,
    Chunking,
    Corpus,
    EchoCorpus,
    Evaluation,
    FilesCorpus,
    HubBase,
    HubCorpus,
    LocalBase,
    MixtureCorpus,
    NovelCorpus,
    Parity,
    Phrase,
    PretrainBase,
    RandomBase,
    Recipe,
    Scorer,
    ShippedBase,
    Weighting,
)
from tokenweight.stages import (
    STAGE_VERSIONS,
    Checkpoint,
    ChunkWork,
    EvaluateWork,
    ExtendWork,
    InitializeWork,
    Node,
    PrepareWork,
    PretrainWork,
    ScoreWork,
    StageName,
    TrainWork,
    Work,
)
from tokenweight.training.random_base import config_label, config_values

PROMPTED = ("ruler", "longbench")  # benchmarks whose prompts are made beforehand


@dataclass
class Graph:
    """All artifacts that some recipes need, each once, in the order in which they can be made."""

    nodes: list[Node] = field(default_factory=list)
    checkpoints: dict[str, Checkpoint] = field(default_factory=dict)  # by recipe name
    evaluations: dict[str, list[Node]] = field(default_factory=dict)  # by recipe name
    trained: dict[str, Node] = field(default_factory=dict)  # by recipe name
    missing: list[str] = field(default_factory=list)  # inputs that are not there, by name
    _needed: dict[str, set[Node]] | None = field(default=None, repr=False, compare=False)  # by recipe name

    def wanted_by(self, node: Node) -> list[str]:
        """Names of the recipes that need an artifact, directly or through others."""
        if self._needed is None:
            self._needed = {name: _with_inputs(leaves) for name, leaves in self.evaluations.items()}
        return [name for name, needed in self._needed.items() if node in needed]

    def part(self, recipes: Iterable[str]) -> Graph:
        """What some of the recipes need, by name."""
        names = dict.fromkeys(recipes)
        evaluations = {name: self.evaluations[name] for name in names}
        needed = _with_inputs(node for nodes in evaluations.values() for node in nodes)
        return Graph(
            nodes=[node for node in self.nodes if node in needed],
            checkpoints={name: self.checkpoints[name] for name in names},
            evaluations=evaluations,
            trained={name: self.trained[name] for name in names if name in self.trained},
            missing=self.missing,
        )


def union(graphs: Iterable[Graph]) -> Graph:
    """All artifacts of some graphs, each once."""
    whole, nodes = Graph(), dict[Node, None]()
    for graph in graphs:
        nodes.update(dict.fromkeys(graph.nodes))
        whole.checkpoints.update(graph.checkpoints)
        whole.trained.update(graph.trained)
        whole.missing.extend(note for note in graph.missing if note not in whole.missing)
        for name, leaves in graph.evaluations.items():
            whole.evaluations[name] = list(dict.fromkeys([*whole.evaluations.get(name, ()), *leaves]))
    whole.nodes = _in_order(nodes)
    return whole


class Planner:
    """Builds the graph of artifacts of recipes."""

    def __init__(self, store: Store) -> None:
        self._digests = Digests(store.root)
        self._nodes: dict[str, Node] = {}
        self._bases: dict[str, tuple[Checkpoint, Checkpoint]] = {}  # by their JSON: each evaluation asks for its own
        self._corpora: dict[Corpus, tuple[str, dict[str, Any]]] = {}
        self._missing: list[str] = []

    def graph(self, recipes: Iterable[Loaded], benchmarks: Iterable[str]) -> Graph:
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
            graph.evaluations[name] = self._evaluations(recipe, checkpoint, chosen)
        graph.nodes = _in_order(self._nodes.values())
        self._digests.save()
        return graph

    def _node(
        self, stage: StageName, name: str, config: dict[str, Any], work: Work, inputs: dict[str, Node | Checkpoint]
    ) -> Node:
        fingerprints = {
            key: value.fingerprint if isinstance(value, Checkpoint) else value.identity.fingerprint
            for key, value in inputs.items()
        }
        identity = Identity(stage, STAGE_VERSIONS[stage], name, config, fingerprints)
        parents = [value.node if isinstance(value, Checkpoint) else value for value in inputs.values()]
        node = Node(identity, work, tuple(parent for parent in parents if parent is not None))
        return self._nodes.setdefault(identity.fingerprint, node)

    # --- models ---

    def _checkpoint(self, recipe: Recipe) -> tuple[Checkpoint, Node | None]:
        base, tokenizer = self._base(recipe.base)
        model = base
        if recipe.extension:
            config = recipe.extension.model_dump(mode="json")
            name = f"{base.label}-{recipe.extension.method}-{recipe.extension.long_tokens}"
            node = self._node("extend", name, config, ExtendWork(base, recipe.extension), {"model": base})
            model = Checkpoint(node.identity.name, node.identity.fingerprint, node=node)
        if not recipe.training:
            return model, None
        trained = self._train(recipe, base, tokenizer, model)
        return Checkpoint(trained.identity.name, trained.identity.fingerprint, node=trained), trained

    def _train(self, recipe: Recipe, base: Checkpoint, tokenizer: Checkpoint, model: Checkpoint) -> Node:
        if not (recipe.corpus and recipe.chunking and recipe.training):
            raise ValueError(f"recipe {recipe.name} has nothing to train on")
        scorer, training = recipe.scorer, recipe.training
        short_tokens = recipe.base.context_tokens
        chunks = self._chunks(recipe.corpus, recipe.chunking, tokenizer, short_tokens, recipe.parity)
        inputs: dict[str, Node | Checkpoint] = {"model": model, "chunks": chunks}
        scores = None
        if scorer and scorer.kind == "frozen":
            short_model = self._base(scorer.model)[0] if scorer.model else base
            sequences = training.steps * training.sequences_per_step
            scores = self._scores(short_model, chunks, scorer, sequences, training.precision, tokenizer, recipe.parity)
            inputs["scores"] = scores
        config = {
            "training": training.model_dump(mode="json"),
            "weighting": recipe.weighting.model_dump(mode="json"),
            "scorer": _scorer_identity(scorer) if scorer else None,
            "seed": recipe.seed,
            **_divergent(recipe.parity),
        }
        name = f"{model.label}-{chunks.identity.name}-{weighting_label(recipe)}"
        name += "-as-authors" if recipe.parity == "authors" else ""
        name += f"-seed{recipe.seed}" if recipe.seed else ""
        work = TrainWork(model, chunks, scores, training, recipe.weighting, scorer, recipe.seed, recipe.parity)
        return self._node("train", name, config, work, inputs)

    def _scores(
        self,
        model: Checkpoint,
        chunks: Node,
        scorer: Scorer,
        sequences: int,
        precision: Literal["fp32", "bf16"],
        tokenizer: Checkpoint,
        parity: Parity = "paper",
    ) -> Node:
        windows = {"short_tokens": scorer.short_tokens, "stride_tokens": scorer.stride_tokens}
        return self._node(
            "score",
            f"{model.label}-on-{chunks.identity.name}",
            {**windows, "sequences": sequences, "precision": precision, **_divergent(parity)},
            ScoreWork(model, chunks, scorer, sequences, precision, tokenizer, parity),
            {"model": model, "chunks": chunks},
        )

    def _base(self, base: Base) -> tuple[Checkpoint, Checkpoint]:
        """The base model and its tokenizer (whose fingerprint outlives training)."""
        key = base.model_dump_json()
        if key not in self._bases:
            self._bases[key] = self._new_base(base)
        return self._bases[key]

    def _new_base(self, base: Base) -> tuple[Checkpoint, Checkpoint]:
        match base:
            case HubBase():
                label = base.repo_id.rpartition("/")[2]
                hub = (base.repo_id, base.revision)
                model = Checkpoint(label, _digest({"hub": list(hub)}), hub=hub)
                return model, model
            case ShippedBase():
                return self._directory("smoke-base", smoke_base_dir())
            case LocalBase():
                return self._directory("", Path(base.path))
            case PretrainBase():
                return self._pretrained(base)
            case RandomBase():
                return self._random(base)

    def _directory(self, label: str, path: Path) -> tuple[Checkpoint, Checkpoint]:
        if not path.is_dir():
            raise UserError(f"base {path}: no such directory; give a checkpoint directory of transformers")
        files = sorted(file for file in path.iterdir() if file.is_file() and file.suffix in _MODEL_SUFFIXES)
        if not files:
            raise UserError(f"base {path}: holds no model files; give a checkpoint directory of transformers")
        digests = self._digests.digest_all(files)
        fingerprint = _digest(digests)
        of_tokenizer = {name: value for name, value in digests.items() if name in _TOKENIZER_FILES}
        label = label or f"local-{fingerprint[:6]}"
        return (
            Checkpoint(label, fingerprint, path=path),
            Checkpoint(f"tokenizer-{_digest(of_tokenizer)[:6]}", _digest(of_tokenizer), path=path),
        )

    def _pretrained(self, base: PretrainBase) -> tuple[Checkpoint, Checkpoint]:
        _, tokenizer = self._directory("", tokenizer_dir(base.tokenizer))
        # Of a mixture all that its shares allow, read again where the steps read more.
        reads = (
            None if isinstance(base.corpus, MixtureCorpus) else base.training.steps * base.training.sequences_per_step
        )
        chunking = Chunking(long_tokens=base.context_tokens, sequences=reads)
        chunks = self._chunks(base.corpus, chunking, tokenizer, base.context_tokens)
        config = {
            "architecture": _architecture_identity(base.architecture),
            "context_tokens": base.context_tokens,
            "training": base.training.model_dump(mode="json"),
            "seed": base.seed,
        }
        node = self._node(
            "pretrain",
            f"{base.architecture.family}-{base.architecture.layers}x{base.architecture.hidden_size}-{chunks.identity.name}",
            config,
            PretrainWork(base, tokenizer, chunks),
            {"tokenizer": tokenizer, "chunks": chunks},
        )
        return Checkpoint("pretrained", node.identity.fingerprint, node=node), tokenizer

    def _random(self, base: RandomBase) -> tuple[Checkpoint, Checkpoint]:
        _, tokenizer = self._directory("", tokenizer_dir(base.tokenizer))
        config = {"config": config_values(base), "seed": base.seed}
        work, inputs = InitializeWork(base, tokenizer), {"tokenizer": tokenizer}
        node = self._node("initialize", config_label(base), config, work, {**inputs})
        return Checkpoint(config_label(base), node.identity.fingerprint, node=node), tokenizer

    # --- data ---

    def _chunks(
        self,
        corpus: Corpus,
        chunking: Chunking,
        tokenizer: Checkpoint,
        short_tokens: int,
        parity: Parity = "paper",
    ) -> Node:
        if chunking.mixture != "per_document":
            parity = "paper"  # the authors' code has no mixtures
        label, content = self._corpus(corpus)
        config = {
            "corpus": content,
            "chunking": chunking.model_dump(mode="json"),
            "short_tokens": short_tokens if isinstance(corpus, NovelCorpus) else None,  # only token kinds depend on it
            **_divergent(parity),
        }
        mixture = "-lcde" if chunking.mixture == "lcde" else ""
        name = f"{label}{mixture}-{chunking.long_tokens}"
        work = ChunkWork(corpus, chunking, tokenizer, short_tokens, parity)
        return self._node("chunk", name, config, work, {"tokenizer": tokenizer})

    def _corpus(self, corpus: Corpus) -> tuple[str, dict[str, Any]]:
        """A label and the identity of a corpus: contents, never paths."""
        if corpus not in self._corpora:
            self._corpora[corpus] = self._find_corpus(corpus)
        return self._corpora[corpus]

    def _find_corpus(self, corpus: Corpus) -> tuple[str, dict[str, Any]]:
        match corpus:
            case NovelCorpus() | EchoCorpus():
                return f"{corpus.kind}{corpus.seed}", corpus.model_dump(mode="json")
            case HubCorpus():
                return corpus.repo_id.rpartition("/")[2], corpus.model_dump(mode="json")
            case MixtureCorpus():
                parts = [(part, *self._corpus(part.corpus)) for part in corpus.parts]
                told = [{**part.model_dump(mode="json"), "corpus": content} for part, _, content in parts]
                label = "-".join(label for _, label, _ in parts)
                return f"mixture-{label}", {"kind": "mixture", "parts": told}
            case FilesCorpus():
                root = Path(corpus.path)
                if not root.exists():
                    self._note_missing(f"corpus {corpus.path}: no such directory; give one with --corpus")
                    return "files-missing", {"path": corpus.path}
                from tokenweight.corpus.sources import corpus_files

                files = self._digests.digest_all(corpus_files(corpus), root=root)
                content = {
                    **corpus.model_dump(mode="json", exclude={"path"}),
                    "files": len(files),
                    "sha256": _digest(files),
                }
                return f"files-{content['sha256'][:6]}", content

    # --- evaluation ---

    def _evaluations(self, recipe: Recipe, checkpoint: Checkpoint, benchmarks: tuple[str, ...]) -> list[Node]:
        return [
            self._evaluate(unit, recipe, checkpoint)
            for benchmark in benchmarks
            for unit in units(benchmark, recipe.evaluation, recipe.context_tokens)
        ]

    def _evaluate(self, unit: Unit, recipe: Recipe, checkpoint: Checkpoint) -> Node:
        evaluation, context_tokens = recipe.evaluation, recipe.context_tokens
        inputs: dict[str, Node | Checkpoint] = {"checkpoint": checkpoint}
        config: dict[str, Any] = {"unit": unit.id, "protocol": protocol(unit, evaluation)}
        prepared: tuple[Node, ...] = ()
        if unit.benchmark in PROMPTED:
            prepared = (self._prepare(unit, evaluation, self._base(recipe.base)[1], context_tokens),)
            inputs["prepared"] = prepared[0]
        elif unit.benchmark == "planted":
            prepared = self._planted(recipe)
            inputs |= {"chunks": prepared[0], "scores": prepared[1]}
        else:
            config["data"] = self._data(unit, evaluation)
        scorer = self._short_scorer(unit, recipe)
        if scorer:
            inputs["scorer"] = scorer
        if unit.benchmark != "perplexity":
            config["context_tokens"] = context_tokens
        name = f"{checkpoint.label}--{unit.id.replace('/', '-')}" + ("" if evaluation.backend == "hf" else "-vllm")
        work = EvaluateWork(unit, checkpoint, prepared, evaluation, context_tokens, scorer)
        return self._node("evaluate", name, config, work, inputs)

    def _short_scorer(self, unit: Unit, recipe: Recipe) -> Checkpoint | None:
        """The frozen model that reads the short windows, if the unit has one: by default the base, un-extended."""
        pmi, phrase = recipe.evaluation.pmi, recipe.evaluation.phrase
        if unit.benchmark == "pmi" and pmi.scorer == "frozen":
            return self._base(pmi.scorer_model or recipe.base)[0]
        return self._base(recipe.base)[0] if unit.benchmark == "phrase" and phrase.scorer == "frozen" else None

    def _planted(self, recipe: Recipe) -> tuple[Node, Node]:
        """The judge's sequences, as long as the recipe's context, and the NLL that the un-extended base gives them."""
        planted, (base, tokenizer) = recipe.evaluation.planted, self._base(recipe.base)
        chunking = Chunking(long_tokens=recipe.context_tokens, sequences=planted.sequences)
        chunks = self._chunks(planted.corpus, chunking, tokenizer, planted.short_tokens)
        scorer = Scorer(kind="frozen", short_tokens=planted.short_tokens, stride_tokens=planted.stride_tokens)
        return chunks, self._scores(base, chunks, scorer, planted.sequences, planted.precision, tokenizer)

    def _prepare(self, unit: Unit, evaluation: Evaluation, tokenizer: Checkpoint, context_tokens: int) -> Node:
        part = getattr(evaluation, unit.benchmark)
        settings = part.model_dump(mode="json", exclude=_NOT_IN_PROMPTS)
        config = {"unit": unit.id, "settings": settings, "data": self._data(unit, evaluation)}
        config |= prompt_identity(unit, evaluation)
        if unit.benchmark == "longbench":
            config["context_tokens"] = context_tokens
        name = unit.id.replace("/", "-") + (f"-{context_tokens}" if unit.benchmark == "longbench" else "")
        work = PrepareWork(unit, evaluation, tokenizer, context_tokens)
        return self._node("prepare", name, config, work, {"tokenizer": tokenizer})

    def _data(self, unit: Unit, evaluation: Evaluation) -> dict[str, Any]:
        if unit.benchmark == "phrase" and evaluation.phrase.file:
            return self._phrase_text(evaluation.phrase)
        if unit.benchmark in ("perplexity", "pmi", "phrase"):
            return self._corpus(evaluation.perplexity.corpus)[1]
        try:
            files = data_files(unit, evaluation)
        except UserError as error:
            self._note_missing(str(error))
            return {"missing": unit.id}
        absent = [file for file in files if not is_there(file)]
        for file in absent:
            self._note_missing(f"{unit.benchmark} {file}: no such file; give your own (see --help)")
        return {"missing": unit.id} if absent else self._digests.digest_all(files)

    def _phrase_text(self, settings: Phrase) -> dict[str, Any]:
        problem = text_problem(settings)
        if problem:
            self._note_missing(problem)
            return {"missing": "phrase"}
        return {"sha256": list(self._digests.digest_all([Path(settings.file or "")]).values())}

    def _note_missing(self, note: str) -> None:
        if note not in self._missing:
            self._missing.append(note)


_MODEL_SUFFIXES = {".json", ".safetensors", ".bin", ".model", ".txt", ".jinja"}
_TOKENIZER_FILES = {
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "tokenizer.model", "vocab.json",
    "merges.txt", "added_tokens.json",
}  # fmt: skip
_NOT_IN_PROMPTS = {
    "lengths_tokens",
    "haystack",
    "squad",
    "hotpotqa",
    "data",
    "split_tokens",
    "length_unit",
    "first_line",
}


def canonical(recipe: Recipe) -> Recipe:
    """The recipe by what it does: lambda = 1 and kappa = 1 are uniform weights and need no scorer (Eq. 8)."""
    weighting = recipe.weighting
    if weighting.lambda_ == 1 or weighting.kappa == 1:
        return recipe.model_copy(update={"weighting": Weighting(), "scorer": None})
    if weighting.postprocessing == "uniform":
        return recipe.model_copy(update={"weighting": Weighting()})
    return recipe


def weighting_label(recipe: Recipe) -> str:
    """Readable name of a recipe's weighting, e.g. frozen-sparse-0.4 or unfrozen-dense-0.75-ppmi."""
    weighting = recipe.weighting
    if recipe.scorer is None:
        return "uniform"
    amount = {"sparse": weighting.kappa, "dense": weighting.lambda_}.get(weighting.postprocessing)
    parts: list[str] = [recipe.scorer.kind, weighting.postprocessing]
    if amount is not None:
        parts.append(f"{amount:g}")
    if weighting.score != "abs_pmi":
        parts.append(weighting.score)
    if recipe.scorer.precision != "training":
        parts.append(f"{recipe.scorer.precision}-scoring")
    return "-".join(parts)


def _architecture_identity(architecture: Architecture) -> dict[str, Any]:
    """An architecture by its values; the family only where it is not a Llama."""
    return architecture.model_dump(mode="json", exclude={"family"} if architecture.family == "llama" else set())


def _scorer_identity(scorer: Scorer) -> dict[str, Any]:
    """A scorer by its kind and windows (its model is an input); the precision only where it is not the training's."""
    usual = {"precision"} if scorer.precision == "training" else set()
    return scorer.model_dump(mode="json", exclude={"model", *usual})


def _divergent(parity: Parity) -> dict[str, Any]:
    """What parity adds to an identity: nothing for the paper's."""
    return {} if parity == "paper" else {"parity": parity}


def _digest(content: Any) -> str:
    import hashlib

    return hashlib.sha256(canonical_json(content).encode()).hexdigest()


def _in_order(nodes: Iterable[Node]) -> list[Node]:
    order: list[StageName] = list(STAGE_VERSIONS)
    return sorted(nodes, key=lambda node: order.index(node.stage))


def _with_inputs(leaves: Iterable[Node]) -> set[Node]:
    """The nodes and all that they are made from."""
    found, waiting = set[Node](), list(leaves)
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting.extend(node.inputs)
    return found
