"""The command `tokenweight score`: weights of a corpus as a data set, for trainers elsewhere."""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tokenweight.commands.command import command, note
from tokenweight.commands.reproduce import run_flow
from tokenweight.errors import UserError
from tokenweight.files import check_new, new_directory, replace_file
from tokenweight.pipeline.store import open_store, read_record
from tokenweight.recipes.execution import check_gpus
from tokenweight.recipes.options import STORE, WeightingOptions
from tokenweight.recipes.schema import (
    AtLeastOne,
    Chunking,
    Corpus,
    Execution,
    FilesCorpus,
    HubBase,
    HubCorpus,
    LocalBase,
    Precision,
)
from tokenweight.webpage import plain_environment


@command
def score(
    corpus: str,
    /,
    *,
    model: str,
    out: Path,
    as_is: bool = False,
    options: WeightingOptions,
    precision: Precision = "bf16",
    processes: AtLeastOne = 1,
    store: Path = STORE,
) -> None:
    from tokenweight.corpus.sources import check_outside
    from tokenweight.corpus.token_rows import row_tokens
    from tokenweight.planning.graph import Planner
    from tokenweight.planning.plan import check_before_running, to_make
    from tokenweight.training.stages import Weigh

    place = open_store(store)
    weighting, read = options.weighting, _corpus(corpus)
    reader, scorer = _base("--model", model), _base("--scorer", str(options.scorer)) if options.scorer else None
    if as_is and options.long_tokens:
        raise UserError(f"--long-tokens {options.long_tokens}: with --as-is the rows set the length; leave it out")
    with _called({"corpus.path": "CORPUS", " as-is": " --as-is"}):
        given = row_tokens(read) if as_is else options.long_tokens
    long_tokens, context_tokens = given or reader.context_tokens, (scorer or reader).context_tokens
    short_tokens, stride_tokens = options.windows(long_tokens, context_tokens)
    if not long_tokens <= reader.context_tokens or not stride_tokens < short_tokens <= min(long_tokens, context_tokens):
        raise UserError(
            f"--long-tokens {long_tokens}, --short-tokens {short_tokens}, --stride-tokens {stride_tokens}: each must be "
            f"smaller than the one before and fit the models' contexts ({reader.context_tokens} and {context_tokens}); change them"
        )
    target = check_new("--out", out)
    check_outside("--out", out, read)
    weigh = Weigh(
        weighting=weighting,
        short_tokens=short_tokens,
        stride_tokens=stride_tokens,
        own_first_window=scorer is None or weighting.own_first_window,
        seed=options.seed,
    )
    chunking = Chunking(long_tokens=long_tokens, mixture="as_is" if as_is else "per_document")
    graph = Planner(place).weights(weigh, read, reader, scorer, chunking, precision)
    execution = Execution(
        device=options.device,
        processes=processes,
        launcher="torchrun" if processes > 1 else "inline",
        gpus=processes,
    )
    note(*check_before_running([graph], place, execution))
    ((leaf,),) = graph.evaluations.values()
    if to_make(graph, place):
        check_gpus(execution)
        run_flow("run_artifacts", graph=graph, store=place, execution=execution, name=f"score {Path(corpus).name}")
    record = read_record(place.path(leaf.identity)) or {}
    template = plain_environment(Path(__file__).parent).get_template("score.md.jinja")
    models = {"model": (model, leaf.inputs["long"]), "scorer": (str(options.scorer or model), leaf.inputs["short"])}
    named = {role: (Path(name).name, one.inputs["model"].identity.config) for role, (name, one) in models.items()}
    card = template.render(
        corpus=Path(corpus).name, long_tokens=long_tokens, weigh=weigh, precision=precision, record=record, **named
    )
    with new_directory("--out", target) as partial:
        (partial / "data").mkdir()
        for name in record["outputs"]:
            shutil.copyfile(place.path(leaf.identity) / name, partial / "data" / name)
        replace_file(partial / "README.md", card)
    facts = record["facts"]
    print(f"{facts['sequences']} sequences of {long_tokens} tokens from {facts['documents']} documents\n{out}")


@contextmanager
def _called(names: dict[str, str]) -> Iterator[None]:
    """What a UserError names as this command does."""
    try:
        yield
    except UserError as error:
        text = str(error)
        for old, new in names.items():
            text = text.replace(old, new)
        raise UserError(text) from None


def _base(option: str, name: str) -> LocalBase | HubBase:
    from tokenweight.evaluation.model_spec import find

    with _called({"--model": option}):
        return find(name).base


def _corpus(text: str) -> Corpus:
    """A directory or file of texts, or ORG/NAME@REVISION of the hub."""
    from tokenweight.corpus.files import list_files

    repo_id, at, revision = text.rpartition("@")
    if Path(text).expanduser().exists():
        place = str(Path(text).expanduser().resolve())
        found = FilesCorpus.model_construct(path=place, validation_documents=0)  # all; a recipe keeps some back
        with _called({"corpus.path": "CORPUS"}):
            list_files(found)
        return found
    if not at or not re.fullmatch(r"[\w.-]+/[\w.-]+", repo_id):
        raise UserError(f"CORPUS {text}: does not exist; give a directory of texts, or ORG/NAME@REVISION of the hub")
    return HubCorpus(repo_id=repo_id, revision=revision)
