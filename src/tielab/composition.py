"""A complete config from overrides and values, composed from ``conf/`` in the caller's process."""

import threading
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from hydra.initialize import get_gh_backup, restore_gh_from_backup
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from tielab.config import plain, register
from tielab.errors import RequestError
from tielab.explain import explain

CONF = Path(__file__).parent / "conf"
COMPOSING = threading.Lock()
"""Hydra composes one config at a time in a process."""


def composed(options: Sequence[str], values: Mapping[str, Any]) -> dict[str, Any]:
    """The config of some overrides and values, complete."""
    try:
        with COMPOSING:
            cfg = _composed_alone(options)
        for key, value in values.items():
            OmegaConf.update(cfg, key, value)
            found = OmegaConf.select(cfg, key)
            if value is not None and (found.name if isinstance(found, Enum) else found) != value:
                raise RequestError(f"{key}={value!r} would be read as {found!r}; give that, or what you mean")
        return plain(cfg)
    except (HydraException, OmegaConfBaseException) as error:
        raise RequestError(explain(error)) from None


def _composed_alone(options: Sequence[str]) -> DictConfig:
    """The config of some overrides; a Hydra of the caller's own is as it was afterwards."""
    register()
    theirs = get_gh_backup()
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(CONF), version_base="1.3"):
            return compose("config", overrides=list(options))
    finally:
        restore_gh_from_backup(theirs)


def refuse_text(name: str, value: object) -> None:
    """Raise RequestError for a text where a list is wanted: its letters would be taken one by one."""
    if isinstance(value, str | Path):
        raise RequestError(f"{name} is a list: {name}=[{str(value)!r}]")


def refuse_overrides(overrides: Sequence[str], sections: Sequence[str]) -> None:
    """Raise RequestError for an override of anything but these sections."""
    refuse_text("overrides", overrides)
    for override in overrides:
        key = override.partition("=")[0].lstrip("~+")
        if key.partition(".")[0] not in sections:
            raise RequestError(
                f"override {override} is not taken here: give keys of {', '.join(sections)}, and the rest as "
                "arguments of MiniGPT, TextData or train"
            )
