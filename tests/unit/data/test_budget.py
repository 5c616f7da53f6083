"""How much text a run trains on: a part of the split, a budget in bytes, and what is too little."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tielab.data import encode
from tielab.data.budget import (
    check_fits,
    count_tokens,
    data_summary,
    num_unused_ids,
    planned_tokens,
    training_split,
)
from tielab.data.datamodule import TextDataModule
from tielab.data.prepare import Prepared, TokenSplit, prepare
from tielab.data.tokenizer import CharTokenizer
from tielab.data.windows import TrainingOrder
from tielab.errors import RequestError

MakeConfig = Callable[..., dict[str, Any]]


def corpus_of(*ids: int, num_bytes: int | None = None) -> Prepared:
    """A corpus of bytes whose training split has these ids."""
    tokens = np.array(ids, dtype="<u2")
    split = TokenSplit(tokens, 1, None, len(ids), len(ids) if num_bytes is None else num_bytes, "hash")
    return Prepared("text", "hash", CharTokenizer("", byte_fallback=True), "hash", split, split, split)


@pytest.mark.parametrize(("num_bytes", "num_tokens"), [(1, 1), (7, 2), (8, 3), (35, 10), (36, 11), (70, 20)])
def test_a_budget_in_bytes_is_rounded_up_to_a_token(num_bytes: int, num_tokens: int) -> None:
    """Ten tokens of 35 bytes: three and a half bytes each."""
    prepared = corpus_of(*range(10), num_bytes=35)
    assert planned_tokens({"tokens": None, "bytes": num_bytes}, prepared) == num_tokens
    assert planned_tokens({"tokens": num_bytes, "bytes": None}, prepared) == num_bytes


def test_a_budget_in_bytes_reads_as_much_text_with_every_tokenizer(
    text_file: Path, make_config: MakeConfig
) -> None:
    budget = {"tokens": None, "bytes": 100_000}
    for tokenizer in ({}, {"kind": "bpe", "vocab_size": 300}, {"kind": "bpe", "vocab_size": 340}):
        prepared = prepare(make_config(text_file, tokenizer=tokenizer))
        bytes_per_token = prepared.train.num_bytes / prepared.train.num_tokens
        read = planned_tokens(budget, prepared) * bytes_per_token
        assert 100_000 <= read + 1e-6 < 100_000 + bytes_per_token


def test_a_part_of_the_training_split_is_a_split_of_its_own(text_file: Path, make_config: MakeConfig) -> None:
    prepared = prepare(make_config(text_file, tokenizer={"kind": "bpe", "vocab_size": 300}))
    part = training_split(prepared, 100)
    assert part.tokens.tolist() == prepared.train.tokens[:100].tolist()
    assert part.num_tokens == 100
    assert part.num_bytes == len(prepared.tokenizer.decode_bytes(part.tokens)) < prepared.train.num_bytes
    assert part.content_hash != prepared.train.content_hash
    assert training_split(prepared, None) is prepared.train
    assert training_split(prepared, prepared.train.num_tokens) is prepared.train


@given(st.integers(17 + 7 * 5, 2000), st.integers(0, 100))
def test_no_window_reaches_beyond_the_part(num_tokens: int, seed: int) -> None:
    config = {"train_tokens": num_tokens, "block_size": 16, "stride": 5, "batch_size": 8, "seed": seed}
    prepared = corpus_of(*[0] * num_tokens, *[1] * (2000 - num_tokens))
    check_fits(prepared, config | {"eval_stride": 16, "check_strides": []})
    module = TextDataModule(config | {"num_workers": 0}, prepared, num_steps=20)
    for input_ids, targets in module.train_dataloader():
        assert input_ids.sum() == targets.sum() == 0
    windows = (num_tokens - 17) // 5 + 1
    assert module.order == TrainingOrder(windows, 8, seed)


def test_the_tokenizer_is_that_of_the_whole_split(text_file: Path, make_config: MakeConfig) -> None:
    tokenizer = {"kind": "bpe", "vocab_size": 300}
    whole, part = (prepare(make_config(text_file, tokenizer=tokenizer, train_tokens=n)) for n in (None, 200))
    assert whole.tokenizer_hash == part.tokenizer_hash


def test_unused_ids_are_counted_in_the_part_trained_on() -> None:
    prepared = corpus_of(5, 5, 255, 0, 7)
    assert num_unused_ids(prepared.train, 256) == 252
    summary = data_summary(prepared, training_split(prepared, 3))
    assert (summary["train"]["num_tokens"], summary["train"]["unused_ids"]) == (3, 254)
    assert "unused_ids" not in summary["validation"]


def test_tokens_are_counted_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encode, "CHUNK_TOKENS", 7)
    tokens = np.random.default_rng(0).integers(0, 5, 100).astype(np.uint16)
    assert count_tokens(tokens, 8).tolist() == np.bincount(tokens, minlength=8).tolist()


@given(st.lists(st.integers(0, 63), max_size=100))
def test_unused_ids_and_used_ids_are_all_ids(ids: list[int]) -> None:
    assert num_unused_ids(corpus_of(*ids).train, 64) == 64 - len(set(ids))


def refusal(prepared: Prepared, config: dict[str, Any]) -> str:
    with pytest.raises(RequestError) as error:
        check_fits(prepared, config)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_part_larger_than_the_split_or_without_a_window_is_refused(
    text_file: Path, make_config: MakeConfig
) -> None:
    config = make_config(text_file, batch_size=1)
    prepared = prepare(config)
    available = prepared.train.num_tokens
    for enough in (17, available):
        check_fits(prepared, config | {"train_tokens": enough})
    message = refusal(prepared, config | {"train_tokens": available + 1})
    assert message.startswith(f"data.train_tokens={available + 1} were asked for")
    assert f"the train split has {available} tokens" in message
    message = refusal(prepared, config | {"train_tokens": 16})
    assert message.startswith("data.train_tokens=16 holds no window: data.block_size=16 needs 17 tokens")
    message = refusal(prepared, config | {"train_tokens": 33, "batch_size": 3})
    assert "data.batch_size=3: data.train_tokens, a part of 33 tokens has 2 windows" in message


def test_check_fits_accepts_the_largest_and_names_it(text_file: Path, make_config: MakeConfig) -> None:
    prepared = prepare(make_config(text_file))
    assert prepared.validation.num_tokens < prepared.train.num_tokens
    largest = prepared.validation.num_tokens - 1
    config = make_config(text_file, batch_size=1)
    check_fits(prepared, config | {"block_size": largest})
    with pytest.raises(RequestError) as error:
        check_fits(prepared, config | {"block_size": largest + 1})
    assert str(error.value) == (
        f"data.block_size={largest + 1} needs {largest + 2} tokens, the validation split has {largest + 1}; "
        f"choose block_size<={largest} or more text"
    )
    with pytest.raises(RequestError, match=f"the train split has .*choose block_size<={largest} "):
        check_fits(prepared, config | {"block_size": 10**6})


def test_check_fits_refuses_more_processes_than_windows_at_the_longest_stride(
    text_file: Path, make_config: MakeConfig
) -> None:
    config = make_config(text_file, batch_size=1, eval_stride=8)
    prepared = prepare(config)
    num_windows = {n: -(-(prepared.validation.num_tokens - 17) // n) + 1 for n in (8, 16)}
    check_fits(prepared, config, num_windows[8])
    with pytest.raises(RequestError, match=f"has {num_windows[8]} windows .*smaller data.eval_stride"):
        check_fits(prepared, config, num_windows[8] + 1)
    config |= {"check_strides": [4, 16]}
    check_fits(prepared, config, num_windows[16])
    with pytest.raises(RequestError, match=f"has {num_windows[16]} windows .*smaller data.check_strides"):
        check_fits(prepared, config, num_windows[16] + 1)


def test_check_fits_refuses_a_batch_larger_than_the_training_split(
    text_file: Path, make_config: MakeConfig
) -> None:
    config = make_config(text_file)
    prepared = prepare(config)
    num_windows = (prepared.train.num_tokens - 1) // 16
    check_fits(prepared, config | {"batch_size": num_windows})
    with pytest.raises(
        RequestError, match=f"has {num_windows} windows .*batch_size<={num_windows} "
    ) as error:
        check_fits(prepared, config | {"batch_size": num_windows + 1})
    assert "\n" not in str(error.value)
