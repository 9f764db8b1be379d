"""The published study of scale mini: its page has the table's numbers, and these come again from the samples in its records."""

import io
import json
import math
import re
import statistics
import tarfile
from collections import defaultdict
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from scipy import stats

PUBLISHED = Path(__file__).parents[2] / "reports/results/mini"
TARGETS = Path(__file__).parents[2] / "reports/targets"
KEYS = {
    "not trained": "no-train-4k", "uniform": "uniform", "unfrozen sparse 0.2": "unfrozen-sparse",
    "unfrozen dense 0.75": "unfrozen-dense", "frozen sparse 0.4": "frozen-sparse", "frozen dense 0.75": "frozen-dense",
    "LongCE": "long-ce", "EXACT": "exact", "LongFilter": "longfilter", "rho-1": "rho-1",
}  # fmt: skip
COLUMNS = {
    "nll-long_recall": 3, "nll-short_context": 3, "longppl": 2, "perplexity-all": 2, "ruler-chosen": 1, "ruler": 1,
}  # fmt: skip
WARMUP = 25  # steps, as the recipe has it
SEEDS = 4
Records = dict[str, bytes]  # content by path in the store, of all archives


def told() -> str:
    return " ".join((PUBLISHED / "README.md").read_text().split())


@pytest.fixture(scope="module")
def records() -> Records:
    found: Records = {}
    for path in sorted(PUBLISHED.glob("records*.tar.xz")):
        with tarfile.open(path) as archive:
            for member in archive:
                if member.isfile() and (file := archive.extractfile(member)):
                    found[member.name] = file.read()
    return found


def training(records: Records) -> dict[str, dict[int, list[dict[str, Any]]]]:
    """Every step of each training, by what was trained and by seed."""
    found = defaultdict[str, dict[int, list[dict[str, Any]]]](dict)
    for path, content in records.items():
        if path.startswith("train/") and path.endswith("/metrics.jsonl"):
            name, seed = re.fullmatch(r"train/(.+?)(?:-seed(\d+))?-[0-9a-f]{8}/metrics.jsonl", path).groups()  # type: ignore[union-attr]
            found[name][int(seed or 0)] = [json.loads(line) for line in content.decode().splitlines()]
    return found


def read(name: str) -> tuple[Any, dict[tuple[str, str], dict[str, Any]]]:
    """A published report, and its cells by row and column."""
    report = json.loads((PUBLISHED / f"{name}.json").read_text())
    columns = [column["key"] for column in report["columns"]]
    rows = report["rows"]
    return report, {(row["key"], key): cell for row in rows for key, cell in zip(columns, row["cells"], strict=True)}


@pytest.fixture(scope="module")
def report() -> Any:
    return read("study")[0]


@pytest.fixture(scope="module")
def cells() -> dict[tuple[str, str], dict[str, Any]]:
    return read("study")[1]


def test_the_page_has_the_tables_values(cells: dict[tuple[str, str], dict[str, Any]]) -> None:
    lines = [line.strip("|").split("|") for line in (PUBLISHED / "README.md").read_text().splitlines()]
    told = {line[0].strip(): [value.strip() for value in line[1:]] for line in lines if len(line) == 7}
    assert told.keys() >= KEYS.keys()
    for label, key in KEYS.items():
        expected = [f"{cells[key, column]['value']:.{decimals}f}" for column, decimals in COLUMNS.items()]
        assert told[label] == expected, label


def test_the_page_has_the_findings_numbers(report: Any) -> None:
    page = told()
    for number, decimals in ((4, 2), (5, 2), (6, 2), (9, 3), (10, 3)):
        finding = report["findings"][number - 1]
        assert finding["claim"].startswith(f"{number}. ")
        low, high, value = (f"{finding[key]:.{decimals}f}" for key in ("ci_low", "ci_high", "difference"))
        assert re.search(rf"{re.escape(value)} \[{re.escape(low)}, {re.escape(high)}\]", page), finding["claim"]


def test_the_page_has_the_numbers_of_its_sentences(report: Any, cells: dict[tuple[str, str], dict[str, Any]]) -> None:
    page = told()
    findings = {int(one["claim"].partition(".")[0]): one for one in report["findings"]}
    corrected = {number: one["p_corrected"] for number, one in findings.items()}
    alone = {number: one["p"] for number, one in findings.items()}
    assert max(corrected[number] for number in (4, 5, 6)) < 0.001
    assert f"(p {corrected[10]:.3f})" in page
    assert f"(each p {corrected[9]:.2f}; {alone[9]:.2f} and {alone[14]:.2f} alone)" in page
    assert f"{corrected[9]:.2f}" == f"{corrected[14]:.2f}"
    size = {number: f"{abs(one['difference']):.3f}" for number, one in findings.items()}
    assert f"by {size[2]} and {size[3]} nats" in page
    assert f"so does rho-1, by {size[14]} (" in page
    assert f"than uniform (by {size[1]}), EXACT ({size[11]}), LongFilter ({size[12]})" in page
    assert f"(it is {size[7]} better than frozen sparse" in page
    assert f"LongCE is, by {size[13]}, with every seed (p {corrected[13]:.2f}; {alone[13]:.2f} alone)" in page
    better = [
        a - b
        for a, b in zip(*(cells[row, "nll-long_recall"]["by_seed"] for row in ("uniform", "frozen-dense")), strict=True)
    ]
    assert f"(it is better by {size[8]}, with seed 3 by {better[3]:.3f})" in page
    short = [cells[row, "nll-short_context"]["difference"] for row in ("unfrozen-sparse", "frozen-sparse")]
    assert f"by {-short[0]['value']:.3f} and {-short[1]['value']:.3f}, p < 0.05" in page
    assert max(one["p_corrected"] for one in short) < 0.05
    pays = cells["long-ce", "perplexity-all"]["difference"]
    assert f"with {pays['value']:.2f} [{pays['ci_low']:.2f}, {pays['ci_high']:.2f}] of perplexity" in page
    rho, npmi = (cells[row, "ruler"]["difference"] for row in ("rho-1", "npmi"))
    lost = f"{-rho['value']:.1f} [{-rho['ci_high']:.1f}, {-rho['ci_low']:.1f}], p {rho['p']:.3f} alone"
    assert f"(rho-1 {lost}, {rho['p_corrected']:.2f} over all tests of the table; NPMI" in page
    assert f"NPMI {-npmi['value']:.1f}, p {npmi['p']:.3f} alone)" in page
    dense = cells["unfrozen-dense", "ruler"]["difference"]
    won = f"{dense['value']:.1f} [{dense['ci_low']:.1f}, {dense['ci_high']:.1f}] (p {dense['p']:.3f} alone, "
    assert f"by {won}{dense['p_corrected']:.2f} over all tests)" in page
    seeds = {row: cells[row, "ruler"]["by_seed"] for row in KEYS.values()}
    above = [row for row, values in seeds.items() if all(a > b for a, b in zip(values, seeds["uniform"], strict=True))]
    assert above == ["unfrozen-dense"]
    assert f"only PPMI has a better LongPPL ({cells['ppmi', 'longppl']['value']:.2f})" in page


def test_what_was_to_be_checked_first_is_so(cells: dict[tuple[str, str], dict[str, Any]], records: Records) -> None:
    """The plan's conditions, by the records: bases recall; no gradient norm behind the warm-up is thrice its row's median."""
    bases = [key for key in records if "pretrained--planted-recall-1024" in key and key.endswith("record.json")]
    recalls = [100 * json.loads(records[key])["facts"]["mean_score"] for key in bases]
    trained = [steps for by_seed in training(records).values() for steps in by_seed.values()]
    norms = [[step["grad_norm"] for step in steps] for steps in trained]
    greatest = max(max(norm[WARMUP:]) / statistics.median(norm[WARMUP:]) for norm in norms)
    seconds = [sum(step["seconds"] for step in steps) for steps in trained]
    assert (len(recalls), len(trained)) == (SEEDS, 14 * SEEDS)
    beyond = [norm for norm in norms if max(norm[WARMUP:]) > 3 * statistics.median(norm[WARMUP:])]
    assert [round(max(norm[WARMUP:]), 2) for norm in beyond] == [0.74]
    assert beyond[0].index(max(beyond[0][WARMUP:])) == 28
    extended = cells["no-train-4k", "recall-1k"]["value"]
    page = told()
    assert f"bases recall {statistics.fmean(recalls):.1f} % of planted facts within 1,024 tokens" in page
    assert f"(extended ones {extended:.1f} %)" in page
    assert f"one of the {sum(len(norm[WARMUP:]) for norm in norms):,} steps behind the warm-up" in page
    assert f"(dense frozen, seed 3, step 29: {greatest:.2f} times; 0.74)" in page
    assert f"a rise of gradient norms, to {max(max(norm[:WARMUP]) for norm in norms):.1f} at most" in page
    assert f"a row's training {min(seconds):.0f} (the last, LCDE) to {max(seconds):.0f} s" in page
    spent = [seconds for row, seconds in evaluation_seconds(records).items() if "-files-" in row]
    assert len(spent) == 14 * SEEDS
    assert f"its evaluation {min(spent):.0f} to {max(spent):.0f} s of one such process" in page


def evaluation_seconds(records: Records) -> dict[str, float]:
    """By what was evaluated: units of one benchmark and length are asked together, so their times overlap."""
    pieces = defaultdict[tuple[str, str, Any], list[tuple[float, float]]](list)
    for path, content in records.items():
        if path.startswith("evaluate/") and path.endswith("/record.json"):
            record = json.loads(content)
            unit, started = record["config"]["unit"], datetime.fromisoformat(record["started"]).timestamp()
            checkpoint = record["inputs"]["checkpoint"]
            key = f"{path.split('/')[1].partition('--')[0]} {checkpoint}", unit["benchmark"], unit.get("length_tokens")
            pieces[key].append((started, started + record["wall_seconds"]))
    spent = defaultdict[str, float](float)
    for (row, *_), times in pieces.items():
        until = 0.0
        for start, end in sorted(times):
            spent[row] += max(0.0, end - max(start, until))
            until = max(until, end)
    return spent


def test_which_gaps_stand_still_is_what_the_curves_say(records: Records) -> None:
    curves = training(records)
    (uniform,) = (by_seed for row, by_seed in curves.items() if row.endswith("files-d1cf7e-4096-uniform"))

    def gap(row: str, steps: range) -> float:
        return statistics.fmean(
            curves[row][seed][step]["nll"] - uniform[seed][step]["nll"] for seed in range(SEEDS) for step in steps
        )

    same = [row for row in curves if "lcde" not in row and "longfilter" not in row]  # as uniform's sequences
    gaps = {row.rpartition("-4096-")[2]: (gap(row, range(50, 60)), gap(row, range(90, 100))) for row in same}
    growing = {row: ends for row, ends in gaps.items() if abs(ends[1] - ends[0]) > 0.004}
    names = {
        "frozen-sparse-0.4": "frozen sparse", "unfrozen-raw-long_ce": "LongCE", "frozen-sparse-0.4-excess": "rho-1 and NPMI",
        "frozen-sparse-0.4-npmi": "rho-1 and NPMI", "frozen-sparse-0.4-ppmi": "PPMI",
    }  # fmt: skip
    assert growing.keys() == names.keys()
    page = told()
    for row, (first, last) in growing.items():
        decimals = 2 if last > 0.5 else 3
        assert f"{names[row]} {first:.{decimals}f} to {last:.{decimals}f}" in page


def test_what_ruler_can_move_is_what_the_bases_say(records: Records) -> None:
    """plan.md's rule: tasks and lengths at which the extended bases score between 5 and 95 %, averaged over the seeds."""
    scores = defaultdict[tuple[int, str], list[float]](list)
    for key, content in records.items():
        if "pretrained-abf-4096--ruler-" in key and key.endswith("record.json"):
            record = json.loads(content)
            unit = record["config"]["unit"]
            scores[unit["length_tokens"], unit["task"]].append(100 * record["facts"]["mean_score"])
    assert {len(found) for found in scores.values()} == {SEEDS}
    columns = yaml.safe_load((PUBLISHED / "study.yaml").read_text())["columns"]
    measures = [column["measure"] for column in columns if "measure" in column]
    chosen = {(one["length_tokens"], task) for one in measures if one["kind"] == "task-mean" for task in one["tasks"]}
    assert chosen == {key for key, found in scores.items() if 5 <= statistics.fmean(found) <= 95}
    for (length, task), name in {
        (1024, "niah_multikey_2"): "niah_multikey_2 at 1,024 tokens",
        (2048, "qa_2"): "qa_2 at 2,048",
    }.items():
        assert f"{name} ({statistics.fmean(scores[length, task]):.1f} %)" in told()


def test_what_cannot_be_said_is_what_the_seeds_say(cells: dict[tuple[str, str], dict[str, Any]]) -> None:
    page = told()
    seeds = {row: cell["by_seed"] for (row, column), cell in cells.items() if column == "ruler" and cell["by_seed"]}
    trained = {row: values for row, values in seeds.items() if not row.startswith("no-train")}
    apart = sorted(max(values) - min(values) for values in trained.values())
    assert f"seeds of one row are {apart[0]:.1f} to {apart[-1]:.1f} apart" in page
    best = [max(trained, key=lambda row: trained[row][seed]) for seed in range(SEEDS)]
    assert best == ["frozen-sparse", "ppmi", "sppmi", "longfilter"]
    assert "frozen sparse is first with seed 0, PPMI with seed 1, sPPMI with seed 2, LongFilter with seed 3" in page
    losing = {"rho-1", "npmi", "no-train-1k", "no-train-4k", "uniform"}
    away = [
        abs(cell["difference"]["value"])
        for (row, column), cell in cells.items()
        if column in ("ruler", "ruler-chosen") and row not in losing
    ]
    assert 0.8 < max(away) < 0.9
    assert "are within 0.9 points of uniform" in page
    long_ce, uniform = (cells[row, "nll-long_recall"]["by_seed"] for row in ("long-ce", "uniform"))
    assert f"(uniform {', '.join(f'{value:.3f}' for value in uniform)})" in page
    ratios = {}
    for row in ("long-ce", "sppmi", "unfrozen-sparse", "unfrozen-dense", "frozen-sparse", "rho-1", "npmi"):
        values = np.log(np.divide(cells[row, "nll-long_recall"]["by_seed"], uniform))
        half = stats.t.ppf(0.975, SEEDS - 1) * stats.sem(values)
        mean, low, high = (f"{value:.2f}" for value in np.exp(values.mean() + np.array([0, -half, half])))
        ratios[row] = f"{mean} [{low}, {high}]"
    p = stats.ttest_1samp(np.log(np.divide(long_ce, uniform)), 0).pvalue
    assert f"LongCE is at {ratios['long-ce']} (geometric mean; p {p:.3f}), sPPMI at {ratios['sppmi']}" in page
    assert f"unfrozen sparse at {ratios['unfrozen-sparse']}, unfrozen dense at {ratios['unfrozen-dense']}" in page
    assert (
        f"frozen sparse at {ratios['frozen-sparse']}; rho-1 and NPMI at {ratios['rho-1']} and {ratios['npmi']}" in page
    )


def test_where_the_disagreement_lies_is_what_the_target_planted_says() -> None:
    report, cells = read("planted")
    page = told()
    kinds = {"long_recall": "long recalls", "short_recall": "short recalls", "name": "names", "introduction": "introductions",
             "hard": "hard", "easy": "easy tokens"}  # fmt: skip
    means = [f"{cells['uniform', f'abs_pmi-{key}']['value']:.2f} at {label}" for key, label in kinds.items()]
    assert f"{means[0]}, {means[1]}, {means[2]}, {means[3]}, {means[4]} and {means[5]}" in page
    auc = {row: cell["value"] for (row, column), cell in cells.items() if column == "auc"}
    assert (
        f"{auc.pop('no-train-32k'):.3f} before training, {min(auc.values()):.3f} to {max(auc.values()):.3f} after"
        in page
    )
    appear = [found for found in report["findings"] if found["seeds_holding"] == SEEDS and found["p_corrected"] < 0.05]
    assert f"Of its {len(report['findings'])} claims {len(appear)} appear" in page.replace("fifteen", "15").replace(
        "four appear", "4 appear"
    )
    never = [found for found in report["findings"] if not found["seeds_holding"]]
    reversed_ = [found for found in never if found["p_corrected"] < 0.05]
    assert len(never) == 4
    for found, name in zip(
        reversed_, ("better than dense unfrozen at short context", "lower NLL than uniform"), strict=True
    ):
        assert f"{name} (by {-found['difference']:.3f}, p {found['p_corrected']:.3f})" in page
    names = (
        "PPMI is bad",
        "NPMI keeps it better than uniform",
        "shifting tempers PPMI",
        "dense frozen is alike uniform",
    )
    for found, name in zip(appear, names, strict=True):
        assert re.search(rf"{name}[^)]*\(.*?p {found['p_corrected']:.3f}", page), found["claim"]


@pytest.mark.parametrize("name", ["study", "planted"])
def test_values_come_again_from_the_samples(name: str, records: Records) -> None:
    """By plain code over every sample's score: means of seeds, of tasks, of documents."""
    cells = read(name)[1]
    wanted = {address for cell in cells.values() for address in cell["addresses"]}
    scores = {
        address: pd.read_parquet(io.BytesIO(records[f"{address}/rows.parquet"]), columns=["score"])["score"]
        for address in wanted
    }
    for (row, column), cell in cells.items():
        if cell["status"] != "complete" or (name == "study" and column not in COLUMNS):
            continue
        means = [scores[address].mean() for address in cell["addresses"]]
        if column == "ruler-chosen":  # other tasks at each length
            lengths = pd.Series(means).groupby([address.split("-")[-2] for address in cell["addresses"]])
            means = list(lengths.mean())
        if column in ("longppl", "perplexity-all"):  # a unit a seed
            means = [math.exp(mean) for mean in means]
        value = sum(means) / len(means) * (100 if column.startswith(("ruler", "recall")) else 1)
        assert cell["value"] == pytest.approx(value, rel=1e-6), (row, column)


@pytest.mark.parametrize(("name", "file"), [("study", PUBLISHED / "study.yaml"), ("planted", TARGETS / "planted.yaml")])
def test_findings_come_again_from_the_samples(name: str, file: Path, records: Records) -> None:
    """Differences exactly; intervals and p by formula, where the report resamples: two-way random effects (docs/statistics.md)."""

    def scores(row: str, column: str) -> Any:  # [seeds, samples]
        tables = [pd.read_parquet(io.BytesIO(records[f"{at}/rows.parquet"])) for at in cells[row, column]["addresses"]]
        return np.array([table.sort_values("doc_id")["score"] for table in tables])

    report, cells = read(name)
    claims = yaml.safe_load(file.read_text())["findings"]
    for claim, found in zip(claims, report["findings"], strict=True):
        sides = [scores(claim[side], claim["column"]) for side in ("higher", "lower")]
        means = [side.mean(axis=1) for side in sides]
        parts = sides
        if claim["column"] == "perplexity-all":  # what a document moves of exp(mean NLL), to first order
            means = [np.exp(mean) for mean in means]
            parts = [side * mean[:, None] for side, mean in zip(sides, means, strict=True)]
        by_seed, by_sample = means[0] - means[1], parts[0] - parts[1]
        seeds, samples = by_sample.shape
        of_seeds = by_seed.var(ddof=1) / seeds
        of_samples = by_sample.mean(axis=0).var(ddof=1) / samples
        of_both = max(0.0, (by_sample.var(axis=1, ddof=1).mean() / samples - of_samples) / (seeds - 1))
        variance = max(of_seeds + of_samples - of_both, of_seeds, of_samples)
        shares = of_seeds**2 + of_samples**2 * (seeds - 1) / (samples - 1) + of_both**2 / (samples - 1)
        df = max(seeds - 1, variance**2 * (seeds - 1) / shares)
        error, difference = math.sqrt(variance), by_seed.mean()
        assert (seeds, samples) == (SEEDS, found["n"])
        assert found["difference"] == pytest.approx(difference, rel=1e-6)
        half = (found["ci_high"] - found["ci_low"]) / 2
        assert half == pytest.approx(stats.t.ppf(0.975, df) * error, rel=0.1), claim["claim"]
        margin = claim.get("within")
        distance = margin - abs(difference) if margin else abs(difference)
        p = stats.t.sf(distance / error, df) * (1 if margin else 2)
        assert math.log(found["p"]) == pytest.approx(math.log(p), rel=0.1, abs=0.1), claim["claim"]
        holding = np.abs(by_seed) < margin if margin else by_seed > 0
        assert found["seeds_holding"] == holding.sum(), claim["claim"]
    least = 0.0  # Holm's: the smallest times their number, the next times one less, never less than one before
    for rank, found in enumerate(sorted(report["findings"], key=lambda one: one["p"])):
        least = max(least, min(1.0, found["p"] * (len(claims) - rank)))
        assert found["p_corrected"] == pytest.approx(least), found["claim"]
