"""The LightningModule: what one training step and one validation pass do with a model.

B batch, T positions, V vocabulary.
"""

import time
from typing import Any

import lightning.pytorch as L
import torch
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor
from torchmetrics import MetricCollection

from tielab.config import LATER_DEFAULTS, yaml_text
from tielab.errors import RequestError
from tielab.models.minigpt import MiniGPT, named_generator
from tielab.models.sharding import is_sharded, shard
from tielab.models.tying import is_tied, untie
from tielab.record import Validation
from tielab.training.metrics import BitsPerByte, NatsPerToken, Perplexity, TokenSums, WordPerplexity
from tielab.training.optim import build_optimizer, build_schedule, clip_gradients, number_by_model
from tielab.training.strategy import batch_share
from tielab.training.untie import HEAD_NAME, split, untie_step

CHECKPOINT_KEY = "tielab"
STATE_PREFIX = "model."
"""Of the model's tensors in a checkpoint."""


class LanguageModelTask(L.LightningModule):
    """Next-token training and evaluation of a MiniGPT.

    Args:
        model: the network.
        optimizer, schedule: the config groups of these names, as plain dicts.
        num_steps: optimizer steps of the whole run.
        tokens_per_step: training tokens in one of them, all processes together.
        content_hash: of the validation split.
        num_words: of its scored text.
        identity: plain values that a checkpoint carries and that must agree when it is loaded.
        seed: keys dropout.
    """

    def __init__(
        self,
        model: MiniGPT,
        optimizer: dict[str, Any],
        schedule: dict[str, Any],
        num_steps: int,
        tokens_per_step: int,
        content_hash: str,
        num_words: int,
        identity: dict[str, Any],
        seed: int,
    ):
        super().__init__()
        self.model = model
        self.optimizer_config = optimizer
        self.schedule_config = schedule
        self.num_steps = num_steps
        self.tokens_per_step = tokens_per_step
        self.content_hash = content_hash
        self.num_words = num_words
        self.identity = identity
        self.seed = seed
        self.untie_step = untie_step(model.untie_at, num_steps)
        self.scores = MetricCollection(
            {
                "sums": TokenSums(),
                "val/loss": NatsPerToken(),
                "val/perplexity": Perplexity(),
                "val/word_perplexity": WordPerplexity(num_words),
                "val/bits_per_byte": BitsPerByte(),
            },
            # They share the sums of the first: each batch is added once.
            compute_groups=[
                ["sums", "val/loss", "val/perplexity", "val/word_perplexity", "val/bits_per_byte"]
            ],
        )
        self.tokens_seen = 0
        self.unlogged_losses: list[float] = []
        """Loss of the optimizer steps collected since a logger last took them."""
        self.initial_loss: float | None = None
        self.final_losses: list[float] = []
        """Loss of the steps in the last tenth of the run."""
        self.validations: list[Validation] = []
        self.gradient_norm: Tensor | None = None
        self.learning_rate: float | None = None
        """Of the last step."""
        self.last_loss = float("nan")
        """Of the last step collected."""
        self.num_processes: int | None = None
        """Counted, not read: a launcher that lies about it would make up a speed-up."""
        self.validation_seconds = 0.0
        self._started = time.monotonic()
        self._micro_losses: list[Tensor] = []
        self._share, self._num_shares = 0, 1

    def configure_model(self) -> None:
        mesh = self.device_mesh
        if mesh is None or is_sharded(self.model):
            return
        shard(self.model, mesh)
        for metric in self.scores.values():  # tensor parallel processes score the same tokens
            metric.process_group = mesh["data_parallel"].get_group()

    def configure_optimizers(self) -> OptimizerLRScheduler:
        optimizer = build_optimizer(self.model, self.optimizer_config)
        schedule = build_schedule(optimizer, self.num_steps, self.schedule_config)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    @property
    def seconds(self) -> float:
        """Since this task was made, and those that led to the checkpoint it went on from."""
        return time.monotonic() - self._started

    def on_train_start(self) -> None:
        count = self.trainer.strategy.reduce(torch.ones((), device=self.device), reduce_op="sum")
        self.num_processes = int(count)
        if self.num_processes != self.trainer.world_size:
            raise RuntimeError(f"{self.trainer.world_size} processes asked for, {self.num_processes} run")
        self._share, self._num_shares = batch_share(self.trainer)

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        # Keyed by the position in the run, dropout is the same in both arms and after a resume.
        if self.model.dropout > 0:
            name = f"dropout of rank {self._share} after {self.tokens_seen} tokens"
            torch.manual_seed(named_generator(self.seed, name).initial_seed())
        if self.untie_step is not None and self.global_step >= self.untie_step and is_tied(self.model):
            split(self.model, self.trainer.optimizers[0], self.optimizer_config)

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        """What is trained on: mean loss in nats of one micro-batch, ids (B, T), targets (B, T).

        The penalty of a head map is added to it, but to no loss that is kept or logged.
        """
        input_ids, targets = batch
        loss = self.model.loss(input_ids, targets)
        self._micro_losses.append(loss.detach())
        self.tokens_seen += input_ids.numel() * self._num_shares
        penalty = self.model.penalty()
        return loss if penalty is None else loss + penalty

    def configure_gradient_clipping(
        self,
        optimizer: torch.optim.Optimizer,
        gradient_clip_val: int | float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        # Here rather than through the Trainer, which would compute the norm and throw it away.
        self.learning_rate = optimizer.param_groups[0]["lr"]  # before the schedule moves on
        limit = self.optimizer_config["gradient_clip_norm"]
        trained = (parameter for group in optimizer.param_groups for parameter in group["params"])
        self.gradient_norm = clip_gradients(trained, torch.inf if limit is None else limit)

    def collect_losses(self) -> None:
        """Average the losses of the steps since the last call over micro-batches and processes.

        Every process must call it at the same step. Reading a loss waits for the device, so this is
        done every few steps rather than at each.
        """
        parts = self.trainer.accumulate_grad_batches
        num_steps = len(self._micro_losses) // parts
        if num_steps == 0:
            return
        losses = torch.stack(self._micro_losses[: num_steps * parts]).view(num_steps, parts).mean(dim=1)
        del self._micro_losses[: num_steps * parts]
        averaged = self.trainer.strategy.reduce(losses, reduce_op="mean")
        assert isinstance(averaged, Tensor)
        values = [float(value) for value in averaged]
        first_step = self.trainer.global_step - num_steps
        if first_step == 0:
            self.initial_loss = values[0]
        tail = self.num_steps - max(1, self.num_steps // 10)
        self.final_losses += [v for step, v in enumerate(values, start=first_step) if step >= tail]
        self.unlogged_losses += values
        self.last_loss = values[-1]

    def validation_step(self, batch: tuple[Tensor, Tensor, Tensor, Tensor], batch_idx: int) -> None:
        """Score one batch: ids, targets, scored (bool), num_bytes, each (B, T)."""
        input_ids, targets, scored, num_bytes = batch
        self.scores.update(self.model.token_nats(input_ids, targets), scored, num_bytes)

    def on_validation_start(self) -> None:
        self._validation_started = time.monotonic()

    def take_scores(self) -> tuple[Validation, dict[str, float]]:
        """The pass that all processes have just scored, and its metrics by name; the next starts from 0."""
        values = self.scores.compute()
        self.scores.reset()
        nats, num_tokens, num_bytes = values.pop("sums").tolist()
        numbers = {name: float(value) for name, value in values.items()}
        validation = Validation(
            nats=nats,
            num_tokens=int(num_tokens),
            num_bytes=int(num_bytes),
            num_words=self.num_words,
            perplexity=numbers["val/perplexity"],
            word_perplexity=numbers["val/word_perplexity"],
            bits_per_byte=numbers["val/bits_per_byte"],
            content_hash=self.content_hash,
            tokens_seen=self.tokens_seen,
        )
        return validation, numbers

    def on_validation_epoch_end(self) -> None:
        validation, numbers = self.take_scores()
        self.validations.append(validation)
        # For checkpoints and early stopping; the loggers get the row with its position in tokens.
        self.log_dict({k: torch.tensor(v) for k, v in numbers.items()}, logger=False)
        row = {"tokens": self.tokens_seen, "seconds": self.seconds, **numbers}
        for logger in self.loggers:
            logger.log_metrics(row, step=self.global_step)
        self.validation_seconds += time.monotonic() - self._validation_started

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.collect_losses()
        if not is_sharded(self.model) and "optimizer_states" in checkpoint:
            checkpoint["optimizer_states"] = [
                number_by_model(state, optimizer, self.model)
                for state, optimizer in zip(
                    checkpoint["optimizer_states"], self.trainer.optimizers, strict=True
                )
            ]
        checkpoint[CHECKPOINT_KEY] = {
            "identity": self.identity,
            "tokens_seen": self.tokens_seen,
            "folder": self.trainer.default_root_dir,
            "unlogged_losses": self.unlogged_losses,
            "seconds": self.seconds,
            "validation_seconds": self.validation_seconds,
            "initial_loss": self.initial_loss,
            "final_losses": self.final_losses,
            "validations": [vars(v) for v in self.validations],
        }

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        saved = checkpoint.get(CHECKPOINT_KEY)
        if saved is None:
            raise RequestError("the checkpoint was not written by tielab: it says nothing about its tie")
        check_identity(saved["identity"], self.identity)
        # Before the weights are loaded and the optimizer is built. FSDP loads them apart, and never splits.
        if is_split(self.model, checkpoint.get("state_dict", {})):
            untie(self.model)
        checkpoint["callbacks"] = _moved(
            checkpoint.get("callbacks", {}), saved["folder"], self.trainer.default_root_dir
        )
        self.tokens_seen = saved["tokens_seen"]
        self.unlogged_losses = saved["unlogged_losses"]
        self._started -= saved["seconds"]
        self.validation_seconds = saved["validation_seconds"]
        self.initial_loss = saved["initial_loss"]
        self.final_losses = saved["final_losses"]
        self.validations = [Validation(**v) for v in saved["validations"]]


def is_split(model: MiniGPT, state: dict[str, Any]) -> bool:
    """Whether a state dict is of a tied model after its split, while this model is not split yet."""
    return model.untie_at is not None and is_tied(model) and f"{STATE_PREFIX}{HEAD_NAME}" in state


def _moved(state: Any, old: str, new: str) -> Any:
    """Callback states with every path in one folder turned into that path in another.

    Lightning's checkpoint callback forgets which of its files was the best if the folder has moved.
    """
    if isinstance(state, dict):
        return {_moved(key, old, new): _moved(value, old, new) for key, value in state.items()}
    if isinstance(state, list):
        return [_moved(value, old, new) for value in state]
    is_in_folder = isinstance(state, str) and (state == old or state.startswith(f"{old}/"))
    return f"{new}{state.removeprefix(old)}" if is_in_folder else state


def check_identity(saved: dict[str, Any], asked: dict[str, Any]) -> None:
    """Raise RequestError, naming both values, where a checkpoint and the model asked for differ."""
    for key in [*asked, *(later for later in LATER_DEFAULTS if later in saved and later not in asked)]:
        found, value = (values.get(key, LATER_DEFAULTS.get(key)) for values in (saved, asked))
        if found != value:
            raise RequestError(
                f"the checkpoint was trained with {key}={yaml_text(found)}, this run asks for "
                f"{key}={yaml_text(value)}; set {key}={yaml_text(found)} or train anew"
            )
