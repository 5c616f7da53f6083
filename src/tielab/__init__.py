"""Tied or untied token embeddings, compared: what a notebook or a script imports.

Each name is imported when it is asked for: ``import tielab`` costs no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tielab.models.minigpt import MiniGPT
    from tielab.notebook import Run, TextData, compare, train

__all__ = ["MiniGPT", "Run", "TextData", "compare", "train"]

_MODULES = {"MiniGPT": "tielab.models.minigpt"}
"""Where a name is that is not in ``tielab.notebook``."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'tielab' has no attribute {name!r}")
    return getattr(import_module(_MODULES.get(name, "tielab.notebook")), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
