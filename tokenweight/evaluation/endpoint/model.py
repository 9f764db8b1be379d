"""Backend `endpoint`: lm-eval's requests sent to a server by its own client, as the token ids that backend `hf` reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aiohttp
import requests as http
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM
from lm_eval.models.openai_completions import LocalCompletionsAPI

from tokenweight.errors import StageError
from tokenweight.evaluation.endpoint import check, place, reason
from tokenweight.evaluation.loaded_model import LoadedModel
from tokenweight.evaluation.tokens import model_tokenizer
from tokenweight.recipes.schema import Execution, Precision

AT_ONCE = 16  # requests, where --batch-size says nothing
ROUNDS = 4  # of so many requests are handed over together: a killed run repeats them
TIMEOUT_SECONDS = 1800


class EndpointModel(LoadedModel):
    batch_tokens = 2**62  # the server schedules them

    def __init__(self, checkpoint_dir: Path, context_tokens: int, execution: Execution, precision: Precision) -> None:
        check(execution)
        at_once = execution.eval_batch_sequences or AT_ONCE
        self.max_sequences = ROUNDS * at_once
        lm = EndpointLM(*place(str(execution.endpoint)), checkpoint_dir, context_tokens, at_once)
        super().__init__(lm, checkpoint_dir, context_tokens)


class EndpointLM(LocalCompletionsAPI):  # type: ignore[misc]
    """lm-eval's client `local-completions`, whose prompts begin with BOS where the tokenizer adds one."""

    tok_decode = HFLM.tok_decode

    def __init__(self, url: str, name: str, tokenizer_dir: Path, context_tokens: int, at_once: int) -> None:
        super().__init__(
            base_url=f"{url}/completions",
            model=name,
            tokenizer=str(tokenizer_dir),
            tokenizer_backend="huggingface",
            max_length=context_tokens + 1,  # it takes one off, for log-likelihoods
            num_concurrent=at_once,
            timeout=TIMEOUT_SECONDS,
        )
        self.tokenizer = model_tokenizer(tokenizer_dir)
        self.add_bos_token = None  # as the tokenizer has it

    def tok_encode(self, string: Any, add_special_tokens: bool | None = None, **_: Any) -> Any:
        """Ids of a text as backend hf has them; of several texts so, too."""
        if not isinstance(string, str):
            return [self.tok_encode(one) for one in string]
        return HFLM.tok_encode(self, string, add_special_tokens)

    def _create_payload(self, *arguments: Any, **given: Any) -> dict[str, Any]:
        payload: dict[str, Any] = super()._create_payload(*arguments, **given)
        return {
            key: value for key, value in payload.items() if value not in (None, [])
        }  # no stop at all, not an empty list

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        """Greedy continuations. StageError where the server gives none, tried several times."""
        try:
            answers: list[str] = super().generate_until(requests, disable_tqdm=disable_tqdm)
        except (TimeoutError, aiohttp.ClientError, http.RequestException, LookupError, TypeError, ValueError) as error:
            raise StageError(
                f"{self.base_url} gave no answer ({reason(error)}); check the server and run again to resume"
            ) from None
        if None in answers:
            raise StageError(f"{self.base_url} answered without text; check the server and run again to resume")
        return answers
