"""The paper's idea in one place: windows, scores, postprocessing, the weighted loss and its head.

Nothing of torch is imported before a name is used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenweight.weighting.head import install_head as install_head
    from tokenweight.weighting.head import model_nll as model_nll
    from tokenweight.weighting.head import per_token_nll as per_token_nll
    from tokenweight.weighting.hf import add_token_weighting as add_token_weighting
    from tokenweight.weighting.scores import weighting as weighting
    from tokenweight.weighting.settings import Weighting as Weighting
    from tokenweight.weighting.step import weighted_step as weighted_step
    from tokenweight.weighting.weights import token_weights as token_weights
    from tokenweight.weighting.weights import weighted_nll as weighted_nll
    from tokenweight.weighting.windows import plan_windows as plan_windows
    from tokenweight.weighting.windows import score_windows as score_windows

_HOMES = {
    "Weighting": "settings",
    "add_token_weighting": "hf",
    "install_head": "head",
    "model_nll": "head",
    "per_token_nll": "head",
    "plan_windows": "windows",
    "score_windows": "windows",
    "token_weights": "weights",
    "weighted_nll": "weights",
    "weighted_step": "step",
    "weighting": "scores",
}
__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
