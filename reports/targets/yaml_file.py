"""Read an experiment from YAML 1.2; a mistake is one line with its place."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tokenweight.errors import UserError
from tokenweight.recipes.recipe import read_yaml
from tokenweight.reports.targets.members import nearest
from tokenweight.reports.targets.schema import ExperimentSpec, RowSpec, Settings

_PATHS = ("base", "corpus", "tokenizer")
_PATH_SETTINGS = (".data", ".path", ".file", ".haystack", ".squad", ".hotpotqa", ".tokenizer", ".config")
_IN_TEXT = re.compile(r"^[\w.]+(\[\d+\])?(\.[\w.\[\]]+)?(?=:)")


@dataclass(frozen=True)
class ExperimentFile:
    """An experiment with its text, so that what turns out wrong later can be placed too."""

    spec: ExperimentSpec
    text: str
    where: str  # what errors call it

    @contextmanager
    def placed(self) -> Iterator[None]:
        """A UserError from inside that begins with a key (rows[1].set.a.b: ...) gets file and line."""
        try:
            yield
        except UserError as error:
            message = str(error)
            settings = [("set", key) for key in self.spec.set]
            for number, row in enumerate(self.spec.rows):
                settings += [(f"rows[{number}].{name}", key) for name in ("set", "over") for key in getattr(row, name)]
            for place, key in settings:
                before, found, after = message.partition(f" {key}: ")
                if found and before.startswith(
                    ("recipe ", "--set")
                ):  # recipe x (smoke): weighting.kappa: Input should be
                    message = f"{place}.{key}: {after}"
            path = _IN_TEXT.match(message)
            steps = re.findall(r"\[\d+\]|[^.\[\]]+", path.group()) if path else []
            steps = [int(step[1:-1]) if step.startswith("[") else step for step in steps]
            raise _mistake(self.where, self.text, steps, message) from None


def read_experiment(text: str) -> ExperimentFile:
    """From a path, or from the text itself (it has several lines): for workers that do not have the file."""
    if "\n" in text:
        return _parse(text, "the experiment's text", Path())
    path = Path(text).expanduser()
    try:
        return _parse(path.read_text(encoding="utf-8"), text, path.resolve().parent)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "is not UTF-8"
        raise UserError(f"{text}: cannot be read ({reason}); give a file like examples/kappa.yaml") from None


def _parse(text: str, where: str, directory: Path) -> ExperimentFile:
    from ruamel.yaml.constructor import DuplicateKeyError
    from ruamel.yaml.error import MarkedYAMLError

    try:
        values = read_yaml(text)
    except MarkedYAMLError as error:
        place = f"{where}, line {error.problem_mark.line + 1 if error.problem_mark else 1}"
        if isinstance(error, DuplicateKeyError):
            key = re.search(r'"(.*?)"', error.problem or "")
            raise UserError(f"{place}: {key.group(1) if key else 'a key'} is given twice; keep one") from None
        raise UserError(f"{place}: is no YAML ({error.problem}); mend it") from None
    if not isinstance(values, dict):
        raise UserError(f"{where}: is no experiment; begin with name: and rows: (docs/experiments.md)")
    try:
        spec = ExperimentSpec.model_validate(values)
    except ValidationError as error:
        raise _of_schema(error, text, where) from None
    return ExperimentFile(_with_paths(spec, directory), text, where)


def _with_paths(spec: ExperimentSpec, directory: Path) -> ExperimentSpec:
    """Paths relative to the file's directory; what is none (pretrain, a name of the hub) stays."""

    def at(value: Any) -> Any:
        kind, colon, rest = value.partition(":") if value.startswith("random:") else ("", "", value)
        path = directory / Path(rest).expanduser()
        there = rest.startswith((".", "/", "~")) or path.exists()
        return f"{kind}{colon}{path.resolve()}" if there else value

    def of(place: ExperimentSpec | RowSpec) -> dict[str, Any]:
        given = {key: at(value) for key in _PATHS if (value := getattr(place, key, None))}
        return {**given, "set": settings(place.set)}

    def settings(values: Settings) -> Settings:
        return {k: at(v) if k.endswith(_PATH_SETTINGS) and isinstance(v, str) else v for k, v in values.items()}

    rows = tuple(row.model_copy(update=of(row)) for row in spec.rows)
    scales = {name: settings(values) for name, values in spec.scales.items()}
    return spec.model_copy(update={**of(spec), "rows": rows, "scales": scales})


def _of_schema(error: ValidationError, text: str, where: str) -> UserError:
    first = error.errors()[0]
    steps = [step for step in first["loc"] if step != "[key]"]
    fields = RowSpec.model_fields if len(steps) > 2 and steps[0] == "rows" else ExperimentSpec.model_fields
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        message = f"no such key{nearest(str(steps[-1]), fields) or '; there are ' + ', '.join(fields)}"
    elif isinstance(first["input"], str | int | float):
        message += f" (got {first['input']!r})"
    dotted = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).lstrip(".")
    return _mistake(where, text, steps, f"{dotted}: {message}" if steps else message)


def _mistake(where: str, text: str, steps: list[Any], message: str) -> UserError:
    """What is wrong at a path of a text, with its line."""
    line = _line(text, steps)
    return UserError(f"{where}, line {line}, {message}" if line else f"{where}: {message}")


def _line(text: str, steps: list[Any]) -> int | None:
    """Line of the innermost key of a path that the text has."""
    from ruamel.yaml import YAML
    from ruamel.yaml.nodes import MappingNode, SequenceNode

    node, line = YAML(typ="safe", pure=True).compose(text), None
    while steps:
        if isinstance(node, SequenceNode) and isinstance(steps[0], int) and steps[0] < len(node.value):
            node, steps = node.value[steps[0]], steps[1:]
            line = node.start_mark.line + 1
            continue
        joined = ".".join(map(str, steps))  # settings have dots in their keys
        pairs = {key.value: (key, value) for key, value in node.value} if isinstance(node, MappingNode) else {}
        name = next((name for name in (joined, steps[0]) if name in pairs), None)
        if name is None:
            break
        key, node = pairs[name]
        line, steps = key.start_mark.line + 1, [] if name == joined else steps[1:]
    return line
