"""Read a user's experiment from YAML 1.2 (1e-5 is a number, off is a word); a mistake is one line with its place."""

from __future__ import annotations

import re
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tokenweight.errors import UserError
from tokenweight.recipes.user import UserExperiment, UserRow, nearest

_PATHS = ("base", "corpus", "tokenizer")
_PATH_SETTINGS = (".data", ".path", ".file", ".haystack", ".squad", ".hotpotqa", ".tokenizer", ".config")
_IN_TEXT = re.compile(r"^[\w.]+(\[\d+\])?(\.[\w.\[\]]+)?(?=:)")


class ExperimentFile:
    """An experiment with the lines of its keys, so that what turns out wrong later can be placed too."""

    def __init__(self, text: str, where: str, directory: Path) -> None:
        """`where`: what errors call it. Raises UserError for what is no experiment."""
        self._where, self._directory = where, directory
        self._tree = self._parse(text)
        values = _plain(self._tree)
        for place, key in ((values, key) for key in _PATHS):
            self._resolve(place, key)
        for settings in (values.get("set"), *(row.get("set") for row in _rows(values)), *_scales(values)):
            for key in _keys(settings):
                if str(key).endswith(_PATH_SETTINGS):
                    self._resolve(settings, key)
        self._set = {key: f"set.{key}" for key in _keys(values.get("set"))}  # where each setting is said
        for number, row in enumerate(_rows(values)):
            for key in _PATHS:
                self._resolve(row, key)
            for place in ("set", "over"):
                self._set |= {key: f"rows[{number}].{place}.{key}" for key in _keys(row.get(place))}
        try:
            self.experiment = UserExperiment.model_validate(values)
        except ValidationError as error:
            raise self._of_schema(error) from None

    def placed(self, made: Callable[[], Any]) -> Any:
        """What `made` returns; a UserError of it that begins with a key (rows[1].set.a.b: ...) gets file and line."""
        try:
            return made()
        except UserError as error:
            text = str(error)
            for key, place in self._set.items():  # of a recipe's own message: weighting.kappa: Input should be ...
                if f" {key}: " in text:
                    text = f"{place}: {text.partition(f' {key}: ')[2]}"
            path = _IN_TEXT.match(text)
            line = self._line(_steps(path.group())) if path else None
            raise UserError(f"{self._where}, line {line}, {text}" if line else f"{self._where}: {text}") from None

    def _parse(self, text: str) -> Any:
        from ruamel.yaml import YAML
        from ruamel.yaml.constructor import DuplicateKeyError
        from ruamel.yaml.error import MarkedYAMLError

        try:
            tree = YAML(typ="rt").load(StringIO(text))
        except DuplicateKeyError as error:
            key = re.search(r'"(.*?)"', error.problem or "")
            raise UserError(
                f"{self._where}, line {error.problem_mark.line + 1}: {key.group(1) if key else 'a key'} is given twice; keep one"
            ) from None
        except MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else 1
            raise UserError(f"{self._where}, line {line}: is no YAML ({error.problem}); mend it") from None
        if not isinstance(tree, dict):
            raise UserError(f"{self._where}: is no experiment; begin with name: and rows: (docs/experiments.md)")
        return tree

    def _resolve(self, place: Any, key: str) -> None:
        """A path relative to the file; what is none (pretrain, a name of the hub) stays."""
        value = place.get(key) if isinstance(place, dict) else None
        if not isinstance(value, str):
            return
        kind, colon, rest = value.partition(":") if value.startswith("random:") else ("", "", value)
        path = self._directory / Path(rest).expanduser()
        if rest.startswith((".", "/", "~")) or path.exists():
            place[key] = f"{kind}{colon}{path.resolve()}"

    def _of_schema(self, error: ValidationError) -> UserError:
        first = error.errors()[0]
        steps = [step for step in first["loc"] if step not in ("[key]",)]
        fields = UserRow.model_fields if len(steps) > 2 and steps[0] == "rows" else UserExperiment.model_fields
        message = first["msg"].removeprefix("Value error, ")
        if first["type"] == "extra_forbidden":
            message = f"no such key{nearest(str(steps[-1]), fields) or '; there are ' + ', '.join(fields)}"
        elif isinstance(first["input"], str | int | float):
            message += f" (got {first['input']!r})"
        line = self._line(steps)
        place = f", line {line}" if line else ""
        return UserError(f"{self._where}{place}, {_dotted(steps)}: {message}" if steps else f"{self._where}: {message}")

    def _line(self, steps: list[Any]) -> int | None:
        """Line of the innermost key of a path that the file has."""
        tree: Any = self._tree
        line: int | None = None
        while steps:
            lines: Any = getattr(tree, "lc", None)
            if isinstance(tree, list) and isinstance(steps[0], int) and steps[0] < len(tree):
                line, tree, steps = lines.item(steps[0])[0] + 1, tree[steps[0]], steps[1:]
                continue
            joined = ".".join(map(str, steps))  # settings have dots in their keys
            key = next((k for k in (joined, steps[0]) if isinstance(tree, dict) and k in tree), None)
            if key is None:
                return line
            line, tree, steps = lines.key(key)[0] + 1, tree[key], [] if key == joined else steps[1:]
        return line


def read_experiment(text: str) -> ExperimentFile:
    """From a path, or from the text itself (it has several lines): for workers that do not have the file."""
    if "\n" in text:
        return ExperimentFile(text, "the experiment's text", Path())
    path = Path(text).expanduser()
    try:
        return ExperimentFile(path.read_text(encoding="utf-8"), text, path.resolve().parent)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "is not UTF-8"
        raise UserError(f"{text}: cannot be read ({reason}); give a file like examples/kappa.yaml") from None


def _plain(value: Any) -> Any:
    """ruamel's values as Python's own."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return value if isinstance(value, bool) else kind(value)
    return value


def _keys(value: Any) -> list[str]:
    return list(value) if isinstance(value, dict) else []


def _rows(values: dict[str, Any]) -> list[dict[str, Any]]:
    rows = values.get("rows")
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _scales(values: dict[str, Any]) -> list[dict[str, Any]]:
    scales = values.get("scales")
    return [scale for scale in scales.values() if isinstance(scale, dict)] if isinstance(scales, dict) else []


def _steps(path: str) -> list[Any]:
    return [int(step[1:-1]) if step.startswith("[") else step for step in re.findall(r"\[\d+\]|[^.\[\]]+", path)]


def _dotted(steps: list[Any]) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).lstrip(".")
