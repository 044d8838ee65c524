# SPDX-License-Identifier: Apache-2.0
"""Sparse experts with balanced assignment: the solver, the layers, and trained models.

    ballast.assign(scores)           tokens to experts, balanced, optimal and proved; numpy or torch
    ballast.nn.BaseLayer(512, 8)     layers of experts for PyTorch models
    ballast.load("runs/mine")        a model that `ballast train` made

`ballast.assign` needs numpy alone. The rest needs the torch that this package was built for.
"""

from typing import TYPE_CHECKING, Any

from ._assign import Assignment, Certificate, assign
from ._library import version as _version

__version__ = _version()
__all__ = ["Assignment", "Certificate", "TrainedModel", "assign", "load", "nn"]

if TYPE_CHECKING:
    from . import nn
    from ._model import TrainedModel, load


def __getattr__(name: str) -> Any:
    """Loads what needs torch when it is first asked for."""
    import importlib

    if name == "nn":
        return importlib.import_module(".nn", __name__)
    if name in ("load", "TrainedModel"):
        return getattr(importlib.import_module("._model", __name__), name)
    raise AttributeError(f"module 'ballast' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), "TrainedModel", "load", "nn"])
