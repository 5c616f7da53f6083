"""Counts of the training tokens, and rows in tenths by count."""

import numpy as np
import pytest
import torch

from diagnostic_fits import Fit
from tielab.diagnostics.frequency import Frequencies, frequencies, frequency_groups


def test_used_rows_are_split_into_tenths_and_unused_rows_stand_apart():
    counts = np.array([0, *range(30, 0, -1), 0])
    groups = frequency_groups(counts)
    assert groups[0] == groups[-1] == 10
    assert groups[1:-1].tolist() == [decile for decile in range(9, -1, -1) for _ in range(3)]


def test_ties_go_by_id_and_few_rows_leave_groups_empty():
    assert frequency_groups(np.array([5, 5, 5])).tolist() == [0, 1, 2]
    assert Frequencies(np.array([5, 5, 5]), np.array([0, 1, 2])).group_sizes.tolist() == [1, 1, 1, *[0] * 8]


def test_membership_sums_over_groups():
    found = Frequencies(np.array([3, 0, 9, 4]), frequency_groups(np.array([3, 0, 9, 4])))
    sums = found.membership(torch.device("cpu")) @ torch.tensor([1.0, 10.0, 100.0, 1000.0]).double()
    assert sums.tolist() == [1.0, 1000.0, 100.0, *[0.0] * 7, 10.0]


def test_they_are_those_of_the_text_that_is_trained_on():
    fit = Fit([], 1)
    assert (
        frequencies(fit.trainer).counts.tolist()
        == np.bincount(fit.data.train_dataloader().dataset.split.tokens, minlength=64).tolist()
    )
    assert frequencies(fit.trainer) is frequencies(fit.trainer)


@pytest.mark.parametrize("vocab_size", [3, 64])
def test_every_row_is_in_one_group(vocab_size):
    counts = np.random.default_rng(0).integers(0, 3, vocab_size)
    found = Frequencies(counts, frequency_groups(counts))
    assert found.membership(torch.device("cpu")).sum(dim=0).tolist() == [1.0] * vocab_size
    assert found.group_sizes.sum() == vocab_size
