"""Combinations of a tying scheme's keys that cannot be run, or in which one would have no effect.

Imports no torch.
"""

import math
from typing import Any

from tielab.config import SCHEME_DEFAULTS, lookup, yaml_text
from tielab.errors import RequestError

SHARDABLE_KEYS = (
    "model.embed_scale", "model.embed_init_std", "model.head_init_std",
    "optimizer.embedding_learning_rate_scale", "optimizer.head_learning_rate_scale",
)  # fmt: skip


def check_scheme(config: dict[str, Any]) -> None:
    """Raise RequestError for the first key of the tying scheme that does not go with the others."""
    changed = {
        key: value for key, default in SCHEME_DEFAULTS.items() if (value := lookup(config, key)) != default
    }
    _check_values(config["model"], changed)
    if config["model"]["tied"]:
        _check_tied(changed)
    else:
        _check_untied(changed)
    _check_maps(config["model"], changed)
    _check_embedding(changed)
    _check_processes(config["trainer"], changed)


def _refuse(changed: dict[str, Any], key: str, reason: str) -> None:
    """Raise if the key has another value than its default."""
    if key in changed:
        raise RequestError(f"{key}={yaml_text(changed[key])} {reason}")


def _check_values(model: dict[str, Any], changed: dict[str, Any]) -> None:
    std, share = model["head_init_std"], model["untie_at"]
    if std is not None and not 0 <= std < math.inf:
        raise RequestError(f"model.head_init_std={std} is out of range: it must be at least 0")
    if share is not None and not 0 <= share <= 1:
        raise RequestError(f"model.untie_at={share} is out of range: it must lie in [0, 1]")
    for key in ("model.head_map_rank", "model.embed_rank"):
        if key in changed and not 1 <= changed[key] < model["embed_dim"]:
            raise RequestError(
                f"{key}={changed[key]} is out of range: it must be at least 1 and "
                f"less than model.embed_dim={model['embed_dim']}"
            )


def _check_tied(changed: dict[str, Any]) -> None:
    own = "belongs to a head with a matrix of its own, found model.tied=true; "
    _refuse(changed, "model.head_init_std", own + "set model.embed_init_std or model.tied=false")
    if "model.untie_at" not in changed:
        rate = "set optimizer.embedding_learning_rate_scale, model.tied=false or model.untie_at"
        _refuse(changed, "optimizer.head_learning_rate_scale", own + rate)
    frozen = "would freeze the head too, found model.tied=true; set model.tied=false"
    _refuse(changed, "model.embed_frozen", frozen)


def _check_untied(changed: dict[str, Any]) -> None:
    shared = "belongs to a shared matrix, found model.tied=false; set model.tied=true"
    _refuse(changed, "model.head_map", shared)
    _refuse(changed, "model.untie_at", shared)


def _check_maps(model: dict[str, Any], changed: dict[str, Any]) -> None:
    if model["head_map"] != "linear":
        linear = f"needs model.head_map=linear, found {model['head_map']}"
        _refuse(changed, "model.head_map_rank", linear)
        _refuse(changed, "model.head_map_penalty", linear)
    for first, second in (
        ("model.embed_rank", "model.head_map"),
        ("model.untie_at", "model.head_map"),
        ("model.untie_at", "model.embed_rank"),
    ):
        if second in changed:
            _refuse(changed, first, f"does not go with {second}={changed[second]}; drop one of them")


def _check_embedding(changed: dict[str, Any]) -> None:
    if "model.embed_frozen" in changed:
        frozen = "would have no effect with model.embed_frozen=true; drop one of them"
        _refuse(changed, "model.embed_gradient_scale", frozen)
        _refuse(changed, "optimizer.embedding_learning_rate_scale", frozen)
        trained = "has a second factor that is trained, found model.embed_frozen=true; drop one of them"
        _refuse(changed, "model.embed_rank", trained)


def _check_processes(trainer: dict[str, Any], changed: dict[str, Any]) -> None:
    if trainer["strategy"] != "auto":
        _refuse(
            changed,
            "model.untie_at",
            "gives the model a parameter that no other process knows of, "
            f"found trainer.strategy={trainer['strategy']}; use trainer=cpu or trainer=gpu",
        )
    if trainer["strategy"] == "fsdp":
        for key in sorted(changed.keys() - set(SHARDABLE_KEYS)):
            _refuse(changed, key, "does not go with trainer.strategy=fsdp; use trainer=ddp or ddp_cpu")
