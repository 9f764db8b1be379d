"""Context extension by RoPE: a base model made ready for longer sequences."""
