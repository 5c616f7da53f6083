"""The arms of a comparison: which tying scheme a run had, what it is called, what it is compared with."""

from dataclasses import replace
from typing import Any

from tielab.config import SCHEME_DEFAULTS
from tielab.errors import RequestError
from tielab.report.collect import CollectedRun
from tielab.report.settings import flat, shown, sort_key

Scheme = dict[str, Any]
"""Every key of ``SCHEME_KEYS`` with its value."""
TIED, UNTIED = "tied", "untied"


def scheme_of(config: dict[str, Any]) -> Scheme:
    """The tying scheme of a config; a key that an old config lacks has its default."""
    values = flat(config)
    return {"model.tied": bool(values.get("model.tied"))} | {
        key: values.get(key, default) for key, default in SCHEME_DEFAULTS.items()
    }


def arm_name(config: dict[str, Any]) -> str:
    """``tied``, ``untied``, or with what is not the default: ``tied, head_map permutation``."""
    return scheme_name(scheme_of(config))


COMMON_KEYS = ("model.embed_scale", "model.embed_init_std", "optimizer.embedding_learning_rate_scale")
"""Keys of a scheme that tied and untied models have alike."""


def with_shared_keys(runs: list[CollectedRun]) -> list[CollectedRun]:
    """The runs, each knowing which of ``COMMON_KEYS`` have one value in all of them.

    Such a key is held fixed like any other, and the arms are called by what differs.
    """
    schemes = [scheme_of(run.record.config) for run in runs]
    shared = tuple(key for key in COMMON_KEYS if len({scheme[key] for scheme in schemes}) == 1)
    return [replace(run, shared_keys=shared) for run in runs]


def scheme_of_run(run: CollectedRun) -> Scheme:
    """The tying scheme of a run, with the default in place of what all compared runs share."""
    shared = {key: SCHEME_DEFAULTS[key] for key in run.shared_keys}
    return scheme_of(run.record.config) | shared


def arm_of(run: CollectedRun) -> str:
    """The name of a run's arm."""
    return scheme_name(scheme_of_run(run))


def scheme_name(scheme: Scheme) -> str:
    """As ``arm_name``; two schemes have one name exactly if they are equal."""
    parts = [TIED if scheme["model.tied"] else UNTIED]
    for key, default in SCHEME_DEFAULTS.items():
        if scheme[key] != default:
            parts.append(f"{key.rpartition('.')[2]} {shown(scheme[key])}")
    return ", ".join(parts)


def in_order(schemes: list[Scheme]) -> list[str]:
    """The names of the schemes: tied, untied, then the others by what they change, tied before untied."""

    def rank(scheme: Scheme) -> tuple[Any, ...]:
        changed = [
            shown(None if scheme[key] == default else scheme[key]) for key, default in SCHEME_DEFAULTS.items()
        ]
        return (sort_key(changed), not scheme["model.tied"])

    return list(dict.fromkeys(scheme_name(scheme) for scheme in sorted(schemes, key=rank)))


def references(
    schemes: list[Scheme], baseline: str | None = None, adjusted: str | None = None
) -> dict[str, str]:
    """Which arm each arm is compared with; an arm that is compared with none is left out.

    The baseline if one is named; else of a tied arm the untied one that is otherwise equal; else the
    plain untied arm; else the plain tied one. Where sizes were solved the plain arm comes first: it is
    what they were solved to meet.

    Args:
        adjusted: tied or untied, whose sizes were solved; None at equal width.

    Raises:
        RequestError: no arm has the baseline's name.
    """
    named = {scheme_name(scheme): scheme for scheme in schemes}
    if baseline is not None and baseline not in named:
        arms = "; ".join(in_order(schemes)) or "none"
        raise RequestError(f"--baseline {baseline!r} is no arm here, found: {arms}; name one of them")
    found = {}
    for name, scheme in named.items():
        choices = [baseline] if baseline is not None else _choices(scheme, adjusted)
        reference = next((choice for choice in choices if choice in named), name)
        if reference != name:
            found[name] = reference
    return found


def _choices(scheme: Scheme, adjusted: str | None) -> list[str]:
    """The arms a scheme is compared with, the first of them that there is."""
    if adjusted == UNTIED and not scheme["model.tied"] and scheme_name(scheme) != UNTIED:
        return [TIED, UNTIED]
    counterpart = [scheme_name(scheme | {"model.tied": False})] if scheme["model.tied"] else []
    return [*counterpart, UNTIED, TIED] if adjusted is None else [UNTIED, *counterpart, TIED]
