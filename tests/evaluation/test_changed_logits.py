"""Perplexity of a model whose logits are not what its head gives."""

import shutil
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM, RecurrentGemmaConfig

from tokenweight.assets import smoke_base_dir
from tokenweight.errors import UserError
from tokenweight.evaluation.hf_model import HFModel
from tokenweight.recipes.schema import Execution


def test_it_is_refused_in_one_line_that_says_what_to_leave_out(tmp_path: Path) -> None:
    config = RecurrentGemmaConfig(
        vocab_size=4096, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=2, lru_width=32,
        logits_soft_cap=1.0,
    )  # fmt: skip
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    for file in smoke_base_dir().glob("tokenizer*"):
        shutil.copy(file, tmp_path)
    model = HFModel(tmp_path, 64, Execution(device="cpu"), "fp32")
    with pytest.raises(UserError, match=r"perplexity: .* changes its logits .* choose --benchmarks without perplexity"):
        model.with_nll_head("perplexity")
