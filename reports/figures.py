"""What all figures share: style, colours, and saving as PDF, SVG and PNG. matplotlib is loaded where one is drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenweight.errors import UserError
from tokenweight.reports.manifest import Manifest
from tokenweight.reports.model import Report
from tokenweight.reports.writing import replace_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMN_INCHES = 3.35  # width of a column of the ACL's style
# Okabe and Ito 2008: told apart by colour-blind readers. In grey the line styles tell curves apart.
COLOURS = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
LINE_STYLES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)), (0, (6, 2)))
_STYLE: dict[Any, Any] = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "lines.linewidth": 1.3,
    "legend.frameon": False,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "pdf.fonttype": 42,  # fonts as TrueType: text stays text
    "svg.fonttype": "path",  # the same on every machine
    "svg.hashsalt": "tokenweight",  # the same bytes for the same figure
}
# No dates: the same records give the same files.
_FORMATS: dict[str, dict[str, Any]] = {
    "pdf": {"metadata": {"CreationDate": None}},
    "svg": {"metadata": {"Date": None}},
    "png": {"dpi": 300},
}


@dataclass(frozen=True)
class Drawing:
    """A figure, and where its curves are in no table, their data as CSV."""

    figure: Figure
    curve_csv: str | None = None


# From a target's report, its manifest and the store's root to its figure; what lacks is said in the figure.
Draw = Callable[[Report, Manifest, Path], Drawing]


@contextmanager
def style() -> Iterator[None]:
    """matplotlib's settings for the figures drawn and saved inside."""
    import matplotlib as mpl

    with mpl.rc_context(_STYLE):
        yield


def write_figure(
    draw: Draw | None, report: Report, manifest: Manifest, store_root: Path, out_dir: Path
) -> dict[str, Path]:
    """`<out>/<target>.pdf`, `.svg`, `.png`, and `-curve.csv` where there is one; paths by format, none without `draw`.

    Raises UserError where it cannot write.
    """
    if draw is None:
        return {}
    with style():
        drawing = draw(report, manifest, store_root)
        contents = {suffix: _rendered(drawing.figure, suffix, options) for suffix, options in _FORMATS.items()}
    paths = {suffix: out_dir / f"{report.target}.{suffix}" for suffix in contents}
    if drawing.curve_csv is not None:
        contents["curve"], paths["curve"] = drawing.curve_csv.encode(), out_dir / f"{report.target}-curve.csv"
    try:
        out_dir.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            replace_file(paths[name], content)
    except OSError as error:
        raise UserError(f"{out_dir}: cannot be written ({error.strerror}); choose another --out") from None
    return paths


def _rendered(figure: Figure, suffix: str, options: dict[str, Any]) -> bytes:
    content = BytesIO()
    figure.savefig(content, format=suffix, bbox_inches="tight", pad_inches=0.02, **options)
    return content.getvalue()
