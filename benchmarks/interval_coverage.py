"""How often the reports' intervals and tests are wrong, by simulation: `python benchmarks/interval_coverage.py [--repeats 2000]`.

Two models without a true difference, each trained with several seeds and measured on the same items. Scores are binary (an
accuracy), bounded with many zeros (an F1), or skewed (an NLL). Seeds and items both move the difference: `seeds` is the share
of its variance that comes from seeds. Level: how often p is below 0.05. Coverage: how often the interval of one model's
value holds the mean over all seeds and items. One seed: its test is over samples alone, so that with a share of 0 it holds
its level, and with any other it finds what another seed would not show.
"""

from __future__ import annotations

import argparse
from itertools import product

import numpy as np

from tokenweight.reports.statistics import bootstrap_means, over_seeds_and_samples

METRICS = {"binary": 650, "bounded": 200, "skewed": 100}  # items
SEEDS = (1, 3, 5, 10)
SHARES = (0.0, 0.1, 0.5, 0.9)
ITEM_SIGMA = 1.5  # of an item's difficulty, in logits (skewed: a fifth of it, in log nats)
OWN_SIGMA = 0.7  # of what one model makes of one item


def scores(metric: str, logits: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Scores of items from their logits, of any shape."""
    if metric == "skewed":
        skewed: np.ndarray = np.exp(0.2 * logits + random.normal(0, 0.3, logits.shape))
        return skewed
    solved: np.ndarray = (random.random(logits.shape) < 1 / (1 + np.exp(-logits))).astype(np.float64)
    if metric != "binary":
        solved *= random.random(logits.shape)
    return solved


def simulated(
    metric: str, seeds: int, items: int, share: float, repeats: int, random: np.random.Generator
) -> np.ndarray:
    """Scores of two models without a true difference: [2, repeats, seeds, items]."""
    own = random.normal(0, OWN_SIGMA, (2, repeats, 1, items))
    # Of a mean over items: so much that `share` of the difference's variance over single runs comes from seeds.
    of_seed = np.sqrt(share / (1 - share) * (OWN_SIGMA**2 + 1.0) / items)
    effects = random.normal(0, of_seed, (2, repeats, seeds, 1))
    logits = random.normal(0, ITEM_SIGMA, (1, repeats, 1, items)) + own + effects
    return scores(metric, logits, random)


def measure(metric: str, seeds: int, share: float, repeats: int) -> tuple[float, float]:
    """Level of the test of a difference, and coverage of the interval of a value."""
    random, items = np.random.default_rng(seeds * 1000 + int(share * 100)), METRICS[metric]
    both = simulated(metric, seeds, items, share, repeats, random)
    truth = simulated(metric, 1, 1000, share, 2000, random).mean()
    found, held = 0, 0
    for values, is_difference in ((both[0] - both[1], True), (both[0], False)):
        draws = bootstrap_means("simulated", values.reshape(-1, items)).reshape(repeats, seeds, -1)
        for runs, drawn in zip(values.mean(axis=2), draws, strict=True):
            mean = over_seeds_and_samples(runs, drawn, items - 1)
            low, high = mean.interval_95()
            found += is_difference and mean.p_zero() < 0.05
            held += not is_difference and low <= truth <= high
    return found / repeats, held / repeats


def main() -> None:
    """A line for each metric, number of seeds and share."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=1000)
    repeats = parser.parse_args().repeats
    print("| metric | seeds | share of seeds | level | coverage |\n| --- | ---: | ---: | ---: | ---: |")
    for metric, seeds, share in product(METRICS, SEEDS, SHARES):
        level, coverage = measure(metric, seeds, share, repeats)
        print(f"| {metric} | {seeds} | {share:g} | {level:.3f} | {coverage:.3f} |", flush=True)


if __name__ == "__main__":
    main()
