"""An experiment as a file of YAML 1.2 says it: rows of recipes or models, what is changed in them, what they are measured on,
how it looks. A mistake in the file is one line with its place.

The paper's tables, a user's YAML, sweeps and `evaluate --model` are all one of these (docs/experiments.md).
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, PositiveInt, ValidationError, ValidationInfo, model_validator

from tokenweight.errors import UserError, choose, nearest
from tokenweight.pipeline.experiment import BENCHMARKS, Column, Described
from tokenweight.recipes.frozen import Frozen
from tokenweight.recipes.inputs import absolute
from tokenweight.recipes.recipe import read_yaml, what_is_wrong
from tokenweight.recipes.schema import SCALES, Backend, Scale


@cache
def columns_data() -> dict[str, Any]:
    """The tables of columns.yaml."""
    content: dict[str, Any] = read_yaml((Path(__file__).parent / "columns.yaml").read_text(encoding="utf-8"))
    return content


def _known(name: str) -> str:
    known = dict.fromkeys([*columns_data()["benchmarks"], *(key for key, one in BENCHMARKS.items() if one.offered)])
    if name.partition(":")[0] not in known:
        raise ValueError(f"is unknown{choose(name, known)}")
    return name


Benchmark = Annotated[str, AfterValidator(_known)]
NAME = r"[a-z0-9]+(-[a-z0-9]+)*"
LONGEST_NAME = 100
_PATH_SETTING = re.compile(r"\.(data|path|file|haystack|squad|hotpotqa|tokenizer|config|include_path)$")
# Such as "recipe x (smoke): weighting.kappa: Input should be ..."
_OF_RECIPE = re.compile(r"^(recipe .*? \(\w+\): |--set )")
_IN_TEXT = re.compile(r"^[\w.]+(\[\d+\])?(\.[\w.\[\]]+)?(?=:)")


def placed(value: str, directory: Path) -> str:
    """A path relative to a directory, as absolute; what is none (pretrain, a name of the hub) stays."""
    kind, colon, rest = value.partition(":") if value.startswith("random:") else ("", "", value)
    path = directory / Path(rest).expanduser()
    there = rest.startswith((".", "/", "~")) or ".py:" in rest or (rest and path.exists())
    return f"{kind}{colon}{absolute(path)}" if there and value not in ("hub", "pretrain") else value


def placed_setting(key: str, value: Any, directory: Path) -> Any:
    """A setting's value, or one that it is made of, where it is a path."""
    if isinstance(value, dict):
        return {name: placed_setting(f"{key}.{name}", part, directory) for name, part in value.items()}
    if isinstance(value, list):
        return [placed_setting(key, part, directory) for part in value]
    is_path = isinstance(value, str) and (_PATH_SETTING.search(key) or ".py:" in value)
    return placed(value, directory) if is_path else value


def _at(value: str, info: ValidationInfo) -> str:
    return placed(value, info.context) if info.context else value


def _with_paths(settings: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
    return (
        {key: placed_setting(key, value, info.context) for key, value in settings.items()} if info.context else settings
    )


Length = Annotated[int, Field(ge=2)]
Place = Annotated[str, Field(min_length=1), AfterValidator(_at)]
Settings = Annotated[dict[str, Any], AfterValidator(_with_paths)]  # by dotted key


class RowSpec(Frozen):
    """One row, or with `over` one for each combination of its values. In a label {short} and {long} are as in Row."""

    key: str = ""  # in manifests and the paper's data; without one, its labels
    label: str = ""  # without one, by what is set
    group: str = ""  # what several rows share, left of their labels
    recipe: str | None = None  # e.g. table-3/frozen-sparse; none: the model as it is
    base: Place | None = None  # in place of the experiment's
    corpus: Place | None = None  # in place of the experiment's
    context: PositiveInt | None = None  # longest input of a model as it is, in tokens
    set: Settings = Field(default={})  # settings of the recipe, by the keys of show-config
    over: Annotated[dict[str, list[Any]], AfterValidator(_with_paths)] = Field(
        default={}
    )  # settings with several values each: a row for each
    rule_below: Literal["full", "partial"] | None = None  # this and the following as in Row
    fills: tuple[str, ...] | None = None
    reference: str | None = None
    shown: bool = True
    unit: str | None = None


class ColumnsOf(Frozen):
    """Columns by the name of what they show (columns.yaml), with other words."""

    of: str
    task: str = ""  # of ruler-task and longbench-category
    key: str | None = None
    label: str | None = None  # {tokens}: the column's length
    group: str | None = None
    shown: bool = True
    difference: bool = False  # less the same of the row's reference


Columns = str | ColumnsOf | Column


class ExperimentSpec(Described[RowSpec, Columns]):
    """Rows x benchmarks x seeds. Paths are relative to the file that it is read from."""

    name: str = Field(pattern=f"^{NAME}$", max_length=LONGEST_NAME)  # of files: lowercase letters, digits and dashes
    stub: tuple[str, ...] = ()  # headings of the label columns; none: by what the rows are called
    base: Place | None = None  # directory of a model, ORG/NAME@COMMIT, pretrain, random:CONFIG
    tokenizer: Place | None = None  # directory with tokenizer.json, for base pretrain or random
    corpus: Place | None = None  # directory of .txt, .jsonl or .parquet
    # What rows are measured on; columns are the usual.
    benchmarks: tuple[Benchmark, ...] = Field(default=(), min_length=1)
    lengths: tuple[Length, ...] = Field(default=(), min_length=1)  # RULER's and perplexity's, in tokens
    set: Settings = Field(default={})  # settings of all rows that have them
    scales: dict[str, Settings] = Field(default={})  # settings at a scale, by its name; `like` names another
    limit: PositiveInt | None = None  # samples of a task at most
    backend: Backend = "hf"  # of models as they are
    command: str = ""  # that runs it, where that is not `tokenweight reproduce FILE`
    notes_of: tuple[Benchmark, ...] = ()  # benchmarks whose notes are below a table with columns of its own

    @model_validator(mode="after")
    def _known_scales(self) -> "ExperimentSpec":
        for name, settings in self.scales.items():
            if not re.fullmatch(r"[\w-]+", name):
                raise ValueError(f"scales.{name}: is part of files' names; use letters, digits, dashes and _")
            if name not in SCALES and settings.get("like") not in SCALES:
                raise ValueError(f"scales.{name}: is a scale of your own; write `like: smoke` (or mini, paper) in it")
        if self.limit and all(row.recipe for row in self.rows):
            raise ValueError("limit: is for models that are not trained; set evaluation.mmlu.samples and the like")
        if self.backend != "hf" and self.recipes:
            raise ValueError(
                "backend: is for models that are not trained, all of them; set evaluation.backend of recipes"
            )
        return self

    def scale_like(self, name: str) -> Scale:
        """The named scale that a scale's settings change; UserError for a scale that is not there."""
        like: Any = self.scales.get(name, {}).get("like", name)
        if like not in SCALES:
            raise UserError(f"scale {name!r}: unknown{choose(name, dict.fromkeys((*SCALES, *self.scales)))}")
        return like  # type: ignore[no-any-return]

    def common(self, scale: str) -> Settings:
        return {key: value for key, value in {**self.scales.get(scale, {}), **self.set}.items() if key != "like"}

    @property
    def measured_on(self) -> tuple[Benchmark, ...]:
        """The benchmarks given, or the usual ones of recipes, or of models as they are by a backend (columns.yaml)."""
        kind, known = "recipes" if self.recipes else self.backend, columns_data()["benchmarks"]
        return self.benchmarks or tuple(name for name, about in known.items() if kind in about.get("usual", ()))

    @property
    def recipes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(row.recipe for row in self.rows if row.recipe))


@contextmanager
def read_experiment(text: str) -> Iterator[ExperimentSpec]:
    """From a path, or from the text itself (it has several lines): for workers that do not have the file.

    A UserError from inside that begins with a key (rows[1].set.a.b: ...) gets file and line.
    """
    spec, text, where = _read(text)
    try:
        yield spec
    except UserError as error:
        message = _with_place(str(error), spec, getattr(error, "__notes__", ()))
        path = _IN_TEXT.match(message)
        steps = re.findall(r"(?<=\[)\d+(?=\])|[^.\[\]]+", path.group()) if path else []
        raise _mistake(where, text, steps, message) from None


def _with_place(message: str, spec: ExperimentSpec, notes: Sequence[str]) -> str:
    """The message behind the key of the experiment that it is about, where it speaks of one; `notes`: of which row it is."""
    rows = {f"rows[{number}]": row for number, row in enumerate(spec.rows) if not notes or f"rows[{number}]" in notes}
    settings = [
        (f"{at}.{name}", key) for at, row in rows.items() for name in ("set", "over") for key in getattr(row, name)
    ]
    settings += [("set", key) for key in spec.set]
    settings += [(f"scales.{name}", key) for name, of_scale in spec.scales.items() for key in of_scale]
    about, rest = _OF_RECIPE.match(message), _OF_RECIPE.sub("", message)
    for place, key in settings if about else ():
        parent, _, leaf = key.rpartition(".")  # "training: steps takes no true" is about training.steps
        if re.search(rf"(?<![\w.]){re.escape(key)}\b|^{re.escape(parent)}: .*\b{re.escape(leaf)}\b", rest):
            return f"{place}.{key}: {rest.removeprefix(f'{key}: ').removeprefix(f'{parent}: ')}"
    for at, of in (*rows.items(), ("", spec)):
        for name in ("base", "corpus", "tokenizer"):
            if (given := getattr(of, name, None)) and message.startswith(f"--{name}") and given in message:
                return f"{at}.{name}: {message.removeprefix(f'--{name}').lstrip(' :')}".removeprefix(".")
    if spec.lengths and message.startswith("--lengths "):
        return message.removeprefix("--").replace(" ", ": ", 1)
    if notes and message.startswith("context: "):
        return f"{notes[0]}.{message}"
    return f"{notes[0]}: {rest}" if about and notes else message


def _read(text: str) -> tuple[ExperimentSpec, str, str]:
    """The experiment, its text, and what errors call it."""
    from ruamel.yaml.constructor import DuplicateKeyError
    from ruamel.yaml.error import MarkedYAMLError
    from ruamel.yaml.reader import ReaderError

    where, directory = "the experiment's text", Path()
    try:
        if "\n" not in text:
            where, directory = text, Path(text).expanduser().resolve().parent
            text = Path(text).expanduser().read_text(encoding="utf-8")
        values = read_yaml(text)
    except (OSError, ValueError) as error:  # also a number of thousands of digits
        reason = "is not UTF-8" if isinstance(error, UnicodeDecodeError) else getattr(error, "strerror", None) or error
        raise UserError(f"{where}: cannot be read ({reason}); give a file like examples/kappa.yaml") from None
    except MarkedYAMLError as error:
        place = f"{where}, line {error.problem_mark.line + 1 if error.problem_mark else 1}"
        if isinstance(error, DuplicateKeyError):
            key = re.search(r'"(.*?)"', error.problem or "")
            raise UserError(f"{place}: {key.group(1) if key else 'a key'} is given twice; keep one") from None
        problem = "a tab, where YAML takes spaces" if "\\t" in (error.problem or "") else error.problem
        raise UserError(f"{place}: is not valid YAML ({problem}); correct it") from None
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise UserError(f"{where}, line {line}: is not valid YAML ({error.reason}); correct it") from None
    except RecursionError:
        raise UserError(f"{where}: is nested too deeply; see docs/experiments.md") from None
    if not isinstance(values, dict):
        raise UserError(f"{where}: is not an experiment; begin it with name: and rows: (docs/experiments.md)")
    try:
        return ExperimentSpec.model_validate(values, context=directory), text, where
    except ValidationError as error:
        raise _of_schema(error, text, where) from None


def _of_schema(error: ValidationError, text: str, where: str) -> UserError:
    # What is missing may be misspelt there.
    first = min(error.errors(), key=lambda one: one["type"] != "extra_forbidden")
    steps = [step for step in first["loc"] if not re.match(r"\[key\]|constrained-", str(step))]
    fields = RowSpec.model_fields if len(steps) > 2 and steps[0] == "rows" else ExperimentSpec.model_fields
    message = what_is_wrong(first)
    if first["type"] == "extra_forbidden":
        message = f"no such key{nearest(str(steps[-1]), fields) or '; there are ' + ', '.join(fields)}"
    dotted = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).lstrip(".")
    return _mistake(where, text, [str(step) for step in steps], f"{dotted}: {message}" if steps else message)


def _mistake(where: str, text: str, steps: Sequence[str], message: str) -> UserError:
    """What is wrong at a path of a text, with the line of the innermost key of it that the text has."""
    from ruamel.yaml import YAML

    node, line = YAML().load(text), None
    while steps and isinstance(node, dict | list):
        places = {str(name): name for name in (node if isinstance(node, dict) else range(len(node)))}
        joined = ".".join(steps)  # settings have dots in their keys
        name = next((name for name in (joined, steps[0]) if name in places), None)
        if name is None:
            break
        line = node.lc.data[places[name]][0] + 1  # type: ignore[union-attr]  # ruamel's own lists and dicts know it
        node, steps = node[places[name]], [] if name == joined else steps[1:]
    return UserError(f"{where}, line {line}, {message}" if line else f"{where}: {message}")
