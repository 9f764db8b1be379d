"""Backend `vllm`: lm-eval's requests answered by vLLM, which reads the same token ids as backend `hf`.

Prompts are encoded, and outputs decoded and cut at stop strings, here and not by vLLM. Heavy imports: load this module
only where a model is about to run.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any, ClassVar

from lm_eval.api.instance import Instance
from lm_eval.api.model import TemplateLM
from lm_eval.models.huggingface import HFLM
from lm_eval.models.utils import handle_stop_sequences, normalize_gen_kwargs, postprocess_generated_text
from transformers import AutoConfig, GenerationConfig

from tokenweight.context.checkpoint_files import RANDOM_SEED
from tokenweight.errors import StageError, UserError
from tokenweight.evaluation.loaded_model import LoadedModel, cache_bytes_of_token
from tokenweight.evaluation.tokens import model_tokenizer
from tokenweight.evaluation.vllm import check, importing
from tokenweight.recipes.schema import Execution, Precision

ELEMENT_BYTES: dict[Precision, int] = {"fp32": 4, "bf16": 2}
CPU_BATCH_SEQUENCES = 8  # of the longest input, as backend hf
GPU_SHARE = 0.9  # of a GPU's memory, of all processes on it together
GPU_BATCH_TOKENS = 2**20  # of prompts handed over at once: vLLM schedules them itself; a killed run repeats so much


class VllmModel(LoadedModel):
    max_sequences = 256

    def __init__(self, checkpoint_dir: Path, context_tokens: int, execution: Execution, precision: Precision) -> None:
        check()
        with importing():
            from vllm import LLM
            from vllm.platforms import current_platform

            config = AutoConfig.from_pretrained(checkpoint_dir, local_files_only=True)
        own = getattr(config.get_text_config(), "max_position_embeddings", None)
        if own and context_tokens > own:
            raise UserError(f"--context {context_tokens}: vllm has positions only up to config.json's {own}; use hf")
        on_cpu = bool(current_platform.is_cpu())
        if execution.device not in ("auto", "cpu" if on_cpu else "cuda"):
            raise UserError(
                f"--device {execution.device}: this vllm was built for {'cpu' if on_cpu else 'cuda'}; "
                "leave --device out, or install the other build"
            )
        if getattr(config, RANDOM_SEED, None) is not None:
            raise UserError(
                f"{checkpoint_dir}: has a seed in place of weights, which --backend vllm cannot read; use hf"
            )
        tokenizer = model_tokenizer(checkpoint_dir)
        sequences = execution.eval_batch_sequences or (CPU_BATCH_SEQUENCES if on_cpu else None)
        self.batch_tokens = sequences * context_tokens if sequences else GPU_BATCH_TOKENS
        # On a CPU vLLM would take nearly all memory for its cache; here twice what the batch needs, as it works in blocks.
        cache_bytes = 2 * self.batch_tokens * cache_bytes_of_token(config, ELEMENT_BYTES[precision]) if on_cpu else None
        engine = LLM(
            model=str(checkpoint_dir),
            dtype="bfloat16" if precision == "bf16" else "float32",
            max_model_len=context_tokens,
            tensor_parallel_size=execution.tensor_parallel,
            generation_config="vllm",  # none of the checkpoint's own sampling settings
            gpu_memory_utilization=GPU_SHARE / execution.slots_per_gpu,
            kv_cache_memory_bytes=cache_bytes,
            enforce_eager=on_cpu,
            seed=0,
        )
        lm = VllmLM(engine, tokenizer, stop_token_ids(checkpoint_dir, tokenizer))
        super().__init__(lm, checkpoint_dir, context_tokens)


def stop_token_ids(checkpoint_dir: Path, tokenizer: Any) -> list[int]:
    """The ids by which generation ends: the checkpoint's own where it names some, else the tokenizer's."""
    try:
        own = GenerationConfig.from_pretrained(str(checkpoint_dir), local_files_only=True).eos_token_id
    except OSError:  # no generation_config.json: transformers takes the model's configuration
        own = AutoConfig.from_pretrained(checkpoint_dir, local_files_only=True).get_text_config().eos_token_id
    ids = tokenizer.eos_token_id if own is None else own
    return [*ids] if isinstance(ids, list) else [int(ids)]


class VllmLM(TemplateLM):  # type: ignore[misc]
    """lm-eval's model interface over vLLM's `LLM.generate`, in token ids both ways: those that backend hf has of a text."""

    add_bos_token = custom_prefix_token_id = None  # as the tokenizer has it
    chat_template_args: ClassVar[dict[str, Any]] = {}
    eot_token_id, prefix_token_id = HFLM.eot_token_id, HFLM.prefix_token_id
    tok_encode, tok_decode, apply_chat_template = HFLM.tok_encode, HFLM.tok_decode, HFLM.apply_chat_template

    def __init__(self, engine: Any, tokenizer: Any, stop_token_ids: list[int]) -> None:
        super().__init__()
        self.tokenizer = tokenizer
        self._engine = engine
        self._stop_token_ids = stop_token_ids

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        """Greedy continuations of (context, generation arguments)."""
        from vllm import SamplingParams

        eos = self.tok_decode([self.eot_token_id], skip_special_tokens=False)
        wanted = [normalize_gen_kwargs(request.args[1]) for request in requests]
        settings = [
            SamplingParams(
                temperature=0.0,
                max_tokens=arguments["max_gen_toks"],
                stop=[stop for stop in arguments["until"] if stop] or None,
                stop_token_ids=self._stop_token_ids,
                ignore_eos=True,  # stop_token_ids has what hf stops at, which vLLM might not find itself
                detokenize=any(arguments["until"]),
            )
            for arguments in wanted
        ]
        outputs = self._ask([self.tok_encode(request.args[0]) for request in requests], settings)
        return [
            postprocess_generated_text(
                self.tok_decode(output.outputs[0].token_ids), handle_stop_sequences(arguments["until"], eos), None
            )
            for output, arguments in zip(outputs, wanted, strict=True)
        ]

    def _loglikelihood_tokens(
        self, requests: list[tuple[tuple[str, str], list[int], list[int]]], **ignored: Any
    ) -> list[tuple[float, bool]]:
        """Of continuations of one token the logits behind their context, read once; of others each prompt's own."""
        from vllm import SamplingParams

        one_token: dict[tuple[int, ...], dict[int, int]] = defaultdict(dict)  # context -> request -> token
        longer: dict[int, tuple[list[int], list[int]]] = {}
        for index, (_, context, more) in enumerate(requests):
            if len(more) == 1:
                one_token[tuple(context)][index] = more[0]
            else:
                longer[index] = (context, more)
        one = {"temperature": 0.0, "max_tokens": 1, "detokenize": False}
        settings = [SamplingParams(logprob_token_ids=sorted(set(of.values())), **one) for of in one_token.values()]
        prompts = [*map(list, one_token), *(context + more for context, more in longer.values())]
        outputs = self._ask(prompts, [*settings, *[SamplingParams(prompt_logprobs=0, **one)] * len(longer)])
        answers = {}
        for tokens, output in zip(one_token.values(), outputs[: len(one_token)], strict=True):
            next_token = output.outputs[0]
            for index, token in tokens.items():
                if (found := next_token.logprobs[0].get(token)) is not None:
                    answers[index] = float(found.logprob), next_token.token_ids[0] == token
        for (index, (context, more)), output in zip(longer.items(), outputs[len(one_token) :], strict=True):
            each = [output.prompt_logprobs[at].get(id_) for at, id_ in enumerate(more, start=len(context))]
            if more and None not in each:
                answers[index] = sum(float(it.logprob) for it in each), all(it.rank == 1 for it in each)
        if missing := len(requests) - len(answers):
            raise StageError(f"vllm gave no log-likelihood for {missing} of {len(requests)} continuations")
        return [answers[index] for index in range(len(requests))]

    def _ask(self, prompts: list[list[int]], settings: list[Any]) -> list[Any]:
        """vLLM's answers. StageError where a prompt was read otherwise than it was sent."""
        asked = [{"prompt_token_ids": ids} for ids in prompts]
        outputs: list[Any] = self._engine.generate(asked, settings, use_tqdm=False) if asked else []
        if [list(output.prompt_token_ids) for output in outputs] != prompts:
            raise StageError("vllm read other tokens than it was sent")
        return outputs

    def loglikelihood_rolling(self, requests: list[Instance], disable_tqdm: bool = False) -> list[float]:
        """No benchmark here asks for it: perplexity is measured by backend hf."""
        raise NotImplementedError("perplexity is measured by backend hf")
