"""Reading checkpoints: refused unless whole, harmless and of the model asked for."""

import pickle
from pathlib import Path
from typing import Any

import torch

from tielab.errors import RequestError
from tielab.models.minigpt import MiniGPT
from tielab.training.task import CHECKPOINT_KEY, check_identity

STATE_PREFIX = "model."


def read_checkpoint(path: Path, identity: dict[str, Any]) -> dict[str, Any]:
    """A checkpoint's contents on the CPU, executing nothing from the file.

    Args:
        identity: config keys and values that must equal those it was trained with.

    Raises:
        RequestError: no such file, truncated, not a tielab checkpoint, or of another model.
    """
    try:
        checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise RequestError(f"checkpoint {path}: no such file") from None
    except (RuntimeError, EOFError, ValueError, KeyError, pickle.UnpicklingError) as error:
        reason = str(error).strip().partition("\n")[0][:120]
        raise RequestError(f"checkpoint {path} is truncated or not a checkpoint ({reason})") from None
    if not isinstance(checkpoint, dict) or CHECKPOINT_KEY not in checkpoint:
        raise RequestError(f"checkpoint {path} was not written by tielab: it says nothing about its tie")
    check_identity(checkpoint[CHECKPOINT_KEY]["identity"], identity)
    return checkpoint


def load_weights(model: MiniGPT, checkpoint: dict[str, Any]) -> None:
    """Copy a checkpoint's weights into a model of the same shape and tie."""
    state = checkpoint["state_dict"]
    weights = {k.removeprefix(STATE_PREFIX): v for k, v in state.items() if k.startswith(STATE_PREFIX)}
    model.load_state_dict(weights, strict=True)
