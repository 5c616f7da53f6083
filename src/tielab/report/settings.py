"""What a run was set to, apart from its arm and its seed: the rows a comparison may put side by side."""

import json
from collections.abc import Collection
from itertools import accumulate
from typing import Any

from tielab.config import LATER_DEFAULTS, PROVENANCE_KEYS, RATE_KEY, RUN_ONLY_KEYS, SCHEME_KEYS
from tielab.record import Record
from tielab.report.pairing import lookup

SEED_KEYS = ("seed", "model.seed", "data.seed")
VOCAB_KEY = "model.vocab_size"
FOLLOWING_KEYS = ("data.tokenizer.vocab_size", "data.block_size")
"""No run starts unless these equal the model's."""
SHORT_NAMES = {
    "model.vocab_size": "vocab_size",
    "model.embed_dim": "embed_dim",
    "data.tokenizer.kind": "tokenizer",
    "model.num_layers": "num_layers",
    "model.block_size": "block_size",
    "model.num_heads": "num_heads",
    "model.hidden_dim": "hidden_dim",
    "optimizer.learning_rate": "learning_rate",
    "trainer.devices": "devices",
}
"""In order of preference: of keys that vary together the first one is shown."""

TUNED = "tuned"
"""In the place of a learning rate that was chosen for each arm."""

WATCHING = ("tielab.diagnostics.", "lightning.pytorch.callbacks.ModelCheckpoint")
"""How the targets of callbacks begin that change nothing of what is computed."""

Seeds = tuple[Any, ...]
Setting = dict[str, Any]


def setting_of(record: Record) -> Setting:
    """The config as dotted keys, without the arm, the seeds, the run-only keys and how values were chosen.

    A vocabulary size left to the tokenizer (null) is the one that came out of the data. Values that were
    solved for are the ones they were solved from. A learning rate that was chosen for the arm is ``tuned``.
    A later key at its default is left out, as in an older run.
    """
    left_out = (*SCHEME_KEYS, *SEED_KEYS, *RUN_ONLY_KEYS, *FOLLOWING_KEYS, *PROVENANCE_KEYS)
    left_out += watching_callbacks(record)
    values = flat(record.config) | (lookup(record, "matching.requested") or {})
    if rate_was_tuned(record):
        values[RATE_KEY] = TUNED
    setting = {
        key: value
        for key, value in values.items()
        if not below(key, left_out) and not (key in LATER_DEFAULTS and value == LATER_DEFAULTS[key])
    }
    if setting.get(VOCAB_KEY) is None:
        setting[VOCAB_KEY] = record.data.get("vocab_size")
    return setting


def watching_callbacks(record: Record) -> tuple[str, ...]:
    """The keys of the callbacks that save or measure and leave every weight as it would be without them."""
    callbacks = record.config.get("callbacks")
    targets = {
        name: str(node.get("_target_"))
        for name, node in (callbacks.items() if isinstance(callbacks, dict) else ())
        if isinstance(node, dict)
    }
    return tuple(f"callbacks.{name}" for name, target in targets.items() if target.startswith(WATCHING))


def study_phase(record: Record) -> str | None:
    """``tune`` for a run that served to choose a learning rate, ``report`` for one with a chosen rate."""
    phase = lookup(record, "config.study.phase")
    return None if phase is None else str(phase)


def rate_was_tuned(record: Record) -> bool:
    """Whether the learning rate belongs to the arm: it is being chosen, or was chosen, for it alone."""
    return study_phase(record) is not None and lookup(record, "config.study.tune") == "lr"


def flat(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """The values of a nested config by their dotted keys."""
    found: dict[str, Any] = {}
    for key, value in config.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return found


def below(key: str, parents: tuple[str, ...]) -> bool:
    """Whether a dotted key is one of the parents or inside one."""
    return any(above in parents for above in accumulate(key.split("."), "{}.{}".format))


def identity(setting: Setting) -> str:
    """Equal for equal settings; a key that is absent counts as null."""
    return json.dumps({key: value for key, value in setting.items() if value is not None}, sort_keys=True)


def seeds_of(record: Record) -> Seeds:
    """What two paired runs share: the seed, the model's and the data's."""
    values = flat(record.config)
    return (record.seed, *(values.get(key, record.seed) for key in SEED_KEYS[1:]))


def seed_label(seeds: Seeds) -> str:
    """``0``, or ``0 (model 0, data 3)`` when the three seeds are not one number."""
    if len(set(seeds)) == 1:
        return str(seeds[0])
    return f"{seeds[0]} (model {seeds[1]}, data {seeds[2]})"


def varying_columns(settings: list[Setting]) -> dict[str, list[str]]:
    """The keys that vary, one for each set that always varies together, with those it stands for."""
    keys = dict.fromkeys(key for setting in settings for key in setting)
    together: dict[tuple[int, ...], list[str]] = {}
    for key in sorted(filter(lambda key: _varies(key, settings), keys), key=_preference):
        together.setdefault(_pattern(key, settings), []).append(key)
    return {first: others for first, *others in together.values()}


def _preference(key: str) -> int:
    return list(SHORT_NAMES).index(key) if key in SHORT_NAMES else len(SHORT_NAMES)


def _varies(key: str, settings: list[Setting]) -> bool:
    values = {json.dumps(setting.get(key)) for setting in settings}
    if key == VOCAB_KEY:
        # A run that failed early does not know its vocabulary size; that is no second value.
        values.discard("null")
    return len(values) > 1


def _pattern(key: str, settings: list[Setting]) -> tuple[int, ...]:
    codes: dict[str, int] = {}
    return tuple(codes.setdefault(json.dumps(setting.get(key)), len(codes)) for setting in settings)


def fixed_values(records: list[Record], axes: Collection[str]) -> dict[str, Any]:
    """The dotted keys that every record has with one value, seeds and run-only keys left out.

    Args:
        axes: those of the comparison; ``matching`` is held fixed if it is one.
    """
    left_out = (*SEED_KEYS, *RUN_ONLY_KEYS, *PROVENANCE_KEYS)
    configs = [flat(record.config) for record in records]
    if not configs:
        return {}
    matching = {"matching": next(iter(axes))} if len(axes) == 1 else {}
    return matching | {
        key: value
        for key, value in configs[0].items()
        if not below(key, left_out) and all(key in other and other[key] == value for other in configs)
    }


def short_name(key: str) -> str:
    """The word of the field for a key, or the dotted key itself, as JSON if it does not print."""
    return SHORT_NAMES.get(key, key if key.isprintable() else json.dumps(key))


def shown(value: Any) -> Any:
    """Numbers, printable words and null as they are; anything else as JSON."""
    if isinstance(value, str):
        return value if value.isprintable() else json.dumps(value)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if value is None or is_number else json.dumps(value)


def sort_key(values: list[Any]) -> list[tuple[int, float, str]]:
    """Orders rows of shown values: null first, then numbers by size, then words."""
    return [_rank(value) for value in values]


def _rank(value: Any) -> tuple[int, float, str]:
    if value is None:
        return (0, 0.0, "")
    return (1, float(value), "") if isinstance(value, int | float) else (2, 0.0, value)
