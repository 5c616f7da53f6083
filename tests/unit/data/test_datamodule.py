"""Batches are a function of the step: on resume, with workers, accumulated and shared out."""

import itertools
import logging
import random
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from torch import Tensor

from tielab.data import datamodule, windows
from tielab.data.datamodule import WINDOWS_AT_ONCE, TextDataModule, TrainingBatches
from tielab.data.encode import Tokens
from tielab.data.prepare import Prepared, prepare
from tielab.data.windows import Indices, TrainingOrder, cut, num_training_windows, permute
from tielab.errors import RequestError

MakeConfig = Callable[..., dict[str, Any]]
NUM_STEPS = 11


@pytest.fixture
def config(text_file: Path, make_config: MakeConfig) -> dict[str, Any]:
    return make_config(text_file, stride=5)


@pytest.fixture
def prepared(config: dict[str, Any]) -> Prepared:
    return prepare(config)


def rows(batches: Any) -> list[list[int]]:
    """The input ids of some batches, one list a window."""
    return [row for batch in batches for row in batch[0].tolist()]


def expected_rows(module: TextDataModule, steps: range) -> list[list[int]]:
    """The input ids of the windows that the order names for some steps."""
    stride, block_size = module.data_config["stride"], module.data_config["block_size"]
    chosen = np.concatenate([module.order.windows(step) for step in steps])
    return cut(module.prepared.train.tokens, chosen * stride, block_size)[0].tolist()


def as_process(module: TextDataModule, rank: int, world_size: int, accumulate: int) -> TextDataModule:
    """The module as it sees itself in one of several processes."""
    module.trainer = SimpleNamespace(  # type: ignore[assignment]
        strategy=SimpleNamespace(distributed_sampler_kwargs={"rank": rank, "num_replicas": world_size}),
        accumulate_grad_batches=accumulate,
        global_step=0,
    )
    return module


@pytest.mark.parametrize("num_workers", [0, 2])
def test_training_batches_are_the_windows_of_the_order(
    num_workers: int, config: dict[str, Any], prepared: Prepared
) -> None:
    module = TextDataModule(config | {"num_workers": num_workers}, prepared, NUM_STEPS)
    batches = list(module.train_dataloader())
    assert len(batches) == len(module.train_dataloader()) == NUM_STEPS
    for input_ids, targets in batches:
        assert input_ids.shape == targets.shape == (8, 16)
        assert input_ids.dtype == targets.dtype == torch.int64
        assert torch.equal(input_ids[:, 1:], targets[:, :-1])
        assert targets.is_contiguous()
    assert rows(batches) == expected_rows(module, range(NUM_STEPS))


@pytest.mark.parametrize(("world_size", "accumulate"), [(1, 1), (2, 1), (1, 4), (2, 2), (4, 2)])
def test_processes_and_micro_batches_share_out_each_step(
    world_size: int, accumulate: int, config: dict[str, Any], prepared: Prepared
) -> None:
    module = TextDataModule(config, prepared, NUM_STEPS)
    loaders = [
        list(as_process(module, rank, world_size, accumulate).train_dataloader())
        for rank in range(world_size)
    ]
    for step in range(NUM_STEPS):
        parts = [batch for loader in loaders for batch in loader[step * accumulate : (step + 1) * accumulate]]
        assert {len(batch[0]) for batch in parts} == {8 // (world_size * accumulate)}
        assert sorted(rows(parts)) == sorted(expected_rows(module, range(step, step + 1)))


def test_training_reads_nothing_but_the_training_split(config: dict[str, Any], prepared: Prepared) -> None:
    """One epoch of windows with stride = block_size: every training token but the rest, once."""
    config = config | {"stride": 16, "batch_size": 1}
    num_windows = (prepared.train.num_tokens - 1) // 16
    module = TextDataModule(config, prepared, num_windows)
    assert sorted(rows(module.train_dataloader())) == sorted(
        prepared.train.tokens[: num_windows * 16].reshape(-1, 16).tolist()
    )


def training_batches(prepared: Prepared, tokens: Tokens, batch_size: int = 8) -> TrainingBatches:
    split = replace(prepared.train, tokens=tokens, num_tokens=len(tokens))
    order = TrainingOrder(num_training_windows(len(tokens), 16, 16), batch_size, seed=0)
    return TrainingBatches(split, order, block_size=16, stride=16, rank=0, world_size=1, num_micro_batches=1)


@pytest.mark.parametrize("at_once", [1, 20, 1000])
def test_any_order_of_asking_gives_each_step_its_windows(
    at_once: int, prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datamodule, "WINDOWS_AT_ONCE", at_once)
    batches = training_batches(prepared, prepared.train.tokens)
    for step in (5, 0, 300, 6, 5, 299):
        assert np.array_equal(batches.windows(step), batches.order.windows(step))


def test_windows_are_computed_for_many_steps_at_once(
    prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    def counted(indices: Any, *args: Any) -> Indices:
        calls.append(len(indices))
        return permute(indices, *args)

    monkeypatch.setattr(windows, "permute", counted)
    batches = training_batches(prepared, prepared.train.tokens)
    for step in range(200):
        batches[step]
    assert calls == [WINDOWS_AT_ONCE] * 2
    calls.clear()
    training_batches(prepared, prepared.train.tokens, batch_size=5000).windows(0)
    assert calls == [5000]


def sparse_split(prepared: Prepared, path: Path, num_tokens: int) -> Prepared:
    """The same with a token file of zeros in place of each split."""
    with path.open("wb") as file:
        file.truncate(2 * num_tokens)
    tokens = np.memmap(path, dtype="<u2", mode="r")
    split = replace(prepared.train, tokens=tokens, num_tokens=num_tokens)
    return replace(prepared, train=split, validation=split, test=split)


def peak_of_loaders(config: dict[str, Any], prepared: Prepared) -> int:
    """Bytes allocated at once while loaders are made and read from, here and there."""
    tracemalloc.start()
    try:
        module = TextDataModule(config, prepared, NUM_STEPS)
        for loader in (module.train_dataloader(), module.val_dataloader(), module.test_dataloader()):
            list(itertools.islice(loader, NUM_STEPS))
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_of_the_loaders_does_not_grow_with_the_corpus(
    config: dict[str, Any], prepared: Prepared, tmp_path: Path
) -> None:
    sizes = [100_000, 100_000, 10_000_000]  # the first pays for what is allocated once
    _, small, large = [
        peak_of_loaders(config, sparse_split(prepared, tmp_path / f"{n}.bin", n)) for n in sizes
    ]
    assert large < small + 10_000


def test_a_batch_is_cut_from_the_mapped_file(
    config: dict[str, Any], prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    def watched(tokens: Tokens, *args: Any) -> tuple[Indices, Indices]:
        seen.append(tokens)
        return cut(tokens, *args)

    monkeypatch.setattr(datamodule, "cut", watched)
    module = TextDataModule(config, prepared, 1)
    for loader in (module.train_dataloader(), module.val_dataloader(), module.test_dataloader()):
        next(iter(loader))
    assert len(seen) == 3
    assert all(isinstance(tokens, np.memmap) for tokens in seen)


@pytest.mark.parametrize("split", ["validation", "test"])
@pytest.mark.parametrize(("world_size", "eval_stride"), [(1, 16), (1, 3), (2, 8), (3, 8)])
def test_evaluation_scores_the_whole_split_once_over_all_processes(
    split: str, world_size: int, eval_stride: int, config: dict[str, Any], prepared: Prepared
) -> None:
    module = TextDataModule(config | {"eval_stride": eval_stride}, prepared, NUM_STEPS)
    seen: list[tuple[int, ...]] = []
    num_bytes = 0
    for rank in range(world_size):
        as_process(module, rank, world_size, 1)
        loader = module.val_dataloader() if split == "validation" else module.test_dataloader()
        for input_ids, targets, scored, target_bytes in loader:
            assert input_ids.shape == targets.shape == scored.shape == target_bytes.shape
            assert (scored.dtype, target_bytes.dtype) == (torch.bool, torch.int64)
            num_bytes += int(target_bytes[scored].sum())
            seen += targets[scored].tolist()
    tokens = getattr(prepared, split).tokens
    assert sorted(seen) == sorted(tokens[1:].tolist())
    assert num_bytes == getattr(prepared, split).num_bytes - prepared.tokenizer.token_bytes[tokens[0]]


@given(stride=st.integers(1, 16), world_size=st.integers(1, 3))
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_stride_scores_the_same_tokens(
    stride: int, world_size: int, config: dict[str, Any], prepared: Prepared
) -> None:
    module = TextDataModule(config, prepared, NUM_STEPS)
    seen: list[int] = []
    num_windows = 0
    for rank in range(world_size):
        as_process(module, rank, world_size, 1)
        for _, targets, scored, _ in module.stride_dataloader(stride):
            seen += targets[scored].tolist()
            num_windows += int(scored.any(dim=1).sum())
    assert sorted(seen) == sorted(prepared.validation.tokens[1:].tolist())
    assert num_windows == -(-(prepared.validation.num_tokens - 17) // stride) + 1


@pytest.mark.parametrize("batch_size", [1, 2])
def test_every_process_has_equally_many_evaluation_batches(
    batch_size: int, config: dict[str, Any], prepared: Prepared
) -> None:
    """A sharded forward pass waits for all; a process without a window left scores nothing in its own."""
    module = TextDataModule(config | {"eval_batch_size": batch_size, "eval_stride": 16}, prepared, NUM_STEPS)
    num_windows = sum(len(batch[0]) for batch in module.val_dataloader())
    for world_size, num_surplus in ((2, num_windows % 2), (num_windows - 1, num_windows - 2)):
        shares = [list(as_process(module, r, world_size, 1).val_dataloader()) for r in range(world_size)]
        assert {len(batches) for batches in shares} == {-(-num_windows // (world_size * batch_size))}
        unscored = [batch for batches in shares for batch in batches if not batch[2].any()]
        if batch_size == 1:
            assert len(unscored) == num_surplus
        assert all(batch[0].shape == batch[2].shape == (1, 16) for batch in unscored)


def test_evaluation_batches_are_in_order_and_sized(config: dict[str, Any], prepared: Prepared) -> None:
    module = TextDataModule(config, prepared, NUM_STEPS)
    batches = list(module.val_dataloader())
    assert len(batches) == len(module.val_dataloader())
    assert {len(batch[0]) for batch in batches[:-1]} == {4}
    scored = torch.cat([targets[scored] for _, targets, scored, _ in batches])
    assert scored.tolist() == prepared.validation.tokens[1:].tolist()


def test_evaluation_counts_the_bytes_of_each_target(text_file: Path, make_config: MakeConfig) -> None:
    config = make_config(text_file, tokenizer={"kind": "bpe", "vocab_size": 300})
    prepared = prepare(config)
    for _, targets, _, num_bytes in TextDataModule(config, prepared, 1).test_dataloader():
        for target, count in zip(targets.flatten().tolist(), num_bytes.flatten().tolist(), strict=True):
            assert count == len(prepared.tokenizer.pieces[target])


def test_a_test_split_too_short_for_a_window_is_refused(config: dict[str, Any], prepared: Prepared) -> None:
    module = TextDataModule(config | {"block_size": 10**6}, prepared, NUM_STEPS)
    with pytest.raises(RequestError, match=r"data\.block_size=1000000 .* test split") as error:
        module.test_dataloader()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_loaders_leave_the_global_random_state_alone(
    num_workers: int, config: dict[str, Any], prepared: Prepared
) -> None:
    module = TextDataModule(config | {"num_workers": num_workers}, prepared, 2)
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[union-attr, index]
    list(module.train_dataloader()), list(module.val_dataloader())
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1:] == (random.getstate(), np.random.get_state()[1].tolist())  # type: ignore[union-attr, index]


class Bigram(pl.LightningModule):
    """A tiny model that notes the optimizer step and the windows of each micro-batch."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(256, 256)
        self.seen: list[tuple[int, list[list[int]]]] = []

    def training_step(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        input_ids, targets = batch
        self.seen.append((self.trainer.global_step, input_ids.tolist()))
        return torch.nn.functional.cross_entropy(self.table(input_ids).flatten(0, 1), targets.flatten())

    def validation_step(self, batch: tuple[Tensor, ...]) -> None:
        pass

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


class SaveAfterValidation(Callback):
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if not trainer.sanity_checking:
            trainer.save_checkpoint(self.folder / f"validated-{trainer.global_step}.ckpt")


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    yield
    logging.getLogger("lightning.pytorch").setLevel(logging.NOTSET)


def fit(module: TextDataModule, folder: Path, accumulate: int, ckpt_path: Path | None = None) -> Bigram:
    """Train as the harness does, saving after every step and after every validation."""
    torch.manual_seed(0)
    every_step = ModelCheckpoint(
        folder, filename="{step}", every_n_train_steps=1, save_top_k=-1, save_on_train_epoch_end=False
    )
    trainer = pl.Trainer(
        accelerator="cpu",
        max_steps=module.num_steps,
        max_epochs=-1,
        val_check_interval=3 * accumulate,
        check_val_every_n_epoch=None,
        num_sanity_val_steps=0,
        accumulate_grad_batches=accumulate,
        use_distributed_sampler=False,
        callbacks=[every_step, SaveAfterValidation(folder)],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    model = Bigram()
    trainer.fit(model, datamodule=module, ckpt_path=ckpt_path)
    assert trainer.global_step == module.num_steps
    return model


@pytest.mark.filterwarnings("ignore:.*does not have many workers")
@pytest.mark.filterwarnings("ignore:The dirpath has changed")
@pytest.mark.filterwarnings("error:.*dataloader is not resumable")
@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_resumed_run_reads_exactly_the_remaining_batches(
    num_workers: int, accumulate: int, config: dict[str, Any], prepared: Prepared, tmp_path: Path
) -> None:
    config = config | {"num_workers": num_workers}
    whole = fit(TextDataModule(config, prepared, NUM_STEPS), tmp_path / "whole", accumulate)
    assert [step for step, _ in whole.seen] == [i // accumulate for i in range(NUM_STEPS * accumulate)]
    assert [row for _, batch in whole.seen for row in batch] == expected_rows(
        TextDataModule(config, prepared, NUM_STEPS), range(NUM_STEPS)
    )
    for name, step in CHECKPOINTS if num_workers == 0 else CHECKPOINTS[:2]:
        checkpoint = tmp_path / "whole" / f"{name}.ckpt"
        assert torch.load(checkpoint, weights_only=True)["TextDataModule"] == {"num_steps_done": step}
        module = TextDataModule(config, prepared, NUM_STEPS)
        resumed = fit(module, tmp_path / f"from-{name}", accumulate, ckpt_path=checkpoint)
        assert resumed.seen == whole.seen[step * accumulate :]
        assert torch.equal(resumed.table.weight, whole.table.weight)


CHECKPOINTS = [
    ("step=4", 4),
    ("validated-6", 6),
    ("step=1", 1),
    ("step=3", 3),
    ("step=10", 10),
    ("validated-9", 9),
    ("step=11", 11),
]
