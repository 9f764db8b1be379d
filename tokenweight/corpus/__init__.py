"""Corpora: where documents come from, how they become training sequences, and the synthetic novel."""
