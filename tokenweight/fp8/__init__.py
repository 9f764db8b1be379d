"""Unfrozen scoring in float8 (`scorer.precision: fp8`): an optional room that nothing else imports."""

from tokenweight.fp8.linears import check_fp8, fp8_linears
from tokenweight.fp8.scoring import Fp8Scoring, top_kappa_overlap

__all__ = ["Fp8Scoring", "check_fp8", "fp8_linears", "top_kappa_overlap"]
