"""Combinations of keys that cannot be run: each is refused in one line, none is adjusted.

Imports no torch, so that a wrong request costs no start-up.
"""

import functools
import importlib.util
import itertools
import json
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from tielab.config import FSDP_PRECISIONS, PRECISIONS, STRATEGIES, lookup, section_of, suggest_key
from tielab.data_checks import check_data
from tielab.errors import RequestError
from tielab.exchange.init_checks import check_init, check_tie, check_vocabulary
from tielab.schema import Config
from tielab.scheme_checks import check_scheme
from tielab.slots import num_gpus

if TYPE_CHECKING:
    from tielab.data.tokenizer import Tokenizer


def check_config(config: dict[str, Any]) -> None:
    """Raise RequestError for the first key or combination of keys that cannot be run."""
    unknown = sorted(_unknown_keys(config, Config))
    if unknown:
        raise RequestError(
            f"unknown key {unknown[0]}{suggest_key(unknown[0])}; see python train.py --cfg job"
        )
    _check_text(config)
    _check_ranges(config)
    _check_budget(config["budget"])
    _check_bounds(config)
    _check_model(config["model"], config["data"])
    check_scheme(config)
    check_data(config["data"])
    _check_sharding(config["trainer"], config["model"])
    _check_diagnostics(config)
    _check_loggers(config["logger"])
    _check_trainer(config["trainer"], config["data"], config["launch"])
    _check_jobs_per_gpu(config["jobs_per_gpu"], config["trainer"])
    _check_matching(config)
    _check_study(config["study"])
    _check_resume(config["resume_from"])
    check_init(config)


def _unknown_keys(config: dict[str, Any], schema: Any, prefix: str = "") -> Iterator[str]:
    """Keys that no schema declares; Hydra lets ``+key=value`` add them."""
    for name, kind in get_type_hints(schema).items():
        section = section_of(kind)
        if section is not None and config[name] is not None:
            yield from _unknown_keys(config[name], section, f"{prefix}{name}.")
    yield from (f"{prefix}{name}" for name in config if name not in get_type_hints(schema))


def _check_text(node: Any, key: str = "") -> None:
    """Text that the repetition of this run from its run.yaml would take for an expression."""
    if isinstance(node, dict):
        for name, value in node.items():
            _check_text(name, key)
            _check_text(value, f"{key}.{name}" if key else str(name))
    elif isinstance(node, list):
        for value in node:
            _check_text(value, key)
    elif isinstance(node, str) and "${" in node:
        raise RequestError(f"{key}={node} holds ${{, which begins an interpolation; use another name")


POSITIVE_KEYS = (
    "model.block_size", "model.embed_dim", "model.num_layers", "model.num_heads", "model.hidden_dim",
    "data.block_size", "data.stride", "data.eval_stride", "data.batch_size", "data.eval_batch_size",
    "budget.num_validations",
    "trainer.devices", "trainer.num_nodes", "trainer.tensor_parallel_size", "trainer.num_threads",
    "trainer.accumulate_grad_batches", "trainer.log_every_n_steps",
    "optimizer.learning_rate", "optimizer.epsilon", "model.embed_scale", "parallel_jobs", "jobs_per_gpu",
    "optimizer.embedding_learning_rate_scale", "optimizer.head_learning_rate_scale",
)  # fmt: skip
OPTIONAL_POSITIVE_KEYS = (
    "model.vocab_size", "model.init_std", "data.tokenizer.vocab_size", "optimizer.gradient_clip_norm",
    "data.train_tokens", "budget.tokens", "budget.bytes",
    "model.embed_init_std",
)  # fmt: skip
NOT_NEGATIVE_KEYS = (
    "seed", "data.seed", "model.seed", "data.num_workers",
    "optimizer.weight_decay", "optimizer.embedding_weight_decay",
    "model.head_map_penalty", "model.embed_gradient_scale",
)  # fmt: skip
FRACTION_KEYS = (
    "model.dropout", "schedule.warmup_fraction", "schedule.final_fraction",
    "optimizer.beta1", "optimizer.beta2",
)  # fmt: skip


def _check_ranges(config: dict[str, Any]) -> None:
    for key in POSITIVE_KEYS + OPTIONAL_POSITIVE_KEYS:
        value = lookup(config, key)
        if value is None and key in OPTIONAL_POSITIVE_KEYS:
            continue
        if not 0 < value < math.inf:
            raise RequestError(f"{key}={value} is out of range: it must be greater than 0")
    for key in NOT_NEGATIVE_KEYS:
        value = lookup(config, key)
        if not 0 <= value < math.inf:
            raise RequestError(f"{key}={value} is out of range: it must be at least 0")
    for key in FRACTION_KEYS:
        value = lookup(config, key)
        closed = key == "schedule.final_fraction"
        if not (0 <= value < 1 or (closed and value == 1)):
            bracket = "]" if closed else ")"
            raise RequestError(f"{key}={value} is out of range: it must lie in [0, 1{bracket}")


def _check_budget(budget: dict[str, Any]) -> None:
    tokens, num_bytes = budget["tokens"], budget["bytes"]
    if tokens is None and num_bytes is None:
        raise RequestError("budget.tokens=null and budget.bytes=null ask for no training; set one of the two")
    if tokens is not None and num_bytes is not None:
        raise RequestError(
            f"budget.tokens={tokens} and budget.bytes={num_bytes} are two budgets; add budget.tokens=null "
            "or drop budget.bytes"
        )


MAX_SEED = 2**32 - 1
MAX_STEPS = 2**31 - 1
"""What the random generators and the trainer can count to."""


def _check_bounds(config: dict[str, Any]) -> None:
    for key in ("seed", "model.seed", "data.seed"):
        if lookup(config, key) > MAX_SEED:
            raise RequestError(f"{key}={lookup(config, key)} is out of range: it must be at most {MAX_SEED}")
    most = MAX_STEPS * config["data"]["batch_size"] * config["data"]["block_size"]
    for key in ("tokens", "bytes"):  # a token stands for a byte at least
        value = config["budget"][key]
        if value is not None and value > most:
            raise RequestError(f"budget.{key}={value} is out of range: it must be at most {most}")


def _check_model(model: dict[str, Any], data: dict[str, Any]) -> None:
    if model["embed_dim"] % model["num_heads"]:
        raise RequestError(
            f"model.embed_dim={model['embed_dim']} cannot be split over "
            f"model.num_heads={model['num_heads']}; choose a multiple of {model['num_heads']}"
        )
    tokenizer = data["tokenizer"]
    for name, key, value in (
        ("vocab_size", "data.tokenizer.vocab_size", tokenizer["vocab_size"]),
        ("block_size", "data.block_size", data["block_size"]),
    ):
        if model[name] != value:
            raise RequestError(
                f"model.{name}={model[name]} differs from {key}={value}; set {key} only, the model follows it"
            )


def _check_sharding(trainer: dict[str, Any], model: dict[str, Any]) -> None:
    size = trainer["tensor_parallel_size"]
    if trainer["strategy"] != "fsdp":
        if size > 1:
            raise RequestError(
                f"trainer.tensor_parallel_size={size} needs trainer=fsdp or trainer=fsdp_cpu, "
                f"found strategy {trainer['strategy']}"
            )
        return
    num_processes = trainer["devices"] * trainer["num_nodes"]
    if num_processes % size:
        raise RequestError(
            f"trainer.tensor_parallel_size={size} does not divide the {num_processes} processes of "
            "trainer.devices x trainer.num_nodes"
        )
    if trainer["precision"] not in FSDP_PRECISIONS:
        raise RequestError(
            f"trainer.precision={trainer['precision']} does not go with strategy fsdp; "
            f"use one of {', '.join(FSDP_PRECISIONS)}"
        )
    if model["hidden_dim"] % size:
        raise RequestError(
            f"model.hidden_dim={model['hidden_dim']} cannot be split over "
            f"trainer.tensor_parallel_size={size}; choose a multiple of {size}"
        )


def _check_diagnostics(config: dict[str, Any]) -> None:
    found = (
        name
        for name, node in config["callbacks"].items()
        if isinstance(node, dict) and str(node.get("_target_")).startswith("tielab.diagnostics.")
    )
    names = list(found)
    for name in names:
        interval = config["callbacks"][name].get("every_n_steps", 1)
        if not isinstance(interval, int) or interval < 1:
            raise RequestError(f"callbacks.{name}.every_n_steps={interval} is out of range: at least 1")
    name = next(iter(names), None)
    if name is not None and config["trainer"]["strategy"] == "fsdp":
        raise RequestError(
            f"callbacks.{name} reads whole matrices, which trainer.strategy=fsdp spreads over processes; "
            f"use trainer=ddp or ddp_cpu, or drop it with ~callbacks.{name}"
        )
    if name is not None and config["matching"]["axis"] == "time":
        raise RequestError(
            f"matching=time measures bare training, and callbacks.{name} would take time that it does not "
            "see; use callbacks=default or matching=flops"
        )


LOGGER_EXTRAS = {
    "tielab.tracking.tensorboard.TensorBoardLogger": "tensorboard",
    "tielab.tracking.trackio.TrackioLogger": "trackio",
}
"""Loggers that need a package which is not always there; the extra has its name."""


def _check_loggers(loggers: dict[str, Any]) -> None:
    for name, node in loggers.items():
        extra = LOGGER_EXTRAS.get(str(node.get("_target_"))) if isinstance(node, dict) else None
        if extra is not None and importlib.util.find_spec(extra) is None:
            raise RequestError(
                f"logger.{name} needs the extra: pip install 'tielab[{extra}]'; or drop it, ~logger.{name}"
            )


def _check_trainer(trainer: dict[str, Any], data: dict[str, Any], launch: str) -> None:
    if trainer["precision"] not in PRECISIONS:
        raise RequestError(f"trainer.precision={trainer['precision']} is not one of {', '.join(PRECISIONS)}")
    if trainer["strategy"] not in STRATEGIES:
        raise RequestError(f"trainer.strategy={trainer['strategy']} is not one of {', '.join(STRATEGIES)}")
    num_processes = trainer["devices"] * trainer["num_nodes"]
    if launch == "inline" and num_processes > 1:
        raise RequestError(f"launch=inline runs one process, {num_processes} were asked for; drop it")
    if trainer["strategy"] == "auto" and num_processes > 1:
        raise RequestError(
            f"trainer.devices={trainer['devices']} x trainer.num_nodes={trainer['num_nodes']} "
            "needs trainer=ddp, fsdp, ddp_cpu or fsdp_cpu"
        )
    shares = num_processes // trainer["tensor_parallel_size"]
    parts = shares * trainer["accumulate_grad_batches"]
    if data["batch_size"] % parts:
        raise RequestError(
            f"data.batch_size={data['batch_size']} cannot be split over {shares} processes x "
            f"{trainer['accumulate_grad_batches']} micro-batches; choose a multiple of {parts}"
        )


def _check_jobs_per_gpu(jobs_per_gpu: int, trainer: dict[str, Any]) -> None:
    if jobs_per_gpu > 1 and trainer["accelerator"] != "gpu":
        raise RequestError(
            f"jobs_per_gpu={jobs_per_gpu} needs GPUs, found trainer.accelerator={trainer['accelerator']}; "
            "drop it, or use trainer=gpu"
        )


def _check_matching(config: dict[str, Any]) -> None:
    axis, requested, found = (config["matching"][name] for name in ("axis", "requested", "solution"))
    if (requested is None) != (found is None) or (found is not None and not _is_solution(config)):
        raise RequestError(
            "matching.requested and matching.solution are written by the tool and say how the sizes came "
            "about; here they contradict the config: ask with matching=AXIS alone"
        )
    if axis != "width" and config["model"]["untie_at"] is not None:
        raise RequestError(
            f"matching={axis} does not go with model.untie_at={config['model']['untie_at']}: such a run has "
            "the size of both arms in turn; use matching=width"
        )


def _is_solution(config: dict[str, Any]) -> bool:
    """Whether what was solved is what the config has, with the numbers that are told of it."""
    found = config["matching"]["solution"]
    try:
        as_solved = all(lookup(config, key) == value for key, value in found["solved"].items())
        numbers = [
            found[name] for name in ("parameters", "target_parameters", "parameter_mismatch", "flops_ratio")
        ]
        told = all(isinstance(number, int | float) for number in numbers)
        return as_solved and told and found["solved"].keys() == config["matching"]["requested"].keys()
    except (KeyError, TypeError, AttributeError):
        return False


MIN_RATES, MAX_RATE_FACTOR = 3, 2.0
"""Of a study's grid: wide enough for an interior optimum, fine enough to see it."""


def _check_study(study: dict[str, Any]) -> None:
    rates, seeds = study["rates"], study["tune_seeds"]
    steps = [above / below for below, above in itertools.pairwise(rates) if below > 0]
    fits = len(rates) >= MIN_RATES and len(steps) == len(rates) - 1 and rates[-1] < math.inf
    if not fits or not all(1 < step <= MAX_RATE_FACTOR * (1 + 1e-9) for step in steps):
        raise RequestError(
            f"study.rates={rates} is no grid of learning rates: give at least {MIN_RATES} numbers above 0, "
            f"ascending, each at most {MAX_RATE_FACTOR:g} times the one before"
        )
    if not seeds or len(set(seeds)) < len(seeds) or not all(0 <= seed <= MAX_SEED for seed in seeds):
        raise RequestError(f"study.tune_seeds={seeds} must be one or more different seeds, each at least 0")
    if study["phase"] is not None and study["tune"] is None:
        raise RequestError(f"study.phase={study['phase']} is written by the tool; ask with study.tune=lr")


def _check_resume(resume_from: str | None) -> None:
    if resume_from is not None and not Path(resume_from).is_file():
        raise RequestError(f"resume_from={resume_from}: no such file")


def check_requests(configs: Sequence[dict[str, Any]], *, remote: bool = False) -> None:
    """Raise RequestError unless each of these configs can be run.

    Args:
        remote: on other machines, whose devices are not known here.
    """
    for config in configs:
        check_config(config)
        if not remote:
            _check_machine(config["trainer"])
    for config in configs:
        num_processes = config["trainer"]["devices"] * config["trainer"]["num_nodes"]
        tokenizer = _prepare_data(json.dumps(config["data"], sort_keys=True), num_processes)
        found = check_vocabulary(config, tokenizer)
        if found is not None:
            check_tie(config, found)


@functools.cache
def _prepare_data(data_config: str, num_processes: int) -> "Tokenizer":
    from tielab.data.budget import check_fits
    from tielab.data.prepare import prepare

    data = json.loads(data_config)
    prepared = prepare(data)
    check_fits(prepared, data, num_processes)
    return prepared.tokenizer


def _check_machine(trainer: dict[str, Any]) -> None:
    found = num_gpus() if trainer["accelerator"] == "gpu" else None
    if found is not None and found < trainer["devices"]:
        raise RequestError(
            f"trainer.devices={trainer['devices']} GPUs were asked for, {found} found on this machine; "
            "use trainer=cpu or trainer=ddp_cpu"
        )
    missing = [name for name in ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK") if name not in os.environ]
    if trainer["num_nodes"] > 1 and missing:
        raise RequestError(
            f"trainer.num_nodes={trainer['num_nodes']} needs the environment variables "
            f"{', '.join(missing)} on every node"
        )
