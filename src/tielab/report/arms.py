"""The arms of a comparison: which tying scheme a run had, what it is called, what it is compared with."""

from typing import Any

from tielab.config import SCHEME_DEFAULTS
from tielab.errors import RequestError
from tielab.record import Record
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


def arm_of(record: Record) -> str:
    """The name of a run's arm."""
    return arm_name(record.config)


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


def references(schemes: list[Scheme], baseline: str | None = None) -> dict[str, str]:
    """Which arm each arm is compared with; an arm that is compared with none is left out.

    The baseline if one is named; else of a tied arm the untied one that is otherwise equal; else the
    plain untied arm; else the plain tied one.

    Raises:
        RequestError: no arm has the baseline's name.
    """
    named = {scheme_name(scheme): scheme for scheme in schemes}
    if baseline is not None and baseline not in named:
        arms = "; ".join(in_order(schemes)) or "none"
        raise RequestError(f"--baseline {baseline!r} is no arm here, found: {arms}; name one of them")
    found = {}
    for name, scheme in named.items():
        counterpart = [scheme_name(scheme | {"model.tied": False})] if scheme["model.tied"] else []
        choices = [baseline] if baseline is not None else [*counterpart, UNTIED, TIED]
        reference = next((choice for choice in choices if choice in named), name)
        if reference != name:
            found[name] = reference
    return found
