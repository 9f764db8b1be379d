"""A tiny random Llama, small enough for exact comparisons."""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def make_llama():
    def make(tied: bool = True, vocabulary: int = 50) -> LlamaForCausalLM:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            model = LlamaForCausalLM(
                LlamaConfig(
                    vocab_size=vocabulary,
                    hidden_size=32,
                    intermediate_size=48,
                    num_hidden_layers=2,
                    num_attention_heads=2,
                    num_key_value_heads=2,
                    max_position_embeddings=128,
                    tie_word_embeddings=tied,
                )
            )
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.mul_(4.0)
        return model.eval()

    return make
