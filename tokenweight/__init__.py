"""Token weighting for long-range language modeling (NAACL Findings 2025): library, pipeline, tables."""


def __getattr__(name: str) -> str:
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import version

    return version("tokenweight")
