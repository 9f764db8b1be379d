"""The fault laboratory: a small store in which everything was made once, and a table of what was tried on it."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from faults_laboratory import OUTCOMES, PLANTED, Laboratory, made

Tally = Callable[[str, str, str], None]


@pytest.fixture
def tally(record_property: Callable[[str, object], None]) -> Iterator[Tally]:
    """Notes one fault: its kind, its place, and what happened (one of OUTCOMES); false numbers and losses fail the test."""
    bad: list[str] = []

    def note(kind: str, place: str, outcome: str) -> None:
        assert outcome in OUTCOMES, outcome
        record_property("fault", (kind, place, outcome))
        if outcome in ("false numbers", "losses"):
            bad.append(f"{kind}, {place}: {outcome}")

    yield note
    assert not bad, bad


@pytest.fixture(scope="session")
def laboratory(tmp_path_factory: pytest.TempPathFactory) -> Laboratory:
    """Made in a shell with secrets. Not to be left changed."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in PLANTED.items():
            patch.setenv(name, value)
        return made(tmp_path_factory.mktemp("laboratory"))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    counts: Counter[tuple[str, str, str]] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", "") == "call":
                counts.update(value for name, value in report.user_properties if name == "fault")
    if not counts:
        return
    lines = [("fault", "place", "tried", *OUTCOMES)]
    for kind, place in dict.fromkeys(key[:2] for key in counts):
        found = [counts[kind, place, outcome] for outcome in OUTCOMES]
        lines.append((kind, place, *map(str, (sum(found), *found))))
    sums = [sum(int(line[n]) for line in lines[1:]) for n in range(2, len(lines[0]))]
    lines.append(("all", "", *map(str, sums)))
    widths = [max(len(line[n]) for line in lines) for n in range(len(lines[0]))]
    terminalreporter.section("fault laboratory")
    for line in lines:
        kinds = zip(line[:2], widths[:2], strict=True)
        numbers = zip(line[2:], widths[2:], strict=True)
        texts = [*(text.ljust(width) for text, width in kinds), *(text.rjust(width) for text, width in numbers)]
        terminalreporter.write_line("  ".join(texts))
