"""A whole fit on generated text with rare and unused ids, with a data module and without files."""

from types import SimpleNamespace

import lightning.pytorch as L
import numpy as np
import torch

import fits
from tielab.data.datamodule import TextDataModule
from tielab.data.prepare import TokenSplit
from tielab.models.minigpt import MiniGPT
from tielab.training.callbacks import TieGuard, TrainLog, ValidateAt
from tielab.training.task import LanguageModelTask
from tielab.training.throughput import ThroughputMeter, TrainingClock

V, D, T, B = 64, 32, 8, 4
NUM_USED = 50
"""Ids from here on never occur."""
OPTIMIZER = fits.OPTIMIZER | {"gradient_clip_norm": 0.1}
WINDOWS = {
    "block_size": T, "stride": T, "eval_stride": T, "batch_size": B, "eval_batch_size": 8, "num_workers": 0,
    "seed": 0, "train_tokens": None,
}  # fmt: skip


def split(num_tokens, seed):
    """Ids drawn like words, the first ones often, the last of V never."""
    chances = 1 / np.arange(1, NUM_USED + 1)
    draw = np.random.default_rng(seed)
    tokens = draw.choice(NUM_USED, num_tokens, p=chances / chances.sum()).astype(np.uint16)
    return TokenSplit(
        tokens=tokens,
        num_documents=1,
        num_tokens=num_tokens,
        num_bytes=num_tokens,
        num_scored_words=100,
        content_hash="",
    )


def prepared():
    tokenizer = SimpleNamespace(vocab_size=V, token_bytes=np.ones(V, dtype=np.int64))
    return SimpleNamespace(
        tokenizer=tokenizer, train=split(4000, 0), validation=split(400, 1), test=split(400, 2)
    )


class Fit:
    """A trained task, its trainer and the rows it logged."""

    def __init__(
        self, callbacks, num_steps=6, *, tied=True, accumulate=1, num_validations=1, model=None,
        precision="32-true", folder=None, checkpoint=None, extra=(),
    ):  # fmt: skip
        self.model = model or MiniGPT(V, T, D, 1, 4, 32, tied=tied)
        self.task = LanguageModelTask(
            self.model, OPTIMIZER, fits.SCHEDULE, num_steps=num_steps, tokens_per_step=B * T, content_hash="",
            num_words=100, identity={"model.tied": tied}, seed=0,
        )  # fmt: skip
        self.data = TextDataModule(WINDOWS, prepared(), num_steps)
        self.logger = fits.RowLogger()
        timer = TrainingClock(1)
        meter = ThroughputMeter(timer, 2, 0)
        self.trainer = L.Trainer(
            accelerator="cpu", max_epochs=1, max_steps=num_steps, logger=self.logger, profiler=timer,
            accumulate_grad_batches=accumulate, num_sanity_val_steps=0, enable_progress_bar=False,
            enable_model_summary=False, enable_checkpointing=False, use_distributed_sampler=False,
            precision=precision, default_root_dir=folder,
            callbacks=[meter, ValidateAt(num_steps, num_validations), TrainLog(2, meter), TieGuard(tied),
                       *callbacks, *extra],
        )  # fmt: skip
        torch.manual_seed(0)
        self.trainer.fit(self.task, self.data, ckpt_path=checkpoint, weights_only=True)

    def values(self, name):
        """What was logged under a name, by step."""
        return {row["step"]: row[name] for row in self.logger.rows if name in row}

    def weights(self):
        return {name: value.clone() for name, value in self.model.state_dict().items()}
