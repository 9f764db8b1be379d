"""Token weighting for any HF Trainer, without this project's pipeline."""

import hashlib
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from tokenweight.weighting.head import install_head
from tokenweight.weighting.scores import weighting as register
from tokenweight.weighting.settings import Weighting
from tokenweight.weighting.step import weighted_step
from tokenweight.weighting.windows import plan_windows, score_windows

SHORT_NLL = "short_nll"
_IGNORED = -100  # the label of a token that is not learned, as everywhere in transformers


def add_token_weighting(
    trainer: Any,
    weighting: Weighting | Callable[..., Tensor],
    *,
    short_tokens: int,
    stride_tokens: int,
    bos_token_id: int | None = None,
    windows_per_batch: int = 4,
    seed: int = 0,
) -> None:
    """Give a transformers.Trainer the paper's loss; its loop, optimizer and arguments stay as they are.

    `weighting` may be a function of one's own as :mod:`.scores` has them, whose values are the weights as they are (`raw`: they
    average to what they average to); for a score, register it and give a `Weighting` of its name.
    Batches need `input_ids` [B, N]. Padding (`attention_mask` [B, N], on either side), labels of -100 and packed documents
    (`position_ids` [B, N] that begin at 0 with each) are left out of windows, weights and loss as if each document came
    alone; weights average to 1 over a document's labels. With a column `short_nll` [B, N - 1] that frozen scorer's NLL
    is used; without one the model scores itself on windows of `short_tokens` (unfrozen), and a document without a longer
    context has a score of 0 (a batch of none but those is warned of). Random ties depend on the seed and the document's own tokens.

    The loss is a mean over labels, of all micro-batches of a step where the Trainer counts them. Evaluation gives the
    plain NLL as `eval_loss`, which compares with a run without weights, and `eval_weighted_loss`.

    Raises:
        ValueError: at once, for a model whose NLL the head cannot give (:func:`install_head`); in a step, for a mask
            with holes, or labels that are neither the tokens nor -100.
    """
    if not isinstance(weighting, Weighting):
        register(weighting.__name__)(weighting)
        weighting = Weighting(score=weighting.__name__, postprocessing="raw")
    install_head(trainer.model)
    trainer._set_signature_columns_if_needed()
    trainer._signature_columns.append(SHORT_NLL)  # a Trainer removes columns that the model's forward does not name
    weighted_sums = _report_weighted_loss(trainer)

    def compute_loss(
        model: nn.Module, inputs: dict[str, Tensor], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        token_ids, lengths, scored, short_nll = _documents(inputs)
        unfrozen = weighting.needs_short_nll and short_nll is None
        if unfrozen:
            if max(lengths) <= short_tokens:
                warnings.warn(
                    f"short_tokens {short_tokens}: no document of the batch is longer ({max(lengths)} tokens), so that every "
                    "score is 0; lower it",
                    stacklevel=2,
                )
            short_nll = torch.zeros(scored.shape, device=token_ids.device)
            for length in set(lengths):
                if length > short_tokens:
                    rows = [row for row, own in enumerate(lengths) if own == length]
                    short_nll[rows, : length - 1] = score_windows(
                        model,
                        token_ids[rows, :length],
                        plan_windows(length, short_tokens, stride_tokens),
                        bos_token_id=bos_token_id,
                        windows_per_batch=windows_per_batch,
                        first_window=False,
                    )
        own_first_window = None  # or a plan whose first window is that of every document, however short
        if unfrozen or weighting.own_first_window:
            longest = max(lengths)
            stride = min(stride_tokens, short_tokens - 1, longest - 1)
            own_first_window = plan_windows(longest, min(short_tokens, longest), stride)
        step = weighted_step(
            model,
            token_ids,
            weighting,
            sequence_ids=[_content_id(ids[:own]) for ids, own in zip(token_ids, lengths, strict=True)],
            seed=seed,
            short_nll=short_nll,
            own_first_window=own_first_window,
            scored=scored,
        )
        loss = step.loss
        if not model.training:
            samples = len(inputs["input_ids"])
            weighted_sums.add_(torch.tensor([float(loss) * samples, samples], dtype=torch.float64))
            loss = step.nll[scored].mean()
        # A Trainer that has counted the labels of all micro-batches does not divide by their number any more.
        trainer.loss_is_scaled_for_ga = num_items_in_batch is not None
        if num_items_in_batch is not None:
            processes = trainer.accelerator.num_processes if trainer.args.average_tokens_across_devices else 1
            loss = loss * scored.sum() * processes / num_items_in_batch
        return (loss, {"nll": step.nll}) if return_outputs else loss

    trainer.compute_loss = compute_loss


def _documents(inputs: dict[str, Tensor]) -> tuple[Tensor, list[int], Tensor, Tensor | None]:
    """The documents of a batch, one a row, padded behind, where a causal model never looks.

    Their token ids int64 [D, L] and lengths; the predictions that count, bool [D, L - 1]; their short NLL fp32 [D, L - 1].
    """
    ids, labels, short_nll = inputs["input_ids"], inputs.get("labels"), inputs.get(SHORT_NLL)
    if labels is not None and not bool(((labels == ids) | (labels == _IGNORED)).all()):
        raise ValueError(
            f"labels: differ from input_ids where they are not {_IGNORED}; weights are of the text's own tokens"
        )
    places = [(row, start, stop) for row in range(len(ids)) for start, stop in _spans(inputs, row) if stop - start > 1]
    if not places:
        raise ValueError("input_ids: the batch has no document of two tokens or more")

    def padded(values: Tensor, first: int = 0, last: int = 0) -> Tensor:
        return pad_sequence([values[row, start + first : stop - last] for row, start, stop in places], batch_first=True)

    counts = torch.ones_like(ids, dtype=torch.bool) if labels is None else labels != _IGNORED
    short = None if short_nll is None else padded(short_nll, last=1)
    return padded(ids), [stop - start for _, start, stop in places], padded(counts, first=1), short


def _spans(inputs: dict[str, Tensor], row: int) -> list[tuple[int, int]]:
    mask, positions = inputs.get("attention_mask"), inputs.get("position_ids")
    tokens = inputs["input_ids"].shape[1]
    first, stop = 0, tokens
    if mask is not None:
        if mask.ndim != 2:
            raise ValueError(
                f"attention_mask: has shape {tuple(mask.shape)}, not [B, N]; give position_ids for packed documents"
            )
        seen = mask[row].nonzero()[:, 0].tolist()
        if not seen:
            return []
        first, stop = seen[0], seen[-1] + 1
        if stop - first != len(seen):
            raise ValueError("attention_mask: has holes; give position_ids for packed documents")
    starts = [first]
    if positions is not None:
        starts += [start for start in (positions[row] == 0).nonzero()[:, 0].tolist() if first < start < stop]
    return list(zip(starts, [*starts[1:], stop], strict=True))


def _report_weighted_loss(trainer: Any) -> Tensor:
    """Have an evaluation report its weighted loss beside the plain one: by two sums, of loss times samples and of samples."""
    sums = torch.zeros(2, dtype=torch.float64)
    evaluation_loop, prediction_step = trainer.evaluation_loop, trainer.prediction_step

    def with_weighted_loss(*given: Any, **named: Any) -> Any:
        sums.zero_()
        output = evaluation_loop(*given, **named)
        total, samples = trainer.accelerator.reduce(sums.to(trainer.args.device), "sum").tolist()
        if samples:
            output.metrics[f"{named.get('metric_key_prefix', 'eval')}_weighted_loss"] = total / samples
        return output

    def with_labels(model: Any, inputs: dict[str, Any], *given: Any, **named: Any) -> Any:
        """A Trainer computes no loss of a batch without labels."""
        return prediction_step(model, {"labels": inputs["input_ids"], **inputs}, *given, **named)

    trainer.evaluation_loop, trainer.prediction_step = with_weighted_loss, with_labels
    return sums


def _content_id(token_ids: Tensor) -> int:
    digest = hashlib.sha256(token_ids.cpu().numpy().astype("<u4").tobytes()).digest()
    return int.from_bytes(digest[:8], "little")
