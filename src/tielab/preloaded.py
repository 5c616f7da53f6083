"""What the fork server imports, so that no job's process does: what a training needs and what never changes.

Holds nothing of any job. Computes nothing with torch either: its threads do not survive a fork.
"""

import gc
import io
import sys
from importlib import import_module

NAMES = ("tielab.experiment", "tielab.training.progress")
"""The last one is named by the default config."""


def preload() -> None:
    """Import everything; later collections of garbage pass over it."""
    gc.disable()  # among what is imported is none, and looking for it takes a while
    for name in NAMES:
        import_module(name)
    import torch

    from tielab.machine import versions
    from tielab.tracking.wandb_start import remember_packages

    torch.save({}, io.BytesIO())  # imports what writing the first checkpoint imports
    versions()
    if "wandb" in sys.modules:
        remember_packages()
    # A process that looks for garbage would touch, and so copy, every page of what was imported here.
    gc.freeze()
    gc.enable()


preload()
