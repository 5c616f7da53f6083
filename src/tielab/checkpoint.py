"""Checkpoints: written whole or not at all, refused unless whole, harmless and of the model asked for."""

import os
import tempfile
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins.io import TorchCheckpointIO

from tielab.errors import RequestError
from tielab.models.minigpt import MiniGPT
from tielab.training.task import CHECKPOINT_KEY, check_identity

STATE_PREFIX = "model."


class WholeCheckpointIO(TorchCheckpointIO):
    """Writes a checkpoint beside its place and renames it.

    Lightning's own moves it from the system's temporary folder, and a full disk leaves half of it.
    """

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None
    ) -> None:
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                torch.save(checkpoint, file)
                file.flush()
                os.fsync(file.fileno())
            Path(name).chmod(0o644)
            Path(name).replace(path)
        except BaseException as error:
            Path(name).unlink(missing_ok=True)
            if isinstance(error, RuntimeError) and isinstance(error.__context__, OSError):
                raise error.__context__ from None  # torch hides a full disk behind words of its own
            raise


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
    except Exception:  # torch and pickle raise a dozen kinds, depending on where the file ends
        raise RequestError(
            f"checkpoint {path} is truncated or not a checkpoint; delete it or name another"
        ) from None
    if not isinstance(checkpoint, dict) or CHECKPOINT_KEY not in checkpoint:
        raise RequestError(f"checkpoint {path} was not written by tielab: it says nothing about its tie")
    check_identity(checkpoint[CHECKPOINT_KEY]["identity"], identity)
    return checkpoint


def load_weights(model: MiniGPT, checkpoint: dict[str, Any]) -> None:
    """Copy a checkpoint's weights into a model of the same shape and tie."""
    state = checkpoint["state_dict"]
    weights = {k.removeprefix(STATE_PREFIX): v for k, v in state.items() if k.startswith(STATE_PREFIX)}
    model.load_state_dict(weights, strict=True)
