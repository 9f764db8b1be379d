"""Run by test_sequence_parallel under torch.distributed.run: weighted steps on shared sequences, saved by each rank."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist

from tokenweight.recipes.schema import Execution, Weighting
from tokenweight.training.kernels import checkpoint_activations
from tokenweight.training.models import load_model
from tokenweight.training.sequence_parallel import share_sequences
from tokenweight.weighting import plan_windows, score_windows, weighted_step


def steps(model, ids, short_nll, cases, shard=None):
    """By case: loss, NLL, weights and gradients of one step, and of scoring its short NLL."""
    plan, results = plan_windows(64, 16, 12), {}
    for name, (weighting, kind) in cases.items():
        model.train()
        model.zero_grad()
        scores = {"frozen": short_nll, "none": None}
        if kind == "unfrozen":
            scores["unfrozen"] = score_windows(
                model, ids, plan, bos_token_id=1, windows_per_batch=3, first_window=False, shard=shard
            )
        step = weighted_step(
            model,
            ids,
            Weighting.model_validate(weighting),
            sequence_ids=range(len(ids)),
            seed=3,
            short_nll=scores[kind],
            own_first_window=plan if kind == "unfrozen" else None,
            shard=shard,
        )
        step.loss.backward()
        results[name] = {
            "loss": step.loss.detach(),
            "nll": step.nll,
            "weights": step.weights,
            "short_nll": scores[kind],
            "gradients": {n: p.grad.clone() for n, p in model.named_parameters()},
        }
    return results


if __name__ == "__main__":
    given = torch.load(sys.argv[1])
    dist.init_process_group("gloo")
    execution = Execution(launcher="torchrun", processes=2, sequence_parallel=2, device="cpu")
    model = load_model(Path(given["model_dir"]), torch.float32)
    shard = share_sequences(model, execution, 64)
    results = steps(model, given["ids"], given["short_nll"], given["cases"], shard)
    checkpoint_activations(model, "keep_attention")
    results["checkpointed"] = steps(model, given["ids"], None, {"uniform": given["cases"]["uniform"]}, shard)["uniform"]
    torch.save(results, f"{sys.argv[2]}-{dist.get_rank()}.pt")
    dist.barrier()
    dist.destroy_process_group()
