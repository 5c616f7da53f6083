"""Checkpoints: written whole or not at all, refused unless whole, harmless and of the model asked for."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins.io import TorchCheckpointIO

from tielab.errors import RequestError
from tielab.models.minigpt import MiniGPT
from tielab.models.tying import untie
from tielab.record import written_whole
from tielab.training.task import CHECKPOINT_KEY, STATE_PREFIX, check_identity, is_split
from tielab.training.untie import HEAD_NAME
from tielab.trust import is_within


class WholeCheckpointIO(TorchCheckpointIO):
    """Writes a checkpoint beside its place and renames it; reads plain values only; stays in its folders.

    Lightning's own moves it from the system's temporary folder, and a full disk leaves half of it.
    Every checkpoint goes through here, also those whose path comes from a template or another checkpoint.

    Args:
        places: folders to write in and to delete from; None: anywhere.
    """

    def __init__(self, places: Sequence[Path] | None = None):
        super().__init__()
        self._places = places

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None
    ) -> None:
        path = self._checked(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with written_whole(path) as file:
                torch.save(checkpoint, file)
        except RuntimeError as error:
            if isinstance(error.__context__, OSError):
                raise error.__context__ from None  # torch hides a full disk behind words of its own
            raise

    def load_checkpoint(
        self, path: str | Path, map_location: Any = "cpu", weights_only: bool | None = True
    ) -> dict[str, Any]:
        """The contents of a checkpoint; whatever the caller asks for, nothing in it is executed."""
        checkpoint: dict[str, Any] = torch.load(path, map_location=map_location, weights_only=True)
        return checkpoint

    def remove_checkpoint(self, path: str | Path) -> None:
        """Delete a checkpoint file; never a folder, nor through another file system."""
        self._checked(path).unlink(missing_ok=True)

    def _checked(self, path: str | Path) -> Path:
        path = Path(path)
        if self._places is not None and (".." in path.parts or not is_within(path, self._places)):
            raise RequestError(f"checkpoint {path} is outside the run; name a folder below output_dir")
        return path


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
        raise RequestError(f"checkpoint {path}: no such file; name another") from None
    except Exception:  # torch and pickle raise a dozen kinds, depending on where the file ends
        raise RequestError(
            f"checkpoint {path} is truncated or not a checkpoint; delete it or name another"
        ) from None
    if not isinstance(checkpoint, dict) or CHECKPOINT_KEY not in checkpoint:
        raise RequestError(f"checkpoint {path} was not written by tielab: it says nothing about its tie")
    ours = checkpoint[CHECKPOINT_KEY]
    if not isinstance(ours, dict) or not isinstance(ours.get("identity"), dict):
        raise RequestError(f"checkpoint {path} was not written by tielab: it does not say of what run it is")
    check_identity(ours["identity"], identity)
    return checkpoint


def load_weights(model: MiniGPT, checkpoint: dict[str, Any]) -> None:
    """Copy a checkpoint's weights into a model of the same shape and tie, split if they are.

    Raises:
        RequestError: a tensor is missing, too many, or of another shape.
    """
    check_weights(model, checkpoint)
    state = checkpoint["state_dict"]
    if is_split(model, state):
        untie(model)
    model.load_state_dict({k.removeprefix(STATE_PREFIX): v for k, v in state.items()}, strict=True)


def check_weights(model: MiniGPT, checkpoint: dict[str, Any]) -> None:
    """Raise RequestError unless a checkpoint holds exactly a model's tensors, split or not."""
    state = checkpoint.get("state_dict")
    found = {k: _shape(v) for k, v in state.items()} if isinstance(state, dict) else {}
    expected = {f"{STATE_PREFIX}{k}": _shape(v) for k, v in model.state_dict().items()}
    if isinstance(state, dict) and is_split(model, state):
        expected[f"{STATE_PREFIX}{HEAD_NAME}"] = _shape(model.token_embed.weight)
    for name in [*expected, *found]:
        if found.get(name) != expected.get(name):
            raise RequestError(
                f"the checkpoint does not fit the model: {name} is {found.get(name, 'missing')}, "
                f"expected {expected.get(name, 'none')}; name another checkpoint"
            )


def _shape(value: Any) -> str:
    return f"a tensor {tuple(value.shape)}" if isinstance(value, torch.Tensor) else "not a tensor"
