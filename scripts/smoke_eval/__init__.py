"""Makers of the small evaluation data in tokenweight/assets/smoke-eval (see scripts/make_smoke_eval_data.py)."""
