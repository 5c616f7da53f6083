"""Text from a trained run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tielab.checkpoint import load_weights, read_checkpoint
from tielab.data.tokenizer import Tokenizer
from tielab.errors import RequestError
from tielab.fit import build_model, run_identity
from tielab.models.minigpt import MiniGPT
from tielab.record import RECORD_NAME, RUN_CONFIG_NAME, TOKENIZER_NAME
from tielab.trust import read_run_yaml


@dataclass(frozen=True)
class TrainedRun:
    """What a run's folder gives back."""

    model: MiniGPT
    """In evaluation mode, split if it was."""
    tokenizer: Tokenizer
    config: dict[str, Any]
    checkpoint: dict[str, Any]
    """The contents of the file that the weights are from."""


def load_run(run: Path, checkpoint: str | Path = "best") -> tuple[MiniGPT, Tokenizer]:
    """The model and the tokenizer of a run, as ``open_run``."""
    trained = open_run(run, checkpoint)
    return trained.model, trained.tokenizer


def open_run(run: Path, checkpoint: str | Path = "best") -> TrainedRun:
    """A run's model with the weights of a checkpoint, from its folder alone.

    Args:
        checkpoint: ``best``, ``last``, or a file.

    Raises:
        RequestError: not a run, or its checkpoint is missing, truncated or of another model.
    """
    for name in (RUN_CONFIG_NAME, TOKENIZER_NAME):
        if not (run / name).is_file():
            if (run / RECORD_NAME).is_file():
                raise RequestError(_what_to_do_without(run, name))
            raise RequestError(f"{run}: no {name} there; give the folder of a run that has begun training")
    config = read_run_yaml(run / RUN_CONFIG_NAME)
    tokenizer = _read_tokenizer(run / TOKENIZER_NAME)
    named = checkpoint in ("best", "last")
    path = run / "checkpoints" / f"{checkpoint}.ckpt" if named else Path(checkpoint)
    if named and not path.is_file():
        other = run / "checkpoints" / f"{'last' if checkpoint == 'best' else 'best'}.ckpt"
        if other.is_file():
            raise RequestError(f"{run} has no {path.name}; use the other one with --checkpoint {other.stem}")
        raise RequestError(_what_to_do_without(run, path.name))
    contents = read_checkpoint(path, run_identity(config, tokenizer))
    model = build_model(config["model"], tokenizer)
    load_weights(model, contents)
    return TrainedRun(model.eval(), tokenizer, config, contents)


def _what_to_do_without(run: Path, name: str) -> str:
    """Why a run lacks a file, and how to get one."""
    return (
        f"{run} has no {name}: it did not come so far, was trained with callbacks=none, or was published, "
        f"which leaves it out; train it again with tielab rerun {run}"
    )


def _read_tokenizer(path: Path) -> Tokenizer:
    try:
        tokenizer = Tokenizer.from_json(path.read_text(encoding="utf-8"))
        assert tokenizer.vocab_size > 0
    except Exception as error:  # the library raises bare Exception for text it cannot parse
        raise RequestError(f"{path} cannot be read as a tokenizer ({error}); name another run") from None
    return tokenizer


def continue_text(
    model: MiniGPT, tokenizer: Tokenizer, prompt: str, num_tokens: int, seed: int, **how: Any
) -> str:
    """The model's continuation of a prompt, without the prompt.

    Args:
        how: greedy, temperature, top_k, top_p as in ``MiniGPT.generate``.

    Raises:
        RequestError: the prompt is empty or holds a character without id, or ``how`` is out of range.
    """
    ids = torch.from_numpy(tokenizer.encode(prompt))[None]
    if ids.numel() == 0:
        raise RequestError("the prompt is empty; give at least one character")
    generator = torch.Generator().manual_seed(seed)
    try:
        continued = model.generate(ids, num_tokens, generator=generator, **how)
    except ValueError as error:
        raise RequestError(str(error)) from None
    return tokenizer.decode(continued[0, ids.shape[1] :].numpy())
