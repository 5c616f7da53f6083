"""Objects from config nodes with a ``_target_``: the one place that instantiates.

A run.yaml may come from a stranger, so a target must be a class of an allowed package and of the kind
its place in the config calls for, and its arguments are plain values that lead nowhere else.
"""

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from hydra.utils import get_object

from tielab.errors import RequestError
from tielab.trust import check_arguments_stay_within

ALLOWED_PACKAGES = ("tielab", "torch", "lightning", "torchmetrics", "wandb")
LOGGER_FACTORIES = ("tielab.tracking.wandb.wandb_logger",)
"""Functions that return a logger; everything else must be a class of its place's kind."""

T = TypeVar("T")


def build(node: dict[str, Any], kind: type[T], within: Sequence[Path] = (), **arguments: Any) -> T:
    """The object of a kind that a config node asks for.

    Args:
        within: folders that a path among the node's arguments may lead to.
        arguments: beside those of the node.

    Raises:
        RequestError: the target is outside the allowed packages or of another kind, or an argument
            would instantiate something itself or leads out of the folders.
    """
    target = node.get("_target_") if isinstance(node, dict) else None
    if target is None:
        raise RequestError(f"a {kind.__name__} has no _target_: name its class")
    given = {name: value for name, value in node.items() if name != "_target_"}
    if any(_holds_target(value) for value in given.values()):
        raise RequestError(f"_target_ {target}: an argument has a _target_ of its own; give plain values")
    special = next((name for name in given if name.startswith("_")), None)
    if special is not None:
        raise RequestError(f"_target_ {target}: {special} is not taken here; give the arguments by name")
    check_arguments_stay_within(str(target), given, within)
    found = _find(str(target))
    if target not in LOGGER_FACTORIES and not (isinstance(found, type) and issubclass(found, kind)):
        raise RequestError(f"_target_ {target} is not a {kind.__name__}; name a class that is")
    given |= arguments
    try:
        inspect.signature(found).bind(**given)
    except TypeError as error:
        raise RequestError(f"_target_ {target}: {error}; see what it takes") from None
    # Not Hydra's instantiate, which resolves interpolations and has keywords of its own.
    built = found(**given)
    assert isinstance(built, kind)
    return built


def _holds_target(node: Any) -> bool:
    if isinstance(node, dict):
        return "_target_" in node or any(_holds_target(value) for value in node.values())
    return isinstance(node, list) and any(_holds_target(value) for value in node)


def _find(target: str) -> Any:
    allowed = ", ".join(ALLOWED_PACKAGES)
    if target.partition(".")[0] not in ALLOWED_PACKAGES:
        raise RequestError(f"_target_ {target} is outside the allowed packages ({allowed})")
    try:
        found = get_object(target)
    except Exception as error:
        reason = " ".join(str(error).split())
        raise RequestError(f"_target_ {target} cannot be found: {reason}") from None
    # tielab.launch.os.system begins with an allowed name and is not ours.
    home = str(getattr(found, "__module__", "")).partition(".")[0]
    if home not in ALLOWED_PACKAGES:
        raise RequestError(f"_target_ {target} lives in {home or 'no package'}, allowed are {allowed}")
    return found
