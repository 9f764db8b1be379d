"""Data files of the package: the tiny base model that scripts/make_smoke_base.py made."""
