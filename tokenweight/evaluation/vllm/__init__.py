"""Backend `vllm` and its comparison with backend `hf`: an optional room, found by :mod:`tokenweight.evaluation.backends`."""
