"""LongBench (Bai et al., 2023), its 16 English tasks: prompts, truncation and metrics (Section 4, Evaluation)."""
