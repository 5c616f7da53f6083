"""Every window once per epoch, every evaluated token once, whatever the sizes."""

import warnings
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tielab.data.windows import (
    EvaluationOrder,
    TrainingOrder,
    batch_hash,
    cut,
    num_training_windows,
    permute,
)
from tielab.errors import RequestError


@given(st.integers(1, 3000), st.integers(0, 2**70), st.integers(0, 2**40))
@settings(max_examples=150, deadline=None)
def test_permute_is_a_permutation(num_items: int, seed: int, epoch: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = permute(np.arange(num_items), num_items, seed, epoch)
    assert np.array_equal(np.sort(result), np.arange(num_items))


def test_permute_is_random_access() -> None:
    whole = permute(np.arange(1000), 1000, 3, 5)
    assert permute([17], 1000, 3, 5)[0] == whole[17]
    assert np.array_equal(permute([999, 0], 1000, 3, 5), whole[[999, 0]])


def test_permute_takes_an_epoch_for_each_index() -> None:
    mixed = permute([7, 7, 7], 1000, 3, [0, 1, 2])
    assert [permute([7], 1000, 3, epoch)[0] for epoch in range(3)] == mixed.tolist()


def test_permute_handles_more_items_than_memory_could_hold() -> None:
    result = permute([0, 1, 2, 10**15 - 1], 10**15, 0, 0)
    assert len(set(result.tolist())) == 4
    assert result.max() < 10**15


@pytest.mark.parametrize("key", ["seed", "epoch"])
def test_permute_differs_between_keys(key: str) -> None:
    """Two random permutations of 1000 items agree at one place on average."""
    orders = [permute(np.arange(1000), 1000, **({"seed": 0, "epoch": 0} | {key: k})) for k in range(20)]
    agreements = [np.sum(a == b) for i, a in enumerate(orders) for b in orders[:i]]
    assert max(agreements) < 10
    assert 0.7 < np.mean(agreements) < 1.3


def test_permute_spreads_each_item_evenly() -> None:
    """Over 2000 epochs each of 37 items stands at each place 54 times on average."""
    items = np.tile(np.arange(37), 2000)
    places = permute(items, 37, 1, np.repeat(np.arange(2000), 37))
    counts = np.bincount(items * 37 + places, minlength=37 * 37)
    chi_squared = ((counts - 2000 / 37) ** 2 / (2000 / 37)).sum()
    assert abs(chi_squared - 36 * 36) < 5 * (2 * 36 * 36) ** 0.5


def test_permute_reaches_every_order_of_few_items_alike() -> None:
    orders = permute(np.tile(np.arange(4), 4800), 4, 1, np.repeat(np.arange(4800), 4)).reshape(-1, 4)
    seen = Counter(map(tuple, orders.tolist()))
    assert len(seen) == 24
    assert min(seen.values()) > 140
    assert max(seen.values()) < 260


def test_permute_keeps_no_neighbours() -> None:
    order = permute(np.arange(10_000), 10_000, 0, 0)
    assert np.sum(np.abs(np.diff(order)) == 1) < 10
    assert abs(np.corrcoef(np.arange(10_000), order)[0, 1]) < 0.05


def test_each_epoch_reads_every_window_once_even_if_batches_straddle_epochs() -> None:
    order = TrainingOrder(num_windows=10, batch_size=4, seed=0)
    read = np.concatenate([order.windows(step) for step in range(5)])
    assert sorted(read[:10]) == sorted(read[10:]) == list(range(10))
    assert read[:10].tolist() != read[10:].tolist()


def test_steps_computed_together_are_those_computed_alone() -> None:
    order = TrainingOrder(num_windows=10, batch_size=4, seed=3)
    together = order.windows_of_steps(7, 5)
    assert np.array_equal(together, [order.windows(step) for step in range(7, 12)])


def test_a_step_depends_on_seed_and_step_alone() -> None:
    order = TrainingOrder(num_windows=1000, batch_size=8, seed=4)
    late = order.windows(900)
    for step in range(5):
        order.windows(step)
    assert np.array_equal(TrainingOrder(1000, 8, 4).windows(900), late)
    assert not np.array_equal(TrainingOrder(1000, 8, 5).windows(900), late)


def test_the_first_batch_is_pinned() -> None:
    """A changed order would make every earlier result unrepeatable."""
    assert TrainingOrder(num_windows=1000, batch_size=8, seed=0).windows(0).tolist() == [
        158,
        24,
        390,
        468,
        318,
        13,
        251,
        95,
    ]


def test_batch_hash_tells_orders_apart() -> None:
    base = batch_hash(TrainingOrder(1000, 8, 0))
    assert base == batch_hash(TrainingOrder(1000, 8, 0))
    others = [TrainingOrder(1000, 8, 1), TrainingOrder(1001, 8, 0), TrainingOrder(1000, 16, 0)]
    assert base not in [batch_hash(order) for order in others]
    assert base != batch_hash(TrainingOrder(1000, 8, 0), num_batches=99)


@given(st.integers(1, 300), st.integers(1, 40), st.integers(1, 40))
def test_training_windows_are_all_that_fit(num_tokens: int, block_size: int, stride: int) -> None:
    starts = range(0, num_tokens, stride)
    fitting = [start for start in starts if start + block_size + 1 <= num_tokens]
    assert num_training_windows(num_tokens, block_size, stride) == len(fitting)


def test_cut_shifts_targets_by_one() -> None:
    tokens = np.arange(100, dtype=np.uint16)
    input_ids, targets = cut(tokens, [0, 50, 92], block_size=7)
    assert input_ids.tolist() == [[*range(7)], [*range(50, 57)], [*range(92, 99)]]
    assert np.array_equal(targets - input_ids, np.ones((3, 7)))
    assert input_ids.dtype == targets.dtype == np.int64


def test_cut_keeps_large_ids() -> None:
    tokens = np.array([0, 65_535, 70_000], dtype=np.uint32)
    assert cut(tokens, [0], block_size=2)[1].tolist() == [[65_535, 70_000]]


@given(st.integers(1, 40), st.data())
@settings(max_examples=200, deadline=None)
def test_evaluation_scores_every_token_but_the_first_once_and_in_order(
    block_size: int, data: st.DataObject
) -> None:
    num_tokens = data.draw(st.integers(block_size + 1, 300))
    stride = data.draw(st.integers(1, block_size))
    order = EvaluationOrder(num_tokens, block_size, stride)
    starts, first_scored = order.windows(np.arange(order.num_windows))
    _, targets = cut(np.arange(num_tokens), starts, block_size)
    scored = np.arange(block_size) >= first_scored[:, None]
    assert targets[scored].tolist() == list(range(1, num_tokens))
    assert scored.any(axis=1).all(), "a window that scores nothing"
    # After the first window every token has at least T - stride tokens of context.
    assert (first_scored[1:] >= block_size - stride).all()


def test_one_evaluation_window_if_just_one_fits() -> None:
    order = EvaluationOrder(num_tokens=9, block_size=8, stride=3)
    starts, first_scored = order.windows(np.arange(1))
    assert (order.num_windows, starts.tolist(), first_scored.tolist()) == (1, [0], [0])


@pytest.mark.parametrize(("num_tokens", "block_size", "stride"), [(8, 8, 4), (100, 8, 9), (100, 8, 0)])
def test_evaluation_refuses_what_would_skip_tokens(num_tokens: int, block_size: int, stride: int) -> None:
    with pytest.raises(RequestError, match=f"block_size {block_size} and stride {stride}") as error:
        EvaluationOrder(num_tokens, block_size, stride)
    assert "\n" not in str(error.value)
