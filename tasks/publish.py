"""Tables and figures as Prefect artifacts: copies for people who look at a server. The files and records are the truth."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path

from prefect.artifacts import create_markdown_artifact
from prefect.settings import get_current_settings

from tokenweight.pipeline import Identity, Store

LARGEST_PICTURE_BYTES = 500_000  # it is kept in the server's database; a larger one is only linked


def has_server() -> bool:
    """Whether this run reports to a server that outlives it; the embedded one ends with the run."""
    return get_current_settings().api.url is not None


def publish(
    key: str,
    title: str,
    files: Mapping[str, Path],
    store: Store | None = None,
    behind: Mapping[str, Identity] | None = None,
) -> None:
    """Show a table on the server, with its files, its store and the checkpoints `behind` its rows, and its figures.

    `key`: what Prefect does not take in one (it takes lowercase letters, digits and dashes) becomes dashes. Links are file:
    addresses, for a browser where the store is.
    """
    if not has_server():
        return
    key = re.sub(r"[^a-z0-9]+", "-", key.lower()).strip("-")
    links = [f"- [{path.name}]({path.as_uri()})" for path in files.values()]
    parts = [files["md"].read_text().rstrip(), "", "## Files", "", *links, ""]
    if store:
        made = {row: one for row, one in (behind or {}).items() if store.path(one).is_dir()}
        rows = [f"- {row}: [{one.address}]({store.path(one).as_uri()})" for row, one in made.items()]
        parts += ["## Store", "", f"[{store.root}]({store.root.as_uri()})", "", *rows, ""]
    create_markdown_artifact("\n".join(parts), key=key, description=f"{title}; file: {files['md']}")
    pictures = [line for name, path in files.items() if name.endswith("png") for line in _picture(path)]
    if pictures:
        create_markdown_artifact("\n".join(pictures), key=f"{key}-figures", description=f"Figures of {title}")


def _picture(path: Path) -> list[str]:
    content, printed = path.read_bytes(), path.with_suffix(".pdf")
    head = [f"## {path.stem}", "", f"[{printed.name}]({printed.as_uri()})", ""]
    if len(content) > LARGEST_PICTURE_BYTES:
        return head
    return [*head, f"![{path.stem}](data:image/png;base64,{b64encode(content).decode()})", ""]
