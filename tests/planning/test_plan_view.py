"""What `plan` tells beside run and reuse: costs with a basis and no others, shared artifacts once, needs by name."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tokenweight.commands.plan import needs, plan_rows, print_plan
from tokenweight.evaluation.units import Evaluate
from tokenweight.pipeline.stage import Artifact, replaced
from tokenweight.pipeline.store import Store
from tokenweight.planning.costs import config_of, parameters, published_config, stage_cost
from tokenweight.recipes import Inputs
from tokenweight.recipes.execution import default_execution, execution_for
from tokenweight.recipes.schema import Execution, Scale
from tokenweight.tasks.experiments import plan_texts

LLAMA3_8B_ID = "meta-llama/Meta-Llama-3-8B"
UNCOUNTED = "GPU-hours of evaluation on a corpus whose documents are not counted yet"
RunCommand = Callable[..., tuple[int, str, str]]


class View:
    """A plan's rows, with the graphs behind them and the costs of their artifacts."""

    def __init__(self, store: Path, *targets: str, scale: Scale = "paper", **execution: int) -> None:
        place = Store(store)
        planned = [plan_texts([name], scale, Inputs(), place)[0][0] for name in targets]
        chosen = execution_for(scale, here=False, **execution) if execution else default_execution(scale)
        self.graph = planned[0].graph
        self.rows, self.entries = plan_rows(
            "targets", scale, {one.name: one.graph for one in planned}, [], place, chosen
        )
        self.costs = {row["address"]: row["cost"] for row in self.rows["artifacts"]}

    def cost(self, artifact: Artifact) -> dict[str, Any]:
        return self.costs[artifact.address]

    def trained(self, recipe: str) -> dict[str, Any]:
        return self.cost(self.graph.trained[recipe])


def test_what_targets_share_counts_once(tmp_path: Path) -> None:
    alone = [View(tmp_path, name).rows for name in ("table-9", "figure-2")]
    both = View(tmp_path, "table-9", "figure-2").rows
    hours = [content["to_run"]["gpu_hours"] for content in (*alone, both)]
    first, second = both["targets"]
    new = second["added"]["trained"]
    assert (first["trained"], second["trained"], new) == (6, 5, 3)  # uniform and kappa 0.2 are there
    assert second["to_run"]["gpu_hours"] == pytest.approx(hours[1])
    assert hours[2] == pytest.approx(hours[0] + second["added"]["to_run"]["gpu_hours"])
    assert hours[2] < hours[0] + hours[1]
    addresses = [one["address"] for one in both["artifacts"]]
    assert len(addresses) == len(set(addresses)) < first["run"] + second["run"]


def test_what_the_store_holds_costs_nothing(tmp_path: Path) -> None:
    before = View(tmp_path, "table-9", scale="smoke")
    node = before.graph.trained["table-3/uniform"]

    with Store(tmp_path).building(node.identity) as work:
        assert work is not None
        (work.directory / "made").write_text("x")
    after = View(tmp_path, "table-9", scale="smoke")
    saved = before.rows["to_run"]["disk_bytes"] - after.rows["to_run"]["disk_bytes"]
    assert saved == before.cost(node)["disk_bytes"] > 0


def test_costs_have_a_basis_or_are_absent(tmp_path: Path) -> None:
    paper = View(tmp_path, "table-9")
    uniform = paper.trained("table-3/uniform")
    assert uniform["gpu_hours"] == pytest.approx(30_720 * 5.291 / 3600, rel=0.11)  # measured, two H200
    assert uniform["disk_bytes"] == pytest.approx(2 * 8.03e9, rel=1e-3)
    assert uniform["passing_bytes"] == pytest.approx(3 * 14 * 8.03e9, rel=1e-3)
    assert uniform["memory_bytes"] is not None
    by_stage = {row["stage"]: row["cost"] for row in paper.rows["artifacts"]}
    assert by_stage["score"]["disk_bytes"] == 30_720 * 32_767 * 4
    last = paper.graph.evaluations["table-3/uniform"][-1]
    assert isinstance(last.stage, Evaluate)
    assert paper.cost(last)["gpu_hours"] == pytest.approx(50 * 2.2 / 8 * 8.03e9 / 1.498e9 * 4 / 3600, rel=1e-3)
    other = last.stage.evaluation.perplexity.corpus.model_copy(update={"repo_id": "some/books"})  # PG-19's are known
    assert stage_cost(
        Artifact(replaced(last.stage, {"evaluation.perplexity.corpus": other}), last.inputs), Execution()
    ).unknown == {UNCOUNTED: 1}
    lcde = paper.graph.trained["table-3/lcde"].inputs["chunks"]
    kept = 30_720 * 32_768 * 4
    assert (paper.cost(lcde)["disk_bytes"], paper.cost(lcde)["passing_bytes"]) == (kept, 5 * kept)
    whole = Artifact(replaced(lcde.stage, {"chunking.read": "all"}), lcde.inputs)
    assert stage_cost(whole, Execution()).unknown == {"disk while a corpus of the hub is read whole": 1}
    smoke = View(tmp_path, "table-9", scale="smoke")
    small = smoke.trained("table-3/uniform")
    assert (small["gpu_hours"], small["memory_bytes"]) == (None, None)
    assert small["unknown"] == {"GPU-hours of models smaller than any timed": 1}
    assert {cost["gpu_hours"] for cost in smoke.costs.values()} == {None}


def test_evaluation_costs_what_a_sample_took_times_samples_parameters_and_tokens(tmp_path: Path) -> None:
    shown = View(tmp_path, "table-3")
    size = parameters(published_config(LLAMA3_8B_ID)) / 1_498_482_688
    nodes = shown.graph.evaluations["table-3/uniform"]
    hours = {node.stage.unit.id: shown.cost(node)["gpu_hours"] for node in nodes if isinstance(node.stage, Evaluate)}
    assert hours["ruler/vt/32768"] == pytest.approx(500 * 58.7 / 325 * size * 4 / 3600)
    assert hours["mmlu/anatomy"] == pytest.approx(14_042 / 57 * 21.9 / 1425 * size / 3600)
    assert hours["longbench/qasper"] == pytest.approx(3750 / 16 * 80.3 / 400 * size * 4 / 3600)


def test_a_pretrained_base_has_the_size_of_its_architecture(tmp_path: Path) -> None:
    shown = View(tmp_path, "table-7", scale="smoke")
    config = config_of(shown.graph.trained["table-7/uniform"])
    assert config is not None
    assert (config.model_type, config.hidden_size, config.vocab_size) == ("phi", 160, 4096)


def test_needs_are_named_and_the_token_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda *_, **__: None)
    shown = View(tmp_path, "table-3")

    def found(**changes: Any) -> dict[str, str]:
        how = default_execution("paper").model_copy(update=changes)
        return {f"{need.kind} {need.name}": need.status for need in needs(shown.graph, shown.entries, how)}

    for token, status in ((None, "missing"), ("hf_x", "ok")):
        monkeypatch.setattr("huggingface_hub.get_token", lambda token=token: token)
        assert found()["credential hub token"] == status
    assert found()[f"model {LLAMA3_8B_ID}"] == "fetch"
    assert found()["data emozilla/pg19"] == "fetch"
    assert found()["data ruler.haystack"] == "missing"
    assert "package deepspeed" in found()
    assert "package deepspeed" not in found(deepspeed_stage=0)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert found()["data emozilla/pg19"] == "missing"
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda *_, **__: "config.json")
    assert found()[f"model {LLAMA3_8B_ID}"] == "ok"
    assert "credential hub token" not in found()


def test_nothing_is_needed_of_the_hub_at_smoke(tmp_path: Path) -> None:
    shown = View(tmp_path, "table-3", scale="smoke")
    assert shown.rows["needs"] == []


def test_memory_follows_the_processes(tmp_path: Path) -> None:
    few, many = (View(tmp_path, "table-9", processes=processes) for processes in (2, 8))
    memory = [one.trained("table-3/uniform")["memory_bytes"] for one in (few, many)]
    assert memory[0] - memory[1] == pytest.approx(18 * 8.03e9 * (1 / 2 - 1 / 8), rel=1e-3)


def test_the_text_says_what_the_data_says(tmp_path: Path, run_command: RunCommand) -> None:
    arguments = ("plan", "figure-3", "--scale", "paper")
    code, out, _ = run_command(tmp_path, *arguments)
    _, data, _ = run_command(tmp_path, *arguments, "--json")
    content, text = json.loads(data), " ".join(out.split())
    assert code == 0
    assert f"GPU-hours: {content['to_run']['gpu_hours']:,.0f} on H200" in text
    assert "not known: GPU-hours of evaluation by pmi, which was not timed (1)" in text


def test_several_targets_are_a_line_each_and_a_sum(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = View(tmp_path, "table-9", "figure-2")
    print_plan(shown.rows, everything=False)
    cells = {name: row for name, *row in (line.split("\t") for line in capsys.readouterr().out.splitlines()) if row}
    assert list(cells)[-3:] == ["table-9", "figure-2", "shared once"]
    assert cells["shared once"][2:4] == ["9", f"{shown.rows['to_run']['gpu_hours']:,.0f}"]
    assert cells["figure-2"][2] == "5 (3)"
    print_plan(shown.rows, everything=True)
    assert "\nevaluate\t" in capsys.readouterr().out


def test_a_row_with_the_name_of_its_recipe_is_named_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = "{{label: {}, recipe: table-3/uniform, set: {{training.steps: {}}}}}"
    own = f"name: own\nbenchmarks: [mmlu]\nrows: [{row.format('uniform', 5)}, {row.format('again', 6)}]\n"
    print_plan(View(tmp_path, own, scale="smoke").rows, everything=True)
    recipes = {line.split("\t")[-1] for line in capsys.readouterr().out.splitlines()}
    assert {"uniform", "uniform again"} <= recipes


def test_evaluations_of_one_model_name_every_row_that_they_are_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [f'{{label: "{n}", recipe: table-3/uniform, set: {{evaluation.mmlu.samples: {n}}}}}' for n in (1, 2)]
    print_plan(View(tmp_path, f"name: own\nbenchmarks: [mmlu]\nrows: [{', '.join(rows)}]\n", scale="smoke").rows, True)
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("evaluate"))
    assert line.split("\t")[1:5:3] == ["114 units (mmlu 114)", "all"]


def test_a_plan_loads_no_torch(tmp_path: Path) -> None:
    code = (
        "import sys; sys.argv = ['tokenweight', 'plan', 'table-9', '--scale', 'paper', '--json']\n"
        "from tokenweight.cli import main; main()\n"
        "print([m for m in ('torch', 'transformers', 'prefect') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("[]")
