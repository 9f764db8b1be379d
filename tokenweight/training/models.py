"""Loading a checkpoint for training or scoring: right precision, no dropout, our head, the RoPE that it asks for; its tokenizer.

And the trained one: written, read back, and compared with the trainer before anyone may use it.
"""

import os
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.initialization import no_init_weights
from transformers.integrations.deepspeed import is_deepspeed_zero3_enabled, unset_hf_deepspeed_config

from tokenweight.context.checkpoint_files import RANDOM_SEED, copy_companions, save_config
from tokenweight.context.extend import load_config
from tokenweight.context.rope import assert_rope
from tokenweight.errors import StageError, UserError
from tokenweight.training.fit import check_weights, why
from tokenweight.weighting.head import Rounding, install_head, model_nll

LOGITS_TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 5e-2}  # rms of the difference over rms of the logits


def load_model(
    model_dir: Path, dtype: torch.dtype, *, config: Any = None, rounding: Rounding = "none", check_rope: bool = True
) -> Any:
    """A causal language model with a TokenNLLHead and its parameters in `dtype`.

    Dropout is 0 whatever the configuration says (Phi-2 has 0.1): with it, identical contexts would give
    different NLLs, and so scores that mean nothing. `config` takes the place of the directory's own; `rounding` is the
    head's. `check_rope` False where an engine will still round it. A base of random weights has no
    weights: they are drawn here, under ZeRO-3 each process keeping its share of one layer after the other.
    """
    config = load_config(model_dir) if config is None else config
    for name, value in config.to_dict().items():
        if isinstance(value, float) and name.endswith(("dropout", "pdrop")):
            setattr(config, name, 0.0)
    model = causal_lm(model_dir, dtype, config)
    try:
        install_head(model, rounding)
    except ValueError as error:
        raise UserError(f"{model_dir}: {error}") from error
    if check_rope:
        assert_rope(model, config)
    return model


def causal_lm(model_dir: Path, dtype: torch.dtype, config: Any = None) -> Any:
    """The transformers model of a checkpoint directory; where it has a seed in place of weights, they are drawn now.

    The same with or without ZeRO-3, for any number of processes (on one kind of device). The seed leaves the model's
    configuration. UserError: the files do not hold each of the model's tensors, and nothing else, all finite.
    """
    if config is None:
        config = AutoConfig.from_pretrained(model_dir, local_files_only=True)
    seed = getattr(config, RANDOM_SEED, None)
    if seed is None:
        return _from_files(model_dir, config, dtype)
    sharded = is_deepspeed_zero3_enabled()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        with nullcontext() if sharded else no_init_weights():  # drawn once: under ZeRO-3 by from_config itself
            model = AutoModelForCausalLM.from_config(config, dtype=dtype)
        if not sharded:
            model.init_weights()
    delattr(model.config, RANDOM_SEED)
    return model


def _from_files(model_dir: Path, config: Any, dtype: torch.dtype) -> Any:
    check_weights(model_dir, str(model_dir), config)  # transformers draws what is missing at random, and warns
    config._attn_implementation = None  # as there
    try:
        model: Any = AutoModelForCausalLM.from_pretrained(model_dir, config=config, dtype=dtype, local_files_only=True)
    except Exception as error:  # transformers raises whatever its readers do
        raise UserError(
            f"{model_dir}: cannot be loaded ({why(error)}); give a complete checkpoint of transformers"
        ) from error
    # Where a file holds both and they differ, transformers 5 keeps both, and transformers 4 and vllm one.
    if differing := set(model.get_expanded_tied_weights_keys(all_submodels=True)) - set(model.all_tied_weights_keys):
        raise UserError(
            f"{model_dir}: config.json ties {min(differing)}, and the file holds another; set tie_word_embeddings to false "
            "there"
        )
    for name, tensor in model.named_parameters():
        if not bool(tensor.detach().sum(dtype=torch.float32).isfinite()):
            raise UserError(f"{model_dir}: {name} is not finite; give weights of a training that did not diverge")
    return model


@torch.no_grad()
def check_documents_apart(model: Any, model_dir: Path) -> None:
    """UserError unless position_ids that begin anew hide the document before: its tokens change no NLL of the next one's."""
    if is_deepspeed_zero3_enabled():
        return  # its parameters are elsewhere
    first = torch.tensor([[0, 1, 2, 3], [3, 2, 1, 0]])
    ids = torch.cat([first, torch.arange(4).expand(2, 4)], dim=1)
    one, other = model_nll(model.eval(), ids, position_ids=torch.arange(4).repeat(2, 2))[:, 4:]
    model.train()
    if not torch.allclose(one, other, atol=1e-5):
        raise UserError(
            f"{model_dir.name}: its attention cannot keep documents in a sequence apart; give sequences of one document each"
        )


def head_rounding(*, frozen: bool) -> Rounding:
    """What the head of a model in training, or of a frozen scorer, rounds to bf16: nothing (`parity` may ask for it)."""
    return "none"


def scorer_config(model_dir: Path, short_tokens: int) -> Any:
    """The configuration of a frozen scorer that reads windows of `short_tokens`: its own."""
    return load_config(model_dir)


def resolve_device(device: str, local_rank: int = 0) -> torch.device:
    """The device of one process: `auto` takes a GPU where there is one."""
    use_cuda = device == "cuda" or (device == "auto" and torch.cuda.is_available())
    return torch.device("cuda", local_rank) if use_cuda else torch.device("cpu")


def load_tokenizer(directory: Path) -> Any:
    """The tokenizer of a directory; UserError where there is none."""
    if directory.is_file():
        raise UserError(f"{directory}: is a file; give its directory")
    if not any((directory / name).exists() for name in ("tokenizer.json", "tokenizer.model", "vocab.json")):
        raise UserError(f"{directory}: holds no tokenizer.json; give a directory that AutoTokenizer can load")
    try:
        return AutoTokenizer.from_pretrained(directory, local_files_only=True)
    except Exception as error:  # transformers raises whatever its parsers do
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        if "StrictDataclass" in reason:  # the configuration beside it, which transformers reads first
            raise UserError(f"{directory}: config.json does not fit its model ({error}); correct it") from error
        raise UserError(f"{directory}: no tokenizer can be loaded ({reason}); give a directory with one") from error


def bos_token_id(tokenizer: Any, config: Any) -> int | None:
    """The id that begins a sequence where the tokenizer has such a token."""
    from_config = getattr(config, "bos_token_id", None)
    return tokenizer.bos_token_id if tokenizer.bos_token_id is not None else from_config


# --- The trained checkpoint ---


def save_checkpoint(trainer: Any, source_dir: Path, final: Path, dtype: torch.dtype, probe: Tensor) -> None:
    """Save the trainer's model as `final` (weights in `dtype`, configuration, tokenizer) once it is validated.

    All processes call this; the first writes. `probe`: token ids int64 [1, T] on which the saved model's logits
    must equal the trainer's. Raises StageError, and leaves nothing, where the model or what was saved is not right.
    """
    expected_logits = _probe_logits(trainer.model, probe.to(trainer.args.device))
    rms = float(expected_logits.square().mean().sqrt())
    if not 0 < rms < float("inf"):  # in all processes; norms make 0 of what overflows
        raise StageError(
            f"training diverged in its last step ({trainer.state.global_step}): the numbers of the finished model overflow "
            f"(rms of its logits: {rms}); lower the learning rate ({trainer.args.learning_rate:g})"
        )
    state = trainer.accelerator.get_state_dict(trainer.model_wrapped)
    if trainer.is_world_process_zero():
        partial = final.with_name(f"{final.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        model = trainer.accelerator.unwrap_model(trainer.model)
        tied = model.all_tied_weights_keys  # copies by now, of what the file has under another name
        weights = {name: value.to(dtype) for name, value in state.items() if name not in tied}
        model.save_pretrained(partial, state_dict=weights)
        model.config.dtype = dtype  # of the file; save_pretrained notes that of the parameters in memory
        save_config(model.config, partial)
        copy_companions(source_dir, partial)
        try:
            validate_checkpoint(partial, dtype, probe, expected_logits)
        except StageError:
            shutil.rmtree(partial)
            raise
        os.replace(partial, final)
    trainer.accelerator.wait_for_everyone()


def validate_checkpoint(checkpoint: Path, dtype: torch.dtype, probe: Tensor, expected_logits: Tensor) -> None:
    """StageError unless it is complete, finite, with its RoPE and gives `expected_logits` [T, V], on the CPU as for anyone."""
    unset_hf_deepspeed_config()  # or ZeRO-3 would wait for the other processes to load their share
    try:
        model = causal_lm(checkpoint, dtype)
    except UserError as error:
        raise StageError(f"the trained checkpoint is unusable: {error}") from error
    assert_rope(model, model.config)
    difference = (_probe_logits(model, probe) - expected_logits).square().mean().sqrt()
    share, most = difference / expected_logits.square().mean().sqrt(), LOGITS_TOLERANCE[dtype]
    if not share <= most:
        way = "; its weights do not bear the rounding: train with --set training.precision=fp32" * (most > 1e-2)
        raise StageError(
            f"{checkpoint.name}: saved, it gives logits that differ from the trainer's by {share:.1%} (rms; at most "
            f"{most:.2%} are right){way}"
        )


@torch.no_grad()
def _probe_logits(model: Any, probe: Tensor) -> Tensor:
    was_training = model.training
    model.eval()
    logits: Tensor = model(input_ids=probe, use_cache=False).logits[0].float().cpu()
    model.train(was_training)
    return logits
