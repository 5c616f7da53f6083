"""What a run may be asked for: typed keys and their meanings.

The values live in ``conf/``, the checks that need more than one key in ``checks.py``. This module
imports neither torch nor lightning, so a typo costs no start-up.
"""

import difflib
import hashlib
import json
import os
import secrets
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum
from typing import Any, get_args, get_type_hints

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING, DictConfig, OmegaConf

from tielab.schema import Config

SCHEMA_NAME = "tielab_schema"
LAYOUT_NAME = "tielab_layout"


RUN_ONLY_KEYS = (
    "callbacks.progress",
    "data.cache_dir",
    "data.num_workers",
    "jobs_per_gpu",
    "launch",
    "logger",
    "on_failure",
    "output_dir",
    "parallel_jobs",
    "resume",
    "resume_from",
)
"""Keys that change how a run is carried out and watched, never what it computes."""

PROVENANCE_KEYS = ("matching", "study")
"""Keys that say how values were chosen. The values are computed with, these are not."""

PLACEMENT_KEYS = (
    "compile",
    "trainer.accelerator",
    "trainer.devices",
    "trainer.num_nodes",
    "trainer.num_threads",
    "trainer.strategy",
    "trainer.tensor_parallel_size",
)
"""Keys that say where and with what a step is computed: they decide the rounding, and what dropout drops."""

SCHEME_DEFAULTS: dict[str, Any] = {
    "model.embed_scale": 1.0,
    "model.head_map": "none",
    "model.head_map_rank": None,
    "model.head_map_penalty": 0.0,
    "model.embed_rank": None,
    "model.embed_gradient_scale": 1.0,
    "model.embed_frozen": False,
    "model.embed_init_std": None,
    "model.head_init_std": None,
    "model.untie_at": None,
    "optimizer.embedding_learning_rate_scale": 1.0,
    "optimizer.head_learning_rate_scale": 1.0,
}
"""The keys that make a plainly tied or untied model another one, with the values that do not."""
SCHEME_KEYS = ("model.tied", *SCHEME_DEFAULTS)
"""The keys whose values together are a tying scheme."""


def _later_defaults(schema: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for field in fields(schema):
        key, kind = f"{prefix}{field.name}", get_type_hints(schema)[field.name]
        if field.default != MISSING:
            yield key, field.default.name if isinstance(field.default, Enum) else field.default
        elif is_dataclass(kind):
            yield from _later_defaults(kind, f"{key}.")


LATER_DEFAULTS = dict(_later_defaults(Config))
"""The dotted keys that an older config lacks, with the values that it has without them."""

PRECISIONS = ("32-true", "bf16-mixed", "bf16-true", "64-true")
FSDP_PRECISIONS = ("32-true", "bf16-mixed", "bf16-true")
STRATEGIES = ("auto", "ddp", "fsdp")
"""Those that leave the starting of processes to us."""


LAYOUT: dict[str, Any] = {
    "defaults": [
        {"override /hydra/launcher": "tielab"},
        {"override /hydra/sweeper": "tielab"},
        {"override /hydra/hydra_logging": "none"},
        {"override /hydra/job_logging": "none"},
        "_self_",
    ],
    "hydra": {
        "output_subdir": None,
        "run": {"dir": "${output_dir}/runs/${tielab.stamp:}"},
        "sweep": {"dir": "${output_dir}/sweeps/${tielab.stamp:}", "subdir": "${hydra.job.num}"},
        "job": {"name": "train", "chdir": False},
    },
}
"""Where Hydra puts runs and sweeps, and how it speaks."""


def register() -> None:
    """Make schema and layout known to Hydra, so that every composed config is type-checked."""
    store = ConfigStore.instance()
    store.store(name=SCHEMA_NAME, node=Config)
    store.store(name=LAYOUT_NAME, node=LAYOUT, package="_global_")
    store.store(
        group="hydra/launcher",
        name="tielab",
        node={"_target_": "hydra_plugins.tielab_launcher.OneByOneLauncher"},
    )
    store.store(
        group="hydra/sweeper",
        name="tielab",
        node={
            "_target_": "hydra_plugins.tielab_sweeper.CheckedSweeper",
            "max_batch_size": None,
            "params": None,
        },
    )


def new_stamp() -> str:
    """A name for a folder that sorts by the time; twenty in one second are all different."""
    return f"{datetime.now():%Y-%m-%d_%H-%M-%S}-{secrets.token_hex(3)}"


STAMP = new_stamp()
"""One per process that composes for Hydra."""


def threads_per_process(num_processes: int, parallel_jobs: int = 1) -> int:
    """CPU threads of each process when all jobs of a sweep share evenly the cores this process may use."""
    return max(1, len(os.sched_getaffinity(0)) // max(1, num_processes * parallel_jobs))


# On import, since a process that another launcher starts for a job composes before it calls anything of
# ours. Cached, since Hydra hands the cache of the sweep's config to its jobs: one folder for all.
OmegaConf.register_new_resolver("tielab.threads", threads_per_process, replace=True)
OmegaConf.register_new_resolver("tielab.sqrt", lambda number: number**0.5, replace=True)
OmegaConf.register_new_resolver("tielab.product", lambda a, b: a * b, replace=True)
OmegaConf.register_new_resolver(
    "tielab.gpus", lambda accelerator, n: n if accelerator == "gpu" else None, replace=True
)
OmegaConf.register_new_resolver("tielab.stamp", lambda: STAMP, replace=True, use_cache=True)
# Of Hydra: our launchers' options have the names of the plugins' own, whose types they keep.
warnings.filterwarnings("ignore", message=r"\s*'hydra/launcher/\w+' is validated against ConfigStore schema")


def plain(cfg: DictConfig) -> dict[str, Any]:
    """The config as nested dicts of plain values, every interpolation resolved."""
    container = OmegaConf.to_container(cfg, resolve=True, enum_to_str=True, throw_on_missing=True)
    assert isinstance(container, dict)
    return {str(key): value for key, value in container.items()}


def computed(config: dict[str, Any]) -> dict[str, Any]:
    """What a run computes: every dotted key with its value, minus run-only and provenance keys.

    A later key is left out where it has its default, so that a config is the same one with and without it.
    """

    def flat(node: dict[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
        for name, value in node.items():
            key = f"{prefix}{name}"
            if key in RUN_ONLY_KEYS or key in PROVENANCE_KEYS:
                continue
            if key in LATER_DEFAULTS and value == LATER_DEFAULTS[key]:
                continue
            if isinstance(value, dict) and value:
                yield from flat(value, f"{key}.")
            else:
                yield key, value

    return dict(flat(config, ""))


def with_later_keys(config: dict[str, Any]) -> dict[str, Any]:
    """The config of an older run with the keys that have come since; changed in place and returned."""
    for key, value in LATER_DEFAULTS.items():
        section, _, leaf = key.rpartition(".")
        lookup(config, section).setdefault(leaf, value)
    return config


LINKS = {
    "model.seed": "seed",
    "data.seed": "seed",
    "model.vocab_size": "data.tokenizer.vocab_size",
    "model.block_size": "data.block_size",
    "data.stride": "data.block_size",
    "data.eval_stride": "data.block_size",
    "logger.wandb.save_dir": "output_dir",
    "logger.tensorboard.save_dir": "output_dir",
    "logger.trackio.save_dir": "output_dir",
}
"""Keys that follow another one unless they are set themselves.

``conf/`` has them as interpolations. A ``run.yaml`` has values only; without this its repetition with
``seed=1`` would start from the body and see the batches of seed 0."""

RATE_KEY = "optimizer.learning_rate"


def scale_follows_width(model: dict[str, Any]) -> bool:
    """Whether the input scale is the square root of the width, as ``tying=tied_scaled`` has it, and not 1.

    With values alone, one that was given as such a number cannot be told from it.
    """
    return bool(model["embed_scale"] == model["embed_dim"] ** 0.5 != 1)


def follow_links(config: dict[str, Any], original: dict[str, Any], overridden: set[str]) -> None:
    """Let the keys of a repeated run follow those that the repetition changes.

    Args:
        config: of the repetition; changed in place.
        original: of the run that is repeated.
        overridden: keys that the request sets itself; they follow nothing.
    """
    for follower, leader in LINKS.items():
        try:
            followed = lookup(original, follower) == lookup(original, leader)
            lookup(config, follower)
        except (KeyError, TypeError):  # switched off, or a record of somebody else
            continue
        if followed and follower not in overridden:
            parent, _, leaf = follower.rpartition(".")
            lookup(config, parent)[leaf] = lookup(config, leader)
    _follow_width(config, original, overridden)


def _follow_width(config: dict[str, Any], original: dict[str, Any], overridden: set[str]) -> None:
    try:
        followed = scale_follows_width(original["model"])
        is_as_it_was = config["model"]["embed_scale"] == original["model"]["embed_scale"]
    except (KeyError, TypeError):
        return
    if followed and is_as_it_was and "model.embed_scale" not in overridden:
        config["model"]["embed_scale"] = config["model"]["embed_dim"] ** 0.5


def lookup(config: dict[str, Any], dotted: str) -> Any:
    """The value of a dotted key; of an empty one the config itself."""
    for key in dotted.split(".") if dotted else ():
        config = config[key]
    return config


def yaml_text(value: Any) -> str:
    """A plain value as it is written in YAML and on the command line."""
    return str(value).lower() if isinstance(value, bool) else "null" if value is None else str(value)


def config_hash(config: dict[str, Any]) -> str:
    """Identity of what a run computes: 16 hex digits."""
    return hashlib.sha256(json.dumps(computed(config), sort_keys=True).encode()).hexdigest()[:16]


def known_keys(schema: Any = Config, prefix: str = "") -> list[str]:
    """Every dotted key of the schema."""
    keys = []
    for name, kind in get_type_hints(schema).items():
        keys.append(f"{prefix}{name}")
        if (section := section_of(kind)) is not None:
            keys += known_keys(section, f"{prefix}{name}.")
    return keys


def section_of(kind: Any) -> Any:
    """The dataclass that a type hint of the schema names, alone or as ``Section | None``; else None."""
    return next((part for part in (kind, *get_args(kind)) if is_dataclass(part)), None)


GROUPS = ("tying", "width", "vocab", "recipe", "experiments")
"""Config groups that have no key of their own name."""


def suggest_key(name: str) -> str:
    """``; did you mean KEY?`` for a key close to a known one, or the keys of its section, else nothing."""
    known = [*known_keys(), *GROUPS]
    section, _, leaf = name.rpartition(".")
    beside = {key.rpartition(".")[2]: key for key in known if key.rpartition(".")[0] == section}
    if not section or not beside:
        return suggest(name, known)
    close = difflib.get_close_matches(leaf, list(beside), n=1)
    return f"; did you mean {beside[close[0]]}?" if close else f"; {section} has {', '.join(beside)}"


def suggest(name: str, known: Iterable[str]) -> str:
    """``; did you mean NAME?`` for a name close to a known one, else nothing."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""
