"""A GPT-2-like model in ``litgpt.pretrain``, its loop as it is; it has rotary positions only.

``litgpt.pretrain`` always compiles: the eager mode replaces ``torch.compile`` by the identity.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from common import ENDLESS, Windows, arguments, stamp
from litgpt import Config
from litgpt.args import EvalArgs, TrainArgs
from litgpt.data import DataModule
from litgpt.pretrain import setup
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

asked = arguments()
NUM_WINDOWS: int = ENDLESS


class StampedOrder(Sampler[int]):
    """Numbers in order; a step has ended when the loop asks for the next batch."""

    def __iter__(self) -> Iterator[int]:
        for index in range(NUM_WINDOWS):
            if index % asked.batch_size == 0:
                stamp(index // asked.batch_size)
            yield index

    def __len__(self) -> int:
        return NUM_WINDOWS


class Tokens(DataModule):  # type: ignore[misc]
    """The benchmark's tokens."""

    def connect(self, tokenizer: Any = None, batch_size: int = 1, max_seq_length: int = -1) -> None:
        self.windows: Dataset[Tensor] = Windows(asked.tokens, asked.block_size)

    def train_dataloader(self) -> DataLoader[Tensor]:
        return DataLoader(self.windows, batch_size=asked.batch_size, sampler=StampedOrder())

    def val_dataloader(self) -> DataLoader[Tensor]:
        return DataLoader(self.windows, batch_size=asked.batch_size)


if not asked.compile:
    torch.compile = lambda model, **options: model  # type: ignore[assignment]
tokens_per_step = asked.batch_size * asked.block_size
setup(
    model_name="shape",
    model_config=Config(
        name="shape",
        block_size=asked.block_size,
        vocab_size=asked.vocab_size,
        padded_vocab_size=asked.vocab_size,
        n_layer=asked.num_layers,
        n_head=asked.num_heads,
        n_embd=asked.embed_dim,
        bias=True,
        norm_class_name="LayerNorm",
        mlp_class_name="GptNeoxMLP",
        intermediate_size=4 * asked.embed_dim,
        parallel_residual=False,
    ),
    out_dir=Path(tempfile.mkdtemp(dir=".")),
    precision="32-true",
    data=Tokens(),
    train=TrainArgs(
        save_interval=None,
        log_interval=1,
        global_batch_size=asked.batch_size,
        micro_batch_size=asked.batch_size,
        max_tokens=ENDLESS * tokens_per_step,
        max_norm=1.0,
        lr_warmup_steps=100,
        min_lr=1e-4,
        tie_embeddings=True,
    ),
    eval=EvalArgs(interval=ENDLESS, max_iters=1, initial_validation=False, final_validation=False),
    optimizer={
        "class_path": "torch.optim.AdamW",
        "init_args": {"lr": 1e-3, "weight_decay": 0.1, "betas": (0.9, 0.95)},
    },
    devices=1,
    logger_name="csv",
)
