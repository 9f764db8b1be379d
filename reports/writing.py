"""Write a report in all its formats; each file is there whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from tokenweight.errors import UserError
from tokenweight.reports import delimited, latex, markdown
from tokenweight.reports.model import Report


def write_report(report: Report, out_dir: Path) -> dict[str, Path]:
    """`<out>/<target>.md`, `.tex`, `.csv` and `.json`; returns the paths by format. UserError where it cannot write."""
    texts = {
        "md": markdown.render(report),
        "tex": latex.render(report),
        "csv": delimited.render(report),
        "json": report.model_dump_json(indent=2) + "\n",
    }
    paths = {suffix: out_dir / f"{report.target}.{suffix}" for suffix in texts}
    try:
        out_dir.mkdir(parents=True, exist_ok=True)
        for suffix, text in texts.items():
            replace_file(paths[suffix], text.encode())
    except OSError as error:
        raise UserError(f"{out_dir}: cannot be written ({error.strerror}); choose another --out") from None
    return paths


def write_page(path: Path, text: str) -> None:
    """One file, in a directory that is made where it is not there. UserError where it cannot write."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, text.encode())
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror}); choose another file") from None


def replace_file(path: Path, content: bytes) -> None:
    """Write a file whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
