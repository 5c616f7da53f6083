"""What a run may be asked for: every key with its type and its meaning. The values live in ``conf/``.

A key that has a value here came later than others: it is what a run did before there was the key, so an older
``run.yaml`` goes on without it, and the hash of a config leaves it out (``LATER_DEFAULTS`` in ``config.py``).
"""

from dataclasses import dataclass
from enum import Enum
from typing import Any

from omegaconf import MISSING


class Corpus(Enum):
    """Where the text comes from."""

    wiki = "wiki"
    code = "code"
    text = "text"
    url = "url"
    hub = "hub"


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


class Split(Enum):
    """How text that has no published splits is shared out."""

    hash = "hash"
    order = "order"


class HeadMap(Enum):
    """What the final hidden states pass before the head's matrix scores them."""

    none = "none"
    linear = "linear"
    permutation = "permutation"
    rotation = "rotation"


class Activation(Enum):
    """Between the two maps of a block's MLP."""

    gelu = "gelu"
    gelu_tanh = "gelu_tanh"


class End(Enum):
    """Where a model meets its vocabulary."""

    embedding = "embedding"
    head = "head"


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
    """The class: MiniGPT or one derived from it, in this package."""
    vocab_size: int | None = MISSING
    """Rows V of the token embedding; comes from the tokenizer by interpolation."""
    block_size: int = MISSING
    """Longest sequence T the model can read; comes from ``data.block_size``."""
    embed_dim: int = MISSING
    """Width D of embedding, blocks and head; a multiple of ``num_heads``."""
    num_layers: int = MISSING
    """Blocks L."""
    num_heads: int = MISSING
    """Attention heads of a block."""
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
    """Keys every initial weight, together with the parameter's name; comes from ``seed``."""
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
    activation: Activation = Activation.gelu
    """``gelu``: x Phi(x); ``gelu_tanh``: GPT-2's approximation of it by a tanh."""


@dataclass
class TokenizerConfig:
    kind: TokenizerKind = MISSING
    """Of which units; trained on the training split only, except ``file``."""
    vocab_size: int | None = MISSING
    """Exact number of ids V. For ``char`` null means every character of the training split."""
    path: str | None = MISSING
    """For ``kind=file``: a tokenizer.json, or a folder with GPT-2's vocabulary and merges."""
    byte_fallback: bool = MISSING
    """For ``char``: 256 byte ids spell characters the training split lacks."""


@dataclass
class UrlConfig:
    """A file from the web; its suffix says how it is read, as of local files."""

    address: str | None = MISSING
    """http or https; there is none that would do for everybody."""
    sha256: str | None = MISSING
    """Of the file as it is sent, 64 hex digits. Null is refused with the hash that was found."""


@dataclass
class HubConfig:
    """A data set of the Hugging Face hub, for ``corpus=hub``; ``data.text_key`` names its column of text."""

    name: str = MISSING
    """Such as ``Salesforce/wikitext``; or a folder with its files: ``/...``, ``./...`` or ``~/...``."""
    config: str | None = MISSING
    """Which of its configurations; null: the only one."""
    revision: str | None = MISSING
    """The commit, 40 hexadecimal digits; null for a folder."""
    train: str = MISSING
    """The published split that is trained on. If it is the only one, its documents are shared out by hash."""
    validation: str | None = MISSING
    """The published split that is validated on. Where it or ``test`` is null, the documents of the other are
    shared out between the two by hash."""
    test: str | None = MISSING
    """The published split that is kept for a test; null: as with ``validation``."""
    lines: bool = MISSING
    """True: the rows are WikiText's lines, and a document is an article; false: a row is a document."""
    max_bytes: int | None = MISSING
    """Only the first documents of ``train`` that have no more bytes of text are downloaded; null: all."""


@dataclass
class DataConfig:
    corpus: Corpus = MISSING
    """Where the text comes from."""
    paths: list[str] = MISSING
    """For ``corpus=text``: local files, folders or globs."""
    document: Document | None = MISSING
    """For plain text of ``corpus=text``; null: a file each if there are several, else paragraphs."""
    split: Split = Split.hash
    """``hash``: each document by its own hash. ``order``: the first 90 % of the characters of one plain text
    train, the next 5 % validate, the last 5 % test."""
    text_key: str = "text"
    """Of ``.jsonl`` and ``.parquet`` files, whose rows are the documents: the key or column with the text."""
    url: UrlConfig | None = None
    """For ``corpus=url``; null for others."""
    hub: HubConfig | None = None
    """For ``corpus=hub``; null for others."""
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
    """Processes that cut windows beside each training process; 0: it does so itself."""
    seed: int = MISSING
    """Keys the order of the training windows."""
    cache_dir: str = MISSING
    """Tokenized text is kept here for all runs."""


@dataclass
class OptimizerConfig:
    """AdamW."""

    learning_rate: float = MISSING
    """Peak of the schedule."""
    beta1: float = MISSING
    """Decay of the mean of the gradients."""
    beta2: float = MISSING
    """Decay of the mean of their squares."""
    epsilon: float = MISSING
    """Added to the root of that mean before it divides."""
    weight_decay: float = MISSING
    """For the matrices inside the blocks; biases and norms have none."""
    embedding_weight_decay: float = MISSING
    """For token embedding, position embedding and LM head, in both arms."""
    gradient_clip_norm: float | None = MISSING
    """Gradients with a larger norm, all together, are scaled down to it; null: never."""
    fused: bool = MISSING
    """True: one kernel updates all parameters; faster, with other rounding."""
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
    """cpu or gpu."""
    strategy: str = MISSING
    """auto (one process), ddp or fsdp."""
    devices: int = MISSING
    """Processes on each node, one per device."""
    num_nodes: int = MISSING
    """Machines that one run spans."""
    tensor_parallel_size: int = MISSING
    """Processes that hold one model together, each a part of its vocabulary; divides their number."""
    precision: str = MISSING
    """32-true, bf16-mixed, bf16-true or 64-true."""
    num_threads: int = MISSING
    """CPU threads of each process; fixed, since the bits of a result depend on it."""
    accumulate_grad_batches: int = MISSING
    """Micro-batches that a process takes one after the other for a step."""
    deterministic: bool = MISSING
    """True: operations whose result depends on timing are refused or replaced."""
    log_every_n_steps: int = MISSING
    """Optimizer steps from one row of losses in metrics.csv to the next."""


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
    """``lr``: choose the learning rate first; null: compare at the rate given."""
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
    """Of the weights, the order of the batches and dropout. Arms are paired by it."""
    init_from: str | None = None
    """A folder with a GPT-2-shaped model as transformers saves it, whose weights the run starts from."""
    init_tie_from: End | None = None
    """For a tied model that starts from an untied one: the matrix that becomes the shared one; null: refused
    unless both are equal."""
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
    jobs_per_gpu: int = 1
    """Runs that may train on one GPU at the same time; only runs that say the same number share one."""
    launch: LaunchMethod = MISSING
    """``inline`` runs in this process, for a debugger."""
    compile: bool = False
    """Training steps run blocks that ``torch.compile`` has built, in the first step, which takes up to a
    minute longer; evaluations do not. Weights and checkpoints are the same kind of thing either way."""
