"""The page in a real browser, where one is installed: every token is drawn, without a JavaScript error."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tokenweight.inspection import compute as outputs

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-headless-shell", "chromium-browser", "google-chrome"))), None
)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="NOT CHECKED: no Chromium is installed, the page was not opened"),
]


def dumped(page: str, directory: Path) -> str:
    """The document after the page's script has run."""
    (directory / "page.html").write_text(page, encoding="utf-8")
    done = subprocess.run(
        [
            str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={directory}/profile",
            "--virtual-time-budget=20000", "--dump-dom", (directory / "page.html").as_uri(),
        ],
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.parametrize("repeats", [1, 200])
def test_every_token_is_drawn_without_an_error(inspected, nasty_file, tmp_path, repeats) -> None:
    content = inspected(nasty_file, short_tokens=60)
    for name, values in content["tokens"].items():
        if isinstance(values, list):  # as long as a text of 32k tokens and more
            content["tokens"][name] = [*values, *(repeats - 1) * values[1:]]
    count = len(content["tokens"]["id"])
    document = dumped(outputs.page(content), tmp_path)
    root = re.search(r"<html[^>]*>", document)
    assert root
    assert f'data-drawn="{count}"' in root[0]
    assert "data-error" not in root[0]
    assert len(re.findall(r'<span data-i="\d+" class="t', document)) == count
    assert len(re.findall(r'class="t [ab][1-6]"', document)) > count // 2


def test_keys_clicks_and_controls_show_the_right_token(inspected, nasty_file, tmp_path) -> None:
    content = inspected(nasty_file, short_tokens=60)
    weights = content["tokens"]["weight"]
    highest = max(range(1, len(weights)), key=lambda i: weights[i])
    acts = """
    const value = (name) => document.getElementById("value-" + name).textContent;
    const press = (key) => document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
    const seen = [];
    const hover = (i) => spans[i].dispatchEvent(new PointerEvent("pointermove", { bubbles: true, clientX: 9 }));
    hover(12);
    hover(13); // the pointer has not moved, the text has
    seen.push(value("index"));
    spans[7].click();
    press("ArrowRight"); press("ArrowRight"); press("ArrowLeft");
    seen.push(value("index"), document.activeElement.dataset.i);
    document.getElementById("top").value = 1;
    press("n");
    seen.push(value("index"), value("weight"), rank.textContent);
    document.querySelector("input[value=long]").click();
    seen.push(spans[1].className.includes(" n"), document.querySelectorAll(".key:not([hidden])").length);
    document.documentElement.dataset.seen = seen.join("|");
    """
    page = outputs.page(content).replace("draw();\ncolour();\n", f"draw();\ncolour();\n{acts}", 1)
    seen = re.search(r'data-seen="([^"]*)"', dumped(page, tmp_path))
    assert seen
    assert seen[1] == f"12|8|8|{highest}|{weights[highest]:.3f}|Rank 1 of 1|true|1"
