"""How much of a prepared corpus a run trains on: which of its tokens, how often, and whether they suffice.

Imports no torch.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from tielab.data.encode import Tokens, chunks
from tielab.data.prepare import Prepared, TokenSplit
from tielab.data.windows import EvaluationOrder, num_training_windows
from tielab.errors import RequestError

Counts = npt.NDArray[np.int64]


def planned_tokens(budget: dict[str, Any], prepared: Prepared) -> int:
    """Training tokens of a budget: ``budget["tokens"]``, or as many as ``budget["bytes"]`` of text take up.

    Text is counted at the bytes per token of the whole training split, rounded up to a token, so that
    one budget in bytes reads as much text with any tokenizer. Repeated text counts each time.
    """
    if budget["bytes"] is None:
        return int(budget["tokens"])
    return -(-int(budget["bytes"]) * prepared.train.num_tokens // prepared.train.num_bytes)


def training_split(prepared: Prepared, train_tokens: int | None) -> TokenSplit:
    """The training tokens that are trained on: the first ``train_tokens`` of the split; null: all.

    Raises:
        RequestError: the split has fewer.
    """
    num_tokens = _num_training_tokens(prepared, train_tokens)
    whole = prepared.train
    return whole if num_tokens == whole.num_tokens else whole.first(num_tokens, prepared.tokenizer)


def _num_training_tokens(prepared: Prepared, train_tokens: int | None) -> int:
    available = prepared.train.num_tokens
    if train_tokens is None:
        return available
    if train_tokens > available:
        raise RequestError(
            f"data.train_tokens={train_tokens} were asked for, the train split has {available} tokens; "
            f"choose train_tokens<={available}, or null for all"
        )
    return train_tokens


def count_tokens(tokens: Tokens, vocab_size: int) -> Counts:
    """How often each id occurs, (V,)."""
    counts = np.zeros(vocab_size, dtype=np.int64)
    for chunk in chunks(tokens):
        counts += np.bincount(chunk, minlength=vocab_size)
    return counts


def num_unused_ids(split: TokenSplit, vocab_size: int) -> int:
    """How many of the ids 0 to V-1 never occur in a split."""
    return int(np.count_nonzero(count_tokens(split.tokens, vocab_size) == 0))


def data_summary(prepared: Prepared, train: TokenSplit) -> dict[str, Any]:
    """What was prepared, and of the training split what is trained on, as plain values for the record."""
    unused_ids = num_unused_ids(train, prepared.tokenizer.vocab_size)
    return {**prepared.summary(), "train": {**train.summary(), "unused_ids": unused_ids}}


def check_fits(prepared: Prepared, data_config: dict[str, Any], num_processes: int = 1) -> None:
    """Raise RequestError if the tokens are too few for the windows, the batches or the processes."""
    block_size, train_tokens = data_config["block_size"], data_config["train_tokens"]
    num_tokens = _num_training_tokens(prepared, train_tokens)
    shortest = min(prepared.train.num_tokens, prepared.validation.num_tokens)
    for name, split in (("train", prepared.train), ("validation", prepared.validation)):
        check_split_fits(split, name, block_size, largest=shortest - 1)
    if num_tokens < block_size + 1:
        raise RequestError(
            f"data.train_tokens={train_tokens} holds no window: data.block_size={block_size} needs "
            f"{block_size + 1} tokens; choose train_tokens>={block_size + 1} or a smaller block_size"
        )
    _check_batch(num_tokens, data_config)
    _check_processes(prepared.validation.num_tokens, data_config, num_processes)


def _check_batch(num_tokens: int, data_config: dict[str, Any]) -> None:
    block_size, stride, batch_size = (data_config[key] for key in ("block_size", "stride", "batch_size"))
    num_windows = num_training_windows(num_tokens, block_size, stride)
    if num_windows < batch_size:
        part = "the train split" if data_config["train_tokens"] is None else "data.train_tokens, a part"
        raise RequestError(
            f"data.batch_size={batch_size}: {part} of {num_tokens} tokens has "
            f"{num_windows} windows (block_size {block_size}, stride {stride}); "
            f"choose batch_size<={num_windows} or a smaller stride"
        )


def _check_processes(num_tokens: int, data_config: dict[str, Any], num_processes: int) -> None:
    eval_stride, check_strides = data_config["eval_stride"], data_config["check_strides"]
    longest = max([eval_stride, *check_strides])
    num_windows = EvaluationOrder(num_tokens, data_config["block_size"], longest).num_windows
    if num_windows < num_processes:
        raise RequestError(
            f"the validation split has {num_windows} windows for {num_processes} processes; use fewer "
            f"processes, a smaller data.{'eval_stride' if longest == eval_stride else 'check_strides'} "
            "or more text"
        )


def check_split_fits(split: TokenSplit, name: str, block_size: int, largest: int | None = None) -> None:
    """Raise RequestError if not even one window of ``block_size`` inputs and targets fits a split."""
    if split.num_tokens < block_size + 1:
        raise RequestError(
            f"data.block_size={block_size} needs {block_size + 1} tokens, the {name} split has "
            f"{split.num_tokens}; choose block_size<={largest or split.num_tokens - 1} or more text"
        )
