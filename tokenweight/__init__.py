"""Token weighting for long-range language modeling (NAACL Findings 2025): library, pipeline, tables."""
