"""One training: its objects, built from the config of a run, and what the record says of it afterwards."""

import logging
import math
import os
import shutil
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import lightning.pytorch as L
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.loggers import Logger, WandbLogger

from tielab.build import build
from tielab.checkpoint import WholeCheckpointIO, check_weights, read_checkpoint
from tielab.config import PLACEMENT_KEYS, computed
from tielab.data.budget import check_fits, data_summary, planned_tokens
from tielab.data.datamodule import TextDataModule
from tielab.data.prepare import Prepared, prepare
from tielab.data.tokenizer import Tokenizer
from tielab.data.windows import batch_hash
from tielab.diagnostics.base import Diagnostic
from tielab.errors import RequestError
from tielab.exchange.load import start_from
from tielab.machine import device_name, peak_memory_bytes, versions
from tielab.models.accounting import body_hash, flops_per_token, parameter_ledger, weights_hash
from tielab.models.minigpt import MiniGPT
from tielab.models.sharding import is_sharded
from tielab.models.tying import BrokenTieError
from tielab.record import (
    LAST_CHECKPOINT,
    TOKENIZER_NAME,
    Record,
    Validation,
    write_atomic,
    write_record,
)
from tielab.tracking.local import LocalLogger
from tielab.tracking.metrics_csv import MetricsCsv
from tielab.tracking.rank import is_global_rank_zero
from tielab.tracking.wandb import note_device
from tielab.training.callbacks import RunInterruptedError, StopOnSignal, TieGuard, TrainLog, ValidateAt
from tielab.training.strategy import build_strategy
from tielab.training.strides import CheckStrides
from tielab.training.task import CHECKPOINT_KEY, LanguageModelTask
from tielab.training.throughput import ThroughputMeter, TrainingClock

log = logging.getLogger("tielab")

WARMUP_STEPS = 10
"""Left out of the throughput."""
AGENT_SWEEP = "WANDB_SWEEP_ID"
"""Set by ``wandb agent``, whose jobs are single runs here."""


class DivergedError(RuntimeError):
    """The training ended with a loss that is no number."""


class Fit:
    """The objects of one run, built from its config, and what is read off them afterwards."""

    def __init__(self, config: dict[str, Any], folder: Path, record: Record):
        self.config, self.folder, self.record = config, folder, record
        self._started = time.monotonic()
        self._places = (folder, Path(config["output_dir"]))
        self.wandb_logger: WandbLogger | None = None
        self.local_loggers: list[LocalLogger] = []
        self.diagnostics: list[Diagnostic] = []
        torch.set_num_threads(config["trainer"]["num_threads"])
        # Deterministic runs would otherwise write NaN into every new tensor first.
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
        self.prepared = self._prepare()
        tokens_per_step = config["data"]["batch_size"] * config["data"]["block_size"]
        self.num_steps = -(-planned_tokens(config["budget"], self.prepared) // tokens_per_step)
        self.model = build_model(config["model"], self.prepared.tokenizer)
        self._start_from()
        if config["compile"]:
            self.model.compile_blocks()
        validation = self.prepared.validation
        assert validation.num_scored_words is not None, "a whole split"
        self.task = LanguageModelTask(
            model=self.model,
            optimizer=config["optimizer"],
            schedule=config["schedule"],
            num_steps=self.num_steps,
            tokens_per_step=tokens_per_step,
            content_hash=validation.content_hash,
            num_words=validation.num_scored_words,
            identity=run_identity(config, self.prepared.tokenizer),
            seed=config["seed"],
        )
        self.data = TextDataModule(config["data"], self.prepared, self.num_steps)
        self.checkpoint = self._find_checkpoint()
        settings = config["trainer"]
        self.clock = TrainingClock(settings["log_every_n_steps"] * settings["accumulate_grad_batches"])
        self.throughput = ThroughputMeter(self.clock, settings["log_every_n_steps"], WARMUP_STEPS)
        self.strides = CheckStrides(config["data"]["check_strides"], self.data.stride_dataloader)
        self.guard = TieGuard(config["model"]["tied"], self.task.untie_step)

    def _prepare(self) -> Prepared:
        prepared = prepare(self.config["data"])
        check_fits(prepared, self.config["data"])
        self.record.seconds_by_phase["data"] = time.monotonic() - self._started
        return prepared

    def _start_from(self) -> None:
        """Take over the weights that the run starts from, the same ones again if it goes on."""
        init = start_from(self.config, self.model, self.prepared.tokenizer)
        before = self.record.init
        if self.record.attempts and before is not None and init != before:
            raise RequestError(
                f"init_from={self.config['init_from']} was changed since the run began; put the former files "
                "back or start a new run"
            )
        self.record.init = init

    def _find_checkpoint(self) -> Path | None:
        """What to go on from: this run's own last checkpoint, else the one asked for."""
        self.first_step, self.earlier_seconds = 0, 0.0
        own, asked = self.folder / LAST_CHECKPOINT, self.config["resume_from"]
        if self.record.attempts and own.is_file():
            if self._read_progress(own) < self.num_steps:
                log.info("goes on after step %d of %d", self.first_step, self.num_steps)
                return own
            log.info("%s is of the end of a training that did not finish: it is trained anew", own)
        elif self.record.attempts:
            log.info("has no checkpoint: begins anew")
        self.first_step, self.earlier_seconds = 0, 0.0
        if asked is None:
            return None
        step = self._read_progress(Path(asked))
        if step >= self.num_steps:
            raise RequestError(f"resume_from={asked} is of a complete run ({step} steps); nothing is left")
        self._take_along_best(Path(asked))
        return Path(asked)

    def _take_along_best(self, asked: Path) -> None:
        """Copy the best checkpoint so far: the callback that goes on will write a better one or none."""
        best, own = asked.with_name("best.ckpt"), self.folder / LAST_CHECKPOINT.with_name("best.ckpt")
        if "best" in self.config["callbacks"] and best.is_file() and is_global_rank_zero():
            read_checkpoint(best, self.task.identity)
            own.parent.mkdir(exist_ok=True)
            shutil.copyfile(best, own)

    def _read_progress(self, path: Path) -> int:
        # Lightning reads it again; this is to refuse a wrong one in our words, before anything starts.
        checkpoint = read_checkpoint(path, self.task.identity)
        check_weights(self.model, checkpoint)
        step, seconds = checkpoint.get("global_step"), checkpoint[CHECKPOINT_KEY].get("seconds")
        if not isinstance(step, int) or not isinstance(seconds, float):
            raise RequestError(f"checkpoint {path} does not say its step and its seconds; name another")
        self.first_step, self.earlier_seconds = step, seconds
        return step

    def _build_trainer(self) -> L.Trainer:
        settings = self.config["trainer"]
        validate = ValidateAt(self.num_steps, self.config["budget"]["num_validations"])
        named = [build(node, L.Callback, self._places) for node in self.config["callbacks"].values()]
        self.diagnostics = [callback for callback in named if isinstance(callback, Diagnostic)]
        try:
            return L.Trainer(
                accelerator=settings["accelerator"],
                strategy=build_strategy(settings),
                devices=settings["devices"],
                num_nodes=settings["num_nodes"],
                precision=settings["precision"],
                accumulate_grad_batches=settings["accumulate_grad_batches"],
                deterministic=settings["deterministic"],
                max_epochs=1,
                max_steps=self.num_steps,
                callbacks=[
                    self.throughput,
                    validate,
                    TrainLog(settings["log_every_n_steps"], self.throughput),
                    self.guard,
                    *named,
                    StopOnSignal(
                        self.folder / LAST_CHECKPOINT, settings["log_every_n_steps"], validate.steps
                    ),
                    self.strides,
                ],
                logger=self._build_loggers(),
                plugins=[WholeCheckpointIO(self._places)],
                profiler=self.clock,
                default_root_dir=self.folder,
                use_distributed_sampler=False,
                # Weights gathered in inference mode cannot be trained with afterwards.
                inference_mode=settings["strategy"] != "fsdp",
                num_sanity_val_steps=0,
                enable_progress_bar=False,
                enable_model_summary=False,
                enable_checkpointing=any(isinstance(c, L.callbacks.ModelCheckpoint) for c in named),
            )
        except (MisconfigurationException, ValueError) as error:
            raise RequestError(" ".join(str(error).split())) from error

    def _build_loggers(self) -> list[Logger]:
        record = self.record
        taken_up = bool(record.attempts)
        loggers: list[Logger] = [MetricsCsv(self.folder, self.first_step if taken_up else None)]
        observed = {**self.config["model"], "vocab_size": self.prepared.tokenizer.vocab_size}
        for node in self.config["logger"].values():
            logger = build(
                node,
                Logger,  # type: ignore[type-abstract]
                self._places,
                run_id=record.run_id,
                name=record.run_id,
                group=record.sweep or os.environ.get(AGENT_SWEEP),
                job_type="tied" if record.tied else "untied",
                config={**self.config, "model": observed},
                resumed=taken_up,
            )
            if isinstance(logger, WandbLogger):
                self.wandb_logger = logger
            elif isinstance(logger, LocalLogger):
                self.local_loggers.append(logger)
            loggers.append(logger)
        return loggers

    def run(self) -> None:
        """Train, evaluate, and fill in the record.

        Raises:
            RunInterruptedError, BrokenTieError, RequestError, or whatever the training raised.
        """
        trainer = self._build_trainer()
        self._describe_before(trainer)
        L.seed_everything(self.config["seed"], verbose=False)  # for callbacks; ours are keyed by name
        # Lightning gives names such as "best" a meaning, but no absolute path.
        checkpoint = None if self.checkpoint is None else self.checkpoint.absolute()
        together = False  # whether all processes come here, as gathering the weights needs
        try:
            self.guard.check(self.model, "after the build")
            trainer.fit(self.task, self.data, ckpt_path=checkpoint, weights_only=True)
            self._check_complete(trainer)
            together = True
        except RunInterruptedError:
            together = True
            raise
        except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            began = self.task.num_processes is not None
            if checkpoint is None or began or isinstance(error, RequestError | BrokenTieError):
                raise
            raise RequestError(f"checkpoint {self.checkpoint} cannot be restored: {error!r}") from error
        finally:
            self._describe_after(trainer, together)

    def _check_complete(self, trainer: L.Trainer) -> None:
        # Lightning returns from a fit that it found nothing to do in.
        task, planned = self.task, self.num_steps * self.task.tokens_per_step
        if task.tokens_seen != planned and not trainer.should_stop:
            raise RuntimeError(f"training ended after {task.tokens_seen} of {planned} tokens")
        if not task.validations or task.validations[-1].tokens_seen != task.tokens_seen:
            raise RuntimeError(f"training ended after {task.tokens_seen} tokens without a validation there")
        if not math.isfinite(task.validations[-1].bits_per_byte):
            raise DivergedError(
                f"the validation loss is {task.validations[-1].bits_per_byte}; lower optimizer.learning_rate"
            )

    def _describe_before(self, trainer: L.Trainer) -> None:
        record = self.record
        record.versions = versions()
        record.num_threads = torch.get_num_threads()
        record.device = device_name(trainer)
        record.parameters = parameter_ledger(self.model)
        record.flops_per_token = flops_per_token(self.model)
        record.data = data_summary(self.prepared, self.data.train_split)
        record.body_hash = body_hash(self.model)
        record.batch_hash = batch_hash(self.data.order)
        record.num_steps = self.num_steps
        record.resumed_at_step = self.first_step or None
        if trainer.is_global_zero:
            write_record(self.folder, record)
            write_atomic(self.folder / TOKENIZER_NAME, self.prepared.tokenizer.to_json())
            if self.wandb_logger is not None:
                note_device(self.wandb_logger, record.device)

    def _describe_after(self, trainer: L.Trainer, together: bool) -> None:
        record, task = self.record, self.task
        record.num_processes = task.num_processes
        record.tie_observed = self.guard.observed
        record.tokens_seen = task.tokens_seen
        record.epochs = task.tokens_seen / self.data.train_split.num_tokens
        record.initial_loss = task.initial_loss
        if task.final_losses:
            record.train_loss = sum(task.final_losses) / len(task.final_losses)
        record.diagnostics = {diagnostic.name: diagnostic.summary() for diagnostic in self.diagnostics}
        if self.guard.intact and task.validations:
            record.validation = asdict(task.validations[-1])
            record.best_validation = asdict(min(task.validations, key=_bits_per_byte_or_infinity))
            record.stride_validations = {str(s): asdict(v) for s, v in self.strides.validations.items()}
        throughput = self.throughput.summary(task.num_processes or 1)
        record.throughput = asdict(throughput) if throughput else None
        record.peak_memory_bytes = peak_memory_bytes(trainer)
        record.seconds_by_phase |= {"train": self.clock.seconds, "validation": task.validation_seconds}
        if together or not is_sharded(self.model):
            record.weights_hash = weights_hash(self.model)


def build_model(config: dict[str, Any], tokenizer: Tokenizer) -> MiniGPT:
    """The network of a run, with as many rows as the tokenizer has ids.

    Raises:
        RequestError: the sizes cannot be built.
    """
    vocab_size = tokenizer.vocab_size
    if config["vocab_size"] not in (None, vocab_size):
        raise RequestError(
            f"model.vocab_size={config['vocab_size']}, but the tokenizer has {vocab_size} ids; "
            f"set data.tokenizer.vocab_size={vocab_size}"
        )
    return build(config, MiniGPT, vocab_size=vocab_size)


def run_identity(config: dict[str, Any], tokenizer: Tokenizer) -> dict[str, Any]:
    """What a checkpoint must share with the run that loads it: all that decides the weights.

    Processes and strategy are not part of it: a run may go on where there are more devices.
    """
    tie = {"model.tied": config["model"]["tied"]}  # first, so that a wrong arm is named as such
    decisive = {key: value for key, value in computed(config).items() if key not in PLACEMENT_KEYS}
    return {**tie, **decisive, "tokenizer_hash": tokenizer.hash}


def _bits_per_byte_or_infinity(validation: Validation) -> float:
    return math.inf if math.isnan(validation.bits_per_byte) else validation.bits_per_byte
