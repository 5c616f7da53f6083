"""Train and compare from Python what ``train.py`` and ``tielab report`` do from a shell.

A run is the run of the same values there: composed from ``conf/``, trained in a process of its own, with a
folder to report, resume and repeat. Imports no torch.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tielab.composition import composed, refuse_overrides, refuse_text
from tielab.config import new_stamp, yaml_text
from tielab.errors import RequestError
from tielab.explain import explain
from tielab.folder import give_back, quoted, reserve, shown
from tielab.record import LAST_CHECKPOINT, METRICS_NAME, Record
from tielab.request import checked
from tielab.run import run_folder

if TYPE_CHECKING:
    import pandas as pd

    from tielab.data.prepare import Prepared
    from tielab.models.minigpt import MiniGPT
    from tielab.report.compare import Comparison

TRAINING_SECTIONS = ("optimizer", "schedule", "budget", "trainer", "callbacks", "logger")
"""The config groups that neither the model nor the data decides."""
FOLLOWERS = {"vocab_size": "data.tokenizer.vocab_size", "block_size": "data.block_size", "seed": "seed"}
"""Arguments of a model that the config takes from another key."""


class TextData:
    """A text, its tokenizer, and how it is cut into windows; None: as ``conf/`` has it.

    Args:
        corpus: an option of ``conf/data``, such as ``wiki``, ``code`` or ``text``.
        paths: the files, folders or globs of ``text``.
        tokenizer: an option of ``conf/vocab``, such as ``bpe``, ``byte`` or ``char``.
        vocab_size: V, of ``bpe`` if no other tokenizer is named.
        block_size: T, tokens in a window.
        batch_size: windows in a step.
        train_tokens: only the first of the training split, over and over.
        overrides: further ``data.KEY=VALUE``, as ``train.py`` takes them.

    Raises:
        RequestError: an unknown option, or a key that is none of the data.
    """

    def __init__(
        self,
        corpus: str = "wiki",
        *,
        paths: Sequence[str | Path] = (),
        tokenizer: str | None = None,
        vocab_size: int | None = None,
        block_size: int | None = None,
        batch_size: int | None = None,
        train_tokens: int | None = None,
        overrides: Sequence[str] = (),
    ):
        refuse_overrides(overrides, ("data",))
        refuse_text("paths", paths)
        vocab = "bpe" if tokenizer is None and vocab_size is not None else tokenizer
        self.options = [f"data={corpus}", *([f"vocab={vocab}"] if vocab else []), *overrides]
        given: dict[str, Any] = {
            "data.paths": [str(path) for path in paths] or None,
            "data.tokenizer.vocab_size": vocab_size,
            "data.block_size": block_size,
            "data.batch_size": batch_size,
            "data.train_tokens": train_tokens,
        }
        self.values = {key: value for key, value in given.items() if value is not None}
        self._config: dict[str, Any] = composed(self.options, self.values)["data"]

    @property
    def vocab_size(self) -> int:
        """V, the number of ids; prepares the text if only that can tell."""
        asked = self._config["tokenizer"]["vocab_size"]
        return self.prepared.tokenizer.vocab_size if asked is None else int(asked)

    @property
    def block_size(self) -> int:
        """T, tokens in a window."""
        return int(self._config["block_size"])

    @property
    def prepared(self) -> "Prepared":
        """The tokenized splits, from the cache if they were prepared before."""
        from tielab.data.prepare import prepare

        return prepare(self._config)

    def __repr__(self) -> str:
        config = self._config
        vocabulary = f"{config['tokenizer']['kind']}, {config['tokenizer']['vocab_size'] or 'all'} ids"
        return (
            f"TextData({config['corpus']}: {vocabulary}, {config['batch_size']} x {self.block_size} tokens)"
        )


@dataclass(frozen=True)
class Run:
    """A training that was carried out to its end: its folder, what came out, and the trained model."""

    folder: Path
    record: Record = field(repr=False)
    model: "MiniGPT" = field(repr=False)

    @property
    def bits_per_byte(self) -> float:
        """On the validation split, after the last step; infinite if the training diverged."""
        return self._validated("bits_per_byte")

    @property
    def perplexity(self) -> float:
        """On the validation split, after the last step; infinite if the training diverged."""
        return self._validated("perplexity")

    @property
    def metrics(self) -> "pd.DataFrame":
        """``metrics.csv``: a row for each logged step and each validation."""
        import pandas as pd

        return pd.read_csv(self.folder / METRICS_NAME)

    def _validated(self, name: str) -> float:
        validation = self.record.validation
        return float("inf") if validation is None else float(validation[name])


def train(
    model: "MiniGPT",
    data: TextData,
    *,
    tokens: int | None = None,
    learning_rate: float | None = None,
    num_validations: int | None = None,
    overrides: Sequence[str] = (),
    output_dir: str | Path = "outputs",
    progress: bool = True,
) -> Run:
    """Train a new model as ``train.py`` would, in a process of its own, and give it the trained weights.

    The order of the batches follows the model's seed. No logger but ``metrics.csv``, unless
    ``overrides=["logger=wandb"]``.

    Args:
        tokens: to train on; None: as ``conf/budget`` has it.
        learning_rate: peak; None: as ``conf/optimizer`` has it.
        num_validations: evenly spaced; None: as ``conf/budget`` has it.
        overrides: further ``KEY=VALUE`` of optimizer, schedule, budget, trainer, callbacks and logger.
        output_dir: the run's folder goes below it, into ``runs``.
        progress: tell on standard error how far it is.

    Raises:
        RequestError: model and data do not fit, the model was trained before, or the run cannot be run.
        RuntimeError: the training failed; the traceback is in its record.
        KeyboardInterrupt: it was stopped, with a checkpoint; ``tielab resume FOLDER`` goes on.
    """
    config = _config_of_run(model, data, overrides, {
        "budget.tokens": tokens,
        "optimizer.learning_rate": learning_rate,
        "budget.num_validations": num_validations,
        "output_dir": str(output_dir),
    }, progress)  # fmt: skip
    _refuse_trained(model)
    (config,) = checked([config])
    folder = Path(output_dir) / "runs" / new_stamp()
    record = _trained(config, folder, progress)
    if not record.finished and not record.diverged:
        error = record.error or {"type": record.status, "message": "no reason given"}
        raise RuntimeError(f"{shown(folder)} {record.status}: {error['type']}: {error['message']}")
    _take_weights(model, folder, record)
    return Run(folder, record, model)


def _trained(config: dict[str, Any], folder: Path, progress: bool) -> Record:
    """The record of a new run of a config, however it ended.

    Raises:
        RequestError, KeyboardInterrupt: as ``train``.
    """
    try:
        reserve(config, folder)
        if progress:
            arm = "tied" if config["model"]["tied"] else "untied"
            print(f"{arm}, seed {config['seed']} -> {shown(folder)}", file=sys.stderr, flush=True)
        return run_folder(folder)
    except RequestError:
        if folder.exists():
            give_back(folder)
        raise
    except OSError as error:
        raise RequestError(explain(error) or error) from error
    except KeyboardInterrupt:
        print(f"interrupted; to go on: tielab resume {quoted(folder)}", file=sys.stderr)
        raise


def compare(runs: Iterable[Run | str | Path], baseline: str | None = None) -> "Comparison":
    """The comparison that ``tielab report`` makes of these runs, or of folders of runs and sweeps.

    Args:
        baseline: the arm that all others are compared with.

    Raises:
        RequestError: no run, a folder that is none, or no arm of the baseline's name.
    """
    from tielab.report.collect import collect_runs
    from tielab.report.compare import compare as compare_collected

    refuse_text("runs", runs)
    folders = [run.folder if isinstance(run, Run) else Path(run) for run in runs]
    return compare_collected(collect_runs(folders), baseline)


def _config_of_run(
    model: "MiniGPT", data: TextData, overrides: Sequence[str], given: Mapping[str, Any], progress: bool
) -> dict[str, Any]:
    """The config that ``train.py`` composes for the same values."""
    refuse_overrides(overrides, TRAINING_SECTIONS)
    _refuse_misfit(model, data)
    asked = model.arguments
    values = {
        **data.values,
        **{f"model.{name}": value for name, value in asked.items() if name not in FOLLOWERS},
        "model._target_": f"{type(model).__module__}.{type(model).__qualname__}",
        "seed": asked["seed"],
        **{key: value for key, value in given.items() if value is not None},
    }
    if not any(override.startswith("logger=") for override in overrides):
        overrides = ["logger=none", *overrides]
    config = composed([*data.options, *overrides], values)
    if not progress:
        config["callbacks"].pop("progress", None)
    if "last" not in config["callbacks"]:
        raise RequestError("callbacks has no last: without its checkpoint the model gets no weights")
    return config


def _refuse_misfit(model: "MiniGPT", data: TextData) -> None:
    if not isinstance(data, TextData) or not hasattr(model, "arguments"):
        raise RequestError(
            f"train takes a MiniGPT and a TextData, found {type(model).__name__} and {type(data).__name__}"
        )
    for name in ("vocab_size", "block_size"):
        found, expected = getattr(model, name), getattr(data, name)
        if found != expected:
            raise RequestError(
                f"the model has {name}={found}, the data {name}={expected}; build it with "
                "MiniGPT(data.vocab_size, data.block_size, ...)"
            )


def _refuse_trained(model: "MiniGPT") -> None:
    """Raise RequestError unless a model's weights are those that its arguments give."""
    from tielab.models.accounting import weights_hash

    if weights_hash(model) != weights_hash(type(model)(**model.arguments)):
        raise RequestError(
            f"the model's weights are not those of seed={yaml_text(model.seed)}: it was trained or changed "
            "before; build a new one"
        )


def _take_weights(model: "MiniGPT", folder: Path, record: Record) -> None:
    from tielab.checkpoint import load_weights, read_checkpoint
    from tielab.models.accounting import weights_hash

    load_weights(model, read_checkpoint(folder / LAST_CHECKPOINT, {}))
    if weights_hash(model) != record.weights_hash:
        raise RuntimeError(f"{folder / LAST_CHECKPOINT} does not hold the weights of its record")
