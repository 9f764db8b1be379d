"""Three steps of every weighting against a plain reference in float64: windows, scores, weights, loss, AdamW, spelled out."""

import json
import math
from types import MethodType

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from training_calls import score, train
from transformers import AutoModelForCausalLM

from tokenweight.progress import no_progress
from tokenweight.recipes.schema import Execution, Weighting

N, SHORT, STRIDE, BOS, PER_STEP, STEPS, SEED = 64, 16, 12, 1, 2, 3, 5
# Far from the defaults, so that each of them shows: with a large epsilon AdamW feels the size of gradients, so clipping.
OPTIMISATION = {
    "learning_rate": 1e-2, "warmup_steps": 2, "beta1": 0.7, "beta2": 0.8, "epsilon": 1e-2, "weight_decay": 0.3,
    "gradient_clip": 0.4,
}  # fmt: skip
WEIGHTINGS = {
    "uniform": Weighting(),
    **{
        f"{name} dense": Weighting(score=name, postprocessing="dense", lambda_=0.3)
        for name in ("abs_pmi", "ppmi", "npmi")
    },
    **{
        f"{name} sparse": Weighting(score=name, postprocessing="sparse", kappa=0.25)
        for name in ("abs_pmi", "ppmi", "npmi", "sppmi", "snpmi", "excess")
    },
    "ties": Weighting(postprocessing="sparse", kappa=0.9),  # more than have another score than 0
    **{name: Weighting(score=name, postprocessing="raw") for name in ("long_ce", "focal", "mile")},
}


def double(directory):
    """The model with all of its arithmetic in float64: transformers' norms go by way of float32."""
    model = AutoModelForCausalLM.from_pretrained(
        directory, dtype=torch.float64, attn_implementation="sdpa", attention_dropout=0.0
    )
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm"):
            module.forward = MethodType(norm, module)
    return model


def norm(self, x):
    return self.weight * x / (x.square().mean(-1, keepdim=True) + self.variance_epsilon).sqrt()


def log_probabilities(model, ids):
    return model(input_ids=torch.tensor([ids])).logits[0, :-1].log_softmax(-1)


def nll_of(log_p, ids):
    return -log_p[torch.arange(len(ids) - 1), torch.tensor(ids[1:])]


@torch.no_grad()
def short_nll(model, ids):
    """Each prediction in the first window whose last tokens it is among; BOS in place of a window's first token."""
    starts = sorted({*range(0, N - SHORT, STRIDE), N - SHORT})
    found = [None] * (N - 1)
    for start in reversed(starts):
        window = [BOS, *ids[start + 1 : start + SHORT]]
        for place, value in enumerate(nll_of(log_probabilities(model, window), window).tolist()):
            found[start + place] = value
    return found


def score_of(name, long, short, entropy):
    pmi = short - long
    match name:
        case "abs_pmi":
            return abs(pmi)
        case "ppmi":
            return max(pmi, 0.0)
        case "npmi":
            return max(-pmi, 0.0)
        case "sppmi":
            return max(pmi - math.log(2), 0.0)
        case "snpmi":
            return max(-pmi - math.log(2), 0.0)
        case "excess":
            return -pmi
        case "long_ce":
            return min(math.exp(pmi), 5.0)
        case "focal":
            return (1 - math.exp(-long)) ** 2
    return 1 + entropy


def weights_of(weighting, scores, sequence):
    if weighting.postprocessing == "uniform":
        return [1.0] * (N - 1)
    if weighting.postprocessing == "raw":
        return scores
    if weighting.postprocessing == "dense":
        mean = sum(scores) / len(scores)
        return [weighting.lambda_ + (1 - weighting.lambda_) * one / mean for one in scores]
    count, drawn = round(weighting.kappa * (N - 1)), np.random.default_rng([SEED, sequence]).permutation(N - 1)
    chosen = set(sorted(drawn.tolist(), key=lambda place: -scores[place])[:count])
    return [(N - 1) / count if place in chosen else 0.0 for place in range(N - 1)]


def reference(model_dir, tokens, weighting, scorer_dir=None):
    """The parameters after all steps; of each step the loss and the norm of its gradient."""
    model, scorer = double(model_dir), double(scorer_dir) if scorer_dir else None
    parameters = dict(model.named_parameters())
    first, second = ({name: torch.zeros_like(p) for name, p in parameters.items()} for _ in range(2))
    o, steps = OPTIMISATION, []
    for step in range(1, STEPS + 1):
        loss = torch.zeros((), dtype=torch.float64)
        for sequence in range((step - 1) * PER_STEP, step * PER_STEP):
            ids = tokens[sequence].tolist()
            log_p = log_probabilities(model, ids)
            nll, entropy = nll_of(log_p, ids), -(log_p.exp() * log_p).sum(-1)
            short = short_nll(scorer or model, ids)
            if scorer is None or weighting.score == "long_ce":  # there both contexts are the same
                short[: SHORT - 1] = nll[: SHORT - 1].tolist()
            scores = [
                score_of(weighting.score, *of_one) for of_one in zip(nll.tolist(), short, entropy.tolist(), strict=True)
            ]
            loss = loss + (torch.tensor(weights_of(weighting, scores, sequence)).double() * nll).mean() / PER_STEP
        model.zero_grad()
        loss.backward()
        norm = math.sqrt(sum(float(p.grad.square().sum()) for p in parameters.values()))
        steps.append((loss.item(), norm))
        rate = o["learning_rate"] * (step - 1) / o["warmup_steps"]
        with torch.no_grad():
            for name, p in parameters.items():
                gradient = p.grad * min(1.0, o["gradient_clip"] / norm)
                first[name] = o["beta1"] * first[name] + (1 - o["beta1"]) * gradient
                second[name] = o["beta2"] * second[name] + (1 - o["beta2"]) * gradient**2
                mean, square = first[name] / (1 - o["beta1"] ** step), second[name] / (1 - o["beta2"] ** step)
                p -= rate * (o["weight_decay"] * p + mean / (square.sqrt() + o["epsilon"]))
    return parameters, steps


@pytest.mark.parametrize("name", [*WEIGHTINGS, "frozen long_ce"])
def test_three_steps_are_the_reference_s(
    name, make_request, model_dir, base_dir, chunk_dir, unfrozen, frozen, tmp_path
):
    weighting, scores = WEIGHTINGS[name.removeprefix("frozen ")], None
    scorer = None if name == "uniform" else frozen if name.startswith("frozen") else unfrozen
    if scorer is frozen:
        scores = tmp_path / "scores"
        score(
            base_dir, chunk_dir, scores, scorer=frozen, sequences=STEPS * PER_STEP, execution=Execution(device="cpu"),
            progress=no_progress,
        )  # fmt: skip
    request = make_request(
        steps=STEPS, sequences_per_step=PER_STEP, weighting=weighting, scorer=scorer, score_dir=scores, seed=SEED,
        **OPTIMISATION,
    )  # fmt: skip
    train(request, tmp_path, Execution(device="cpu"), no_progress)
    expected, steps = reference(
        model_dir, np.load(chunk_dir / "tokens.npy"), weighting, base_dir if scorer is frozen else None
    )
    assert steps[-1][1] > OPTIMISATION["gradient_clip"]
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [(row["weighted_nll"], row["grad_norm"]) for row in rows] == [pytest.approx(one, rel=2e-5) for one in steps]
    trained = load_file(tmp_path / "model" / "model.safetensors")
    for parameter, value in expected.items():
        torch.testing.assert_close(trained[parameter].double(), value.detach(), rtol=0, atol=2e-6)
