"""`--corpus` at scale mini: the books of a mixture are the user's, its synthetic parts stay."""

from __future__ import annotations

from pathlib import Path

import pytest

from tokenweight.errors import UserError
from tokenweight.pipeline.store import Store
from tokenweight.planning.graph import Planner
from tokenweight.recipes import Inputs, load
from tokenweight.recipes.schema import EchoCorpus, FilesCorpus, MixtureCorpus, NovelCorpus, PretrainBase

BASE = load("table-3/uniform", "mini").base
assert isinstance(BASE, PretrainBase)
PRETRAINING = BASE.corpus
assert isinstance(PRETRAINING, MixtureCorpus)
BOOKS, RECALL, ECHOES = (part.corpus for part in PRETRAINING.parts)


@pytest.fixture
def books(tmp_path: Path) -> Path:
    directory = tmp_path / "books"
    directory.mkdir()
    for i in range(12):
        (directory / f"{i}.txt").write_text("word " * 20)
    return directory


def test_the_users_books_stand_everywhere(books: Path) -> None:
    recipe = load("table-5/sparse-1b", "mini", Inputs(corpus=str(books)))
    mine = BOOKS.model_copy(update={"path": str(books)})
    assert recipe.corpus == recipe.evaluation.perplexity.corpus == mine
    assert recipe.scorer is not None
    for model in (recipe.base, recipe.scorer.model):
        assert isinstance(model, PretrainBase)
        assert isinstance(model.corpus, MixtureCorpus)
        assert [part.corpus for part in model.corpus.parts] == [mine, RECALL, ECHOES]
        assert [part.share for part in model.corpus.parts] == [part.share for part in PRETRAINING.parts]


def test_base_pretrain_keeps_the_mixture_and_its_tokenizer(books: Path) -> None:
    named = load("table-3/uniform", "mini", Inputs(corpus=str(books), base="pretrain"))
    assert named.base == load("table-3/uniform", "mini", Inputs(corpus=str(books))).base


def test_the_synthetic_parts_share_no_seed_with_what_is_evaluated(books: Path) -> None:
    evaluation = load("table-3/uniform", "mini", Inputs(corpus=str(books))).evaluation
    seeds = {part.corpus.seed for part in PRETRAINING.parts if isinstance(part.corpus, NovelCorpus | EchoCorpus)}
    assert evaluation.planted.corpus.seed not in seeds
    assert len(seeds) == 2


def test_the_identity_of_a_mixture_is_its_contents_and_shares(books: Path, tmp_path: Path) -> None:
    inputs = Inputs(corpus=str(books))
    recipe = load("table-3/no-train-8k", "mini", inputs)
    assert isinstance(recipe.base, PretrainBase)
    corpus = recipe.base.corpus
    assert isinstance(corpus, MixtureCorpus)

    def fingerprint(path: Path, shares: tuple[float, ...]) -> str:
        parts = tuple(
            part.model_copy(
                update={"share": share}
                | (
                    {"corpus": BOOKS.model_copy(update={"path": str(path)})}
                    if isinstance(part.corpus, FilesCorpus)
                    else {}
                )
            )
            for part, share in zip(corpus.parts, shares, strict=True)
        )
        base = recipe.base.model_copy(update={"corpus": MixtureCorpus(parts=parts)})
        checkpoint, _ = Planner(Store(tmp_path / "store"))._base(base)
        return checkpoint.fingerprint

    here = fingerprint(books, (0.25, 0.5, 0.25))
    elsewhere = books.rename(tmp_path / "elsewhere")
    assert fingerprint(elsewhere, (0.25, 0.5, 0.25)) == here
    assert fingerprint(elsewhere, (0.5, 0.25, 0.25)) != here
    (elsewhere / "0.txt").write_text("other words " * 20)
    assert fingerprint(elsewhere, (0.25, 0.5, 0.25)) != here


def test_a_share_that_does_not_add_up_is_one_line(books: Path) -> None:
    part = '{"corpus": {"kind": "echo"}, "share": 0.4}'
    setting = f'base.corpus={{"kind": "mixture", "parts": [{part}, {part}]}}'
    with pytest.raises(UserError, match=r"base.*: parts: their shares add up to 0\.8, not to 1"):
        load("table-3/uniform", "mini", Inputs(corpus=str(books), settings=(setting,)))
