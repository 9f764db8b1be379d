"""The paper's targets and recipes are YAML files: each reads, says what it is called, and travels with the package."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tokenweight.errors import UserError
from tokenweight.evaluation.units import BENCHMARKS
from tokenweight.pipeline.experiment import Lengths
from tokenweight.recipes import SCALES, Inputs, names
from tokenweight.recipes.recipe import of_scale, read_yaml
from tokenweight.recipes.schema import Execution
from tokenweight.reports.targets import TARGETS, get_target
from tokenweight.reports.targets.columns import usual_columns
from tokenweight.reports.targets.find import find_experiments
from tokenweight.reports.targets.labels import experiment_at

ROOT = Path(__file__).parents[2]
AT = Lengths(ruler=(1024, 4096), perplexity=(1024,), planted=(1024, 4096), longbench_split=1024)


def test_each_file_is_a_target() -> None:
    assert TARGETS[6:10] == ("table-9", "table-10", "table-11", "figure-1")  # in the paper's order
    for name in TARGETS:
        target = get_target(name)
        assert target.name == name
        assert set(target.recipes) <= set(names())
        experiment = experiment_at(get_target(name), AT)
        keys = [column.key for column in experiment.columns]
        assert len(set(keys)) == len(keys) > 0
        assert experiment.stub
    with pytest.raises(UserError, match=r"target 'tabel-3': unknown; did you mean table-3\?"):
        get_target("tabel-3")
    with pytest.raises(UserError, match="choose one of table-1, table-3"):
        get_target("table-2")


def test_what_tables_show_of_a_benchmark_is_measured_on_it() -> None:
    known = read_yaml((ROOT / "reports" / "targets" / "columns.yaml").read_text())["benchmarks"]
    offered = {name for name, one in BENCHMARKS.items() if one.offered and not one.is_family}
    assert set(known) <= offered
    for benchmark in known:
        assert usual_columns([benchmark], AT, brief=True)


def test_a_scale_replaces_parts_that_the_paper_has() -> None:
    papers = of_scale("paper")["parts"]
    lists = [entries for entries in papers.values() if isinstance(entries, list)]
    used = {part for entries in lists for part in entries if isinstance(part, str)}
    assert {part for part in papers if "/" not in part} == {part for part in used if "/" not in part}
    for scale in SCALES:
        content = of_scale(scale)
        assert set(content["parts"]) <= set(papers)
        assert set(content["about"]) == {"target", "own", "models"}
        Execution.model_validate(content["execution"])


def test_the_package_carries_them() -> None:
    data = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    assert "*.yaml" in data["*"]


@pytest.mark.parametrize("setting", ["scorer.kind=frozen", "weighting.score=ppmi", "weighting.postprocessing=uniform"])
def test_what_a_target_calls_its_rows_by_is_not_set(setting: str) -> None:
    with pytest.raises(UserError, match="the rows of table-3 are called by it"):
        find_experiments(["table-3"], "smoke", Inputs(settings=(setting,)))
