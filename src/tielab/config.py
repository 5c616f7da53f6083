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
from dataclasses import dataclass, is_dataclass
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any, get_type_hints

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING, DictConfig, OmegaConf

SCHEMA_NAME = "tielab_schema"
LAYOUT_NAME = "tielab_layout"

HELP = """\
Train a MiniGPT with a tied or an untied LM head and write what came out.

  python train.py model.tied=false                       one run
  python train.py -m model.tied=true,false               both arms, one table
  python train.py -m model.tied=true,false seed=0,1,2    with seeds: intervals
  python train.py -m model.tied=true,false width=d64,d128 vocab=bpe1024,bpe4096
  python train.py -m model.tied=true,false matching=params  the arms with equally many parameters
  python train.py -m model.tied=true,false study.tune=lr seed=0,1,2  each arm at its own best rate
  python train.py --cfg job                              every key with its value
  python train.py --config-dir RUN --config-name run     repeat a run from its folder
  python train.py -m ... resume=true                     go on with this sweep where it stopped

Any key is set with key=value; a comma-separated list sweeps it (with -m).

Groups (group=option)
{groups}

What came out: tielab report [FOLDER...]
"""


class Corpus(Enum):
    """Where the text comes from."""

    wiki = "wiki"
    code = "code"
    text = "text"


class TokenizerKind(Enum):
    """How text becomes ids."""

    byte = "byte"
    char = "char"
    bpe = "bpe"
    file = "file"


class Document(Enum):
    """What counts as one document when local files are split."""

    file = "file"
    paragraph = "paragraph"


class HeadMap(Enum):
    """What the final hidden states pass before the head's matrix scores them."""

    none = "none"
    linear = "linear"
    permutation = "permutation"
    rotation = "rotation"


# What becomes of a sweep when one of its jobs fails; not a class, since continue is a word of Python's.
OnFailure = Enum("OnFailure", {"continue": "continue", "stop": "stop"})


class MatchingAxis(Enum):
    """What is equal in the two arms of a comparison."""

    width = "width"
    params = "params"
    flops = "flops"
    time = "time"


class Arm(Enum):
    """What ``model.tied`` says, as a name."""

    tied = "tied"
    untied = "untied"


class MatchingSize(Enum):
    """Which size makes up for the parameters that tying saves."""

    width = "width"
    depth = "depth"


class TunedKey(Enum):
    """What a study chooses before it compares."""

    lr = "lr"


class Phase(Enum):
    """What a run of a study is for."""

    tune = "tune"
    report = "report"


class LaunchMethod(Enum):
    """How the processes of a run are started."""

    forkserver = "forkserver"
    spawn = "spawn"
    torchrun = "torchrun"
    inline = "inline"


@dataclass
class ModelConfig:
    """The network; ``_target_`` names the class, the rest are its arguments."""

    _target_: str = MISSING
    vocab_size: int | None = MISSING
    """Rows V of the token embedding; comes from the tokenizer by interpolation."""
    block_size: int = MISSING
    """Longest sequence T the model can read; comes from ``data.block_size``."""
    embed_dim: int = MISSING
    """Width D of embedding, blocks and head; a multiple of ``num_heads``."""
    num_layers: int = MISSING
    num_heads: int = MISSING
    hidden_dim: int = MISSING
    """Width of the MLP inside a block."""
    dropout: float = MISSING
    """Probability in [0, 1)."""
    tied: bool = MISSING
    """True: the LM head scores with the token embedding matrix itself."""
    output_bias: bool = MISSING
    """True: the head adds V biases, in both arms."""
    embed_scale: float = MISSING
    """Looked-up token vectors are multiplied by this before the first block."""
    init_std: float | None = MISSING
    """Standard deviation of every weight at the start; null: min(0.02, 2.56 / embed_dim)."""
    seed: int = MISSING
    head_map: HeadMap = MISSING
    """``linear``: a learned map A of the hidden state; ``permutation``: W = Pi S, with a fixed random order
    of the rows; ``rotation``: W = S Q, with a fixed random orthogonal Q. Of tied models."""
    head_map_rank: int | None = MISSING
    """r of a linear map D -> r -> D, less than ``embed_dim``; null: a square one."""
    head_map_penalty: float = MISSING
    """lambda >= 0: lambda ||A|| (Frobenius) is added to what is trained on, to no loss that is reported."""
    embed_rank: int | None = MISSING
    """r of a factorised embedding V x r times r x D at both ends, less than ``embed_dim``; null: whole."""
    embed_gradient_scale: float = MISSING
    """At least 0; multiplies the gradient that reaches the matrix through the lookup."""
    embed_frozen: bool = MISSING
    """True: the input table stays at its initial values; of untied models."""
    embed_init_std: float | None = MISSING
    """Standard deviation of looked-up vectors' entries at the start; null: ``init_std``."""
    head_init_std: float | None = MISSING
    """That of the rows an untied head scores with, at least 0; null: ``init_std``."""
    untie_at: float | None = MISSING
    """In [0, 1]: tied until that share of the steps, then split, with the optimizer's state copied; 0 before
    the first step, 1 never."""


@dataclass
class TokenizerConfig:
    kind: TokenizerKind = MISSING
    vocab_size: int | None = MISSING
    """Exact number of ids V. For ``char`` null means every character of the training split."""
    path: str | None = MISSING
    """For ``kind=file``: a tokenizer.json, or a folder with GPT-2's vocabulary and merges."""
    byte_fallback: bool = MISSING
    """For ``char``: 256 byte ids spell characters the training split lacks."""


@dataclass
class DataConfig:
    corpus: Corpus = MISSING
    paths: list[str] = MISSING
    """For ``corpus=text``: local files, folders or globs."""
    document: Document | None = MISSING
    """For ``corpus=text``; null: a file each if there are several, else paragraphs."""
    tokenizer: TokenizerConfig = MISSING
    block_size: int = MISSING
    """Tokens T in a window."""
    train_tokens: int | None = MISSING
    """Only the first N tokens of the training split are trained on, over and over; null: all. The
    tokenizer is that of the whole split all the same."""
    stride: int = MISSING
    """Tokens from one training window to the next."""
    eval_stride: int = MISSING
    """Tokens newly scored by each evaluation window; the rest of it is context."""
    check_strides: list[int] = MISSING
    """Further such strides: at each the finished model is scored once more on the validation split, to
    tell whether a difference depends on the context. Trains nothing else, but says more in the record."""
    batch_size: int = MISSING
    """Windows per optimizer step, over all processes and accumulated micro-batches."""
    eval_batch_size: int = MISSING
    """Windows per evaluation batch in each process."""
    num_workers: int = MISSING
    seed: int = MISSING
    """Keys the order of the training windows."""
    cache_dir: str = MISSING


@dataclass
class OptimizerConfig:
    """AdamW."""

    learning_rate: float = MISSING
    """Peak of the schedule."""
    beta1: float = MISSING
    beta2: float = MISSING
    epsilon: float = MISSING
    weight_decay: float = MISSING
    """For the matrices inside the blocks; biases and norms have none."""
    embedding_weight_decay: float = MISSING
    """For token embedding, position embedding and LM head, in both arms."""
    gradient_clip_norm: float | None = MISSING
    fused: bool = MISSING
    embedding_learning_rate_scale: float = MISSING
    """Multiplies the learning rate of the token embedding's matrix; tied, of the shared one."""
    head_learning_rate_scale: float = MISSING
    """Multiplies that of an untied head's matrix."""


@dataclass
class ScheduleConfig:
    """Linear warm-up, then cosine down to a fraction of the peak."""

    warmup_fraction: float = MISSING
    """Share of all steps, in [0, 1)."""
    final_fraction: float = MISSING
    """Last learning rate as a share of the peak, in [0, 1]."""


@dataclass
class BudgetConfig:
    tokens: int | None = MISSING
    """Training tokens; the number of steps is rounded up. Null where ``bytes`` says how much."""
    bytes: int | None = MISSING
    """Bytes of text that the training tokens stand for, on the training split's average; the number of
    tokens is rounded up. One budget for all vocabularies. Null where ``tokens`` says how much."""
    num_validations: int = MISSING
    """Evenly spaced, the last one after the last step."""


@dataclass
class TrainerConfig:
    accelerator: str = MISSING
    strategy: str = MISSING
    devices: int = MISSING
    """Processes on each node, one per device."""
    num_nodes: int = MISSING
    tensor_parallel_size: int = MISSING
    """Processes that hold one model together, each a part of its vocabulary; divides their number."""
    precision: str = MISSING
    """32-true, bf16-mixed, bf16-true or 64-true."""
    num_threads: int = MISSING
    """CPU threads of each process; fixed, since the bits of a result depend on it."""
    accumulate_grad_batches: int = MISSING
    deterministic: bool = MISSING
    log_every_n_steps: int = MISSING


@dataclass
class MatchingConfig:
    """What the arms have in common. The size of the ``adjusted`` arm is solved, the other's stays as asked.

    The reference is the other arm, plain, at the sizes asked for; a run of the other arm stays as it is."""

    axis: MatchingAxis = MISSING
    """``width``: the sizes, as asked. ``params``: the number of parameters. ``flops``: the parameters and,
    through ``budget.tokens``, the operations of the whole training. ``time``: the sizes as asked and,
    through ``budget.tokens``, the seconds of the training, as measured here."""
    adjusted: Arm = MISSING
    """Whose size or budget is solved."""
    by: MatchingSize = MISSING
    """For ``params`` and ``flops``: solve ``embed_dim`` (``hidden_dim`` keeps its proportion) or
    ``num_layers``."""
    requested: Any = MISSING
    """Written by the tool: the dotted keys that were solved, with the values asked for; null: none."""
    solution: Any = MISSING
    """Written by the tool: their values now, and what the two arms cost; null where none was solved."""


@dataclass
class StudyConfig:
    """A sweep that first chooses the learning rate of each combination of its keys."""

    tune: TunedKey | None = MISSING
    rates: list[float] = MISSING
    """The grid: ascending, at least 3, each at most twice the one before; extended where its best is an
    end."""
    tune_seeds: list[int] = MISSING
    """Seeds of the runs that choose; none of them is reported."""
    phase: Phase | None = MISSING
    """Written by the tool: whether a run is one that chooses or one that is reported."""


@dataclass
class Config:
    """A whole run."""

    model: ModelConfig = MISSING
    data: DataConfig = MISSING
    optimizer: OptimizerConfig = MISSING
    schedule: ScheduleConfig = MISSING
    budget: BudgetConfig = MISSING
    trainer: TrainerConfig = MISSING
    callbacks: dict[str, Any] = MISSING
    """Named Lightning callbacks; ``~callbacks.NAME`` switches one off."""
    logger: dict[str, Any] = MISSING
    """Named Lightning loggers beside metrics.csv; ``~logger.NAME`` switches one off."""
    matching: MatchingConfig = MISSING
    study: StudyConfig = MISSING
    seed: int = MISSING
    resume: bool = MISSING
    """True: go on with the newest run or sweep of this request below ``output_dir``, if there is one."""
    resume_from: str | None = MISSING
    """A checkpoint of another folder to go on from: weights, optimizer, step."""
    on_failure: OnFailure = MISSING
    """``continue``: the other jobs of the sweep run all the same; ``stop``: none is begun after it, and
    those that run beside it are stopped with a checkpoint."""
    output_dir: str = MISSING
    """Runs, sweeps and the W&B folder go below it."""
    parallel_jobs: int = MISSING
    """Jobs of a sweep that train at the same time and share cores and GPUs; more than one needs
    ``hydra/launcher=joblib|ray|submitit_local|submitit_slurm``."""
    launch: LaunchMethod = MISSING
    """``inline`` runs in this process, for a debugger."""


RUN_ONLY_KEYS = (
    "callbacks.progress",
    "data.cache_dir",
    "data.num_workers",
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
    "trainer.accelerator",
    "trainer.devices",
    "trainer.num_nodes",
    "trainer.num_threads",
    "trainer.strategy",
    "trainer.tensor_parallel_size",
)
"""Keys that say where a step is computed: they decide the rounding, and what dropout drops."""

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


def register(config_dir: Path | None = None) -> None:
    """Make schema, layout and resolvers known to Hydra, so that every composed config is type-checked.

    Args:
        config_dir: the folder of config groups, listed in ``--help``.
    """
    help_node = {"app_name": "train.py", "template": HELP.format(groups=_list_groups(config_dir))}
    layout = {**LAYOUT, "hydra": {**LAYOUT["hydra"], "help": help_node}}
    store = ConfigStore.instance()
    store.store(name=SCHEMA_NAME, node=Config)
    store.store(name=LAYOUT_NAME, node=layout, package="_global_")
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


def _list_groups(config_dir: Path | None) -> str:
    """One line per config group with its options; parts that start with an underscore are not options."""
    if config_dir is None:
        return ""
    lines = []
    for group in sorted(path for path in config_dir.rglob("*") if path.is_dir()):
        options = sorted(p.stem for p in group.glob("*.yaml") if not p.stem.startswith("_"))
        if options:
            lines.append(f"  {group.relative_to(config_dir)}: {', '.join(options)}")
    return "\n".join(lines)


# One per process that composes: twenty launches in one second must not share a folder.
STAMP = f"{datetime.now():%Y-%m-%d_%H-%M-%S}-{secrets.token_hex(3)}"


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
    """What a run computes: every dotted key with its value, minus run-only and provenance keys."""

    def flat(node: dict[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
        for name, value in node.items():
            key = f"{prefix}{name}"
            if key in RUN_ONLY_KEYS or key in PROVENANCE_KEYS:
                continue
            if isinstance(value, dict) and value:
                yield from flat(value, f"{key}.")
            else:
                yield key, value

    return dict(flat(config, ""))


LINKS = {
    "model.seed": "seed",
    "data.seed": "seed",
    "model.vocab_size": "data.tokenizer.vocab_size",
    "model.block_size": "data.block_size",
    "data.stride": "data.block_size",
    "data.eval_stride": "data.block_size",
    "logger.wandb.save_dir": "output_dir",
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
    """The value of a dotted key."""
    for key in dotted.split("."):
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
        if is_dataclass(kind):
            keys += known_keys(kind, f"{prefix}{name}.")
    return keys


GROUPS = ("tying", "width", "vocab", "experiments")
"""Config groups that have no key of their own name."""


def suggest_key(name: str) -> str:
    """``; did you mean KEY?`` for a key close to a known one, else nothing."""
    return suggest(name, [*known_keys(), *GROUPS])


def suggest(name: str, known: Iterable[str]) -> str:
    """``; did you mean NAME?`` for a name close to a known one, else nothing."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""
