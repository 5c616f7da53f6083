"""Whether a W&B run is online: from the config, the environment and the key. Imports no torch."""

import os

from tielab.errors import RequestError, reason_of

MODES = ("auto", "online", "offline", "disabled")
MODE_ALIASES = {"dryrun": "offline", "run": "online"}
"""Old values of WANDB_MODE that wandb still takes."""


def chosen_mode(mode: str) -> str:
    """Online, offline or disabled: what a run of this mode would begin as; asks no server.

    Raises:
        RequestError: the mode is unknown, the key is malformed, or online was asked for without a key.
    """
    asked = asked_mode(mode)
    return asked if asked in ("offline", "disabled") else _online_if_key(asked)


def unset_no_mode() -> None:
    """Unset a WANDB_MODE that asks for nothing: wandb itself breaks on an empty one, and on ours."""
    if os.environ.get("WANDB_MODE") in ("", "auto"):
        del os.environ["WANDB_MODE"]


def asked_mode(mode: str) -> str:
    """The mode that the config or, for auto, the environment asks for.

    Raises:
        RequestError: there is no such mode.
    """
    unset_no_mode()
    asked = os.environ.get("WANDB_MODE") or "auto" if mode == "auto" else mode
    asked = MODE_ALIASES.get(asked, asked)
    if asked not in MODES:
        raise RequestError(f"W&B mode {asked} is not one of {', '.join(MODES)}")
    return asked


def _online_if_key(asked: str) -> str:
    import wandb
    from wandb.errors import AuthenticationError

    if asked == "online":
        os.environ["WANDB_MODE"] = "online"
    try:
        # wandb.init would ask on a terminal, and wait for the answer without limit.
        found = wandb.login(prompt=False, verify=False)
    except AuthenticationError as error:
        raise RequestError(f"the configured W&B key is not one: {reason_of(error)}") from None
    if asked == "online" and not found:
        raise RequestError("W&B mode online needs a key: run `wandb login`, or use mode offline")
    return "online" if found else "offline"
