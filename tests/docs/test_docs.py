"""Documents: their examples run, their links lead somewhere, the names they use exist."""

import doctest
import json
import re
import shlex
from importlib import metadata
from pathlib import Path

import pytest

import tokenweight
import tokenweight.weighting as weighting
from tokenweight.cli import app
from tokenweight.weighting import scores

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted(
    [
        ROOT / "README.md",
        *(ROOT / "docs").glob("*.md"),
        ROOT / "reports" / "divergences.md",
        *(ROOT / "benchmarks").glob("*.md"),
    ]
)
METHOD = ROOT / "docs" / "method.md"


def relative_links(text):
    """Targets of [text](target) that are not web addresses."""
    return [link for link in re.findall(r"\]\(([^)\s]+)\)", text) if not re.match(r"[a-z]+:", link)]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_document_is_left_half_merged(document):
    assert not re.search(r"^(<{7}|={7}|>{7})( |$)", document.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_relative_links_lead_somewhere(document):
    text = document.read_text(encoding="utf-8")
    for link in relative_links(text):
        path, _, anchor = link.partition("#")
        target = (document.parent / path).resolve() if path else document
        assert target.is_relative_to(ROOT), link
        assert target.exists(), link
        if anchor:
            headings = re.findall(r"^#+ (.+)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w\- ]", "", h).strip().lower().replace(" ", "-") for h in headings}, link


def test_every_document_is_in_the_index():
    linked = set(relative_links((ROOT / "docs" / "README.md").read_text(encoding="utf-8")))
    assert {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"} <= {
        link.partition("#")[0] for link in linked
    }


def test_the_pages_have_at_most_15_000_words():
    words = [word for path in (ROOT / "docs").glob("*.md") for word in path.read_text(encoding="utf-8").split()]
    assert sum(bool(re.search(r"\w", word)) for word in words) <= 15_000


@pytest.mark.parametrize("document", ["method.md", "api.md"])
def test_the_examples_give_what_stands_there(document, monkeypatch):
    monkeypatch.setattr(scores, "SCORES", dict(scores.SCORES))  # the page registers one
    failed, tried = doctest.testfile(str(METHOD.parent / document), module_relative=False, encoding="utf-8")
    assert failed == 0
    assert tried >= 15


def test_functions_of_the_method_are_where_it_says():
    for row in METHOD.read_text(encoding="utf-8").splitlines():
        for file, target, names in re.findall(r"\[`(\w+\.py)`\]\((\S+?)\)((?: `[\w.]+`,?)*)", row):
            source = (METHOD.parent / target).read_text(encoding="utf-8")
            assert target.endswith(file)
            for name in re.findall(r"`([\w.]+)`", names):
                assert name.rpartition(".")[2] in source, (file, name)


def test_every_public_name_is_in_its_page_and_in_help():
    text = (METHOD.parent / "api.md").read_text(encoding="utf-8")
    assert [name for name in weighting.__all__ if name not in text] == []
    assert set(weighting.__all__) <= set(dir(weighting))
    assert tokenweight.__version__ == metadata.version("tokenweight")


def fenced_lines(document):
    """Lines within code blocks, continued ones joined."""
    inside, found = False, []
    for line in document.read_text(encoding="utf-8").replace("\\\n", " ").splitlines():
        if line.startswith("```"):
            inside = not inside
        elif inside:
            found.append(line)
    return found


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_of_pages_have_the_options_and_values_that_pages_give_them(document):
    """Parsed, not run; of [--option VALUE] and [one|two] the first, of DAYS a number."""
    for line in fenced_lines(document):
        for part in re.split(r"&& ?|\| (?=\w)| & ?$", line.partition(" #")[0]):
            words = shlex.split(re.sub(r"\|[\w.]+|[][]", "", part).replace("DAYS", "7"))
            words = words[1:] if words[:1] == ["$"] else words
            if words and words[0].removeprefix(".venv/bin/") == "tokenweight":
                app.parse_args(words[1:], exit_on_error=False, print_error=False)


def test_step_times_at_the_papers_size_are_those_of_their_files():
    results, text = ROOT / "benchmarks" / "results", (ROOT / "docs" / "paper-scale.md").read_text(encoding="utf-8")
    columns = []
    for name in ("2026-11-28-h200x4-llama3-8b-zero3-fused", "everything/llama3-8b-two", "everything/llama3-8b"):
        found = json.loads((results / f"{name}.json").read_text())
        to_uniform = found["ratios"]
        dense, sparse, ready = (
            to_uniform[row] for row in ("unfrozen dense", "unfrozen sparse 0.2", "frozen, scores ready")
        )
        scoring, small = to_uniform["scoring alone"], to_uniform["scoring alone, llama3.2-1b"]
        columns.append(
            (f"{dense:.2f} / {sparse:.2f}", f"{ready:.2f} / {ready + scoring:.2f}", f"{ready + small:.2f}",
             f"{found['mfu_uniform']:.2f}")
        )  # fmt: skip
    for row in zip(*columns, strict=True):
        assert f"| {' | '.join(row)} |" in text


def test_the_table_of_one_commit_is_the_one_that_is_shown():
    made = (ROOT / "benchmarks/results/everything/everything.md").read_text(encoding="utf-8")
    shown = (ROOT / "benchmarks/README.md").read_text(encoding="utf-8")
    assert made.replace("](", "](results/everything/") in shown
