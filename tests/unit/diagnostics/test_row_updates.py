"""Steps per row against a count by hand; rows that a step leaves alone."""

import numpy as np
import pytest

from diagnostic_fits import NUM_USED, Fit, T, V
from tielab.diagnostics.row_updates import RowUpdates


def counted_by_hand(fit, num_steps):
    """Steps with each token among inputs and among targets."""
    found = np.zeros((2, V), dtype=int)
    for step in range(num_steps):
        starts = fit.data.order.windows(step) * T
        for offset in (0, 1):
            ids = fit.data.prepared.train.tokens[starts[:, None] + np.arange(T) + offset]
            found[offset][np.unique(ids)] += 1
    return found


@pytest.mark.parametrize("accumulate", [1, 2])
def test_steps_per_row_are_those_counted_by_hand(accumulate):
    rows = RowUpdates(4)
    fit = Fit([rows], 6, accumulate=accumulate)
    expected = counted_by_hand(fit, 6)
    assert rows.steps_among.numpy().tolist() == expected.tolist()
    assert fit.values("rows/never_in_inputs")[6] == (expected[0] == 0).sum()
    assert fit.values("rows/never_in_targets")[6] == (expected[1] == 0).sum()
    assert fit.values("rows/untouched")[6] == (expected == 0).all(axis=0).sum()
    last = expected - counted_by_hand(fit, 5)
    assert fit.values("rows/in_inputs")[6] == last[0].sum()
    summary = rows.summary()
    assert summary["steps_in_inputs"] == pytest.approx(expected[0].mean())
    assert summary["steps_in_targets_by_decile"][-1] > 4 * summary["steps_in_targets_by_decile"][0]
    assert (summary["num_steps"], summary["steps_in_targets_unused"]) == (6, 0)


def test_a_head_changes_every_row_and_a_lookup_only_what_it_has_met():
    tied, untied = Fit([RowUpdates(1)], 2), Fit([RowUpdates(1)], 2, tied=False)
    assert tied.values("rows/unchanged_embedding") == {1: 0, 2: 0}
    assert untied.values("rows/unchanged_head") == {1: 0, 2: 0}
    met = counted_by_hand(untied, 1)[0]
    assert untied.values("rows/unchanged_embedding")[1] == (met == 0).sum()
    assert untied.values("rows_by_frequency/unchanged_embedding/unused")[2] == V - NUM_USED
    # After the first step momentum moves rows that get no gradient.
    assert untied.values("rows/unchanged_embedding")[2] == (counted_by_hand(untied, 2)[0] == 0).sum()
    assert counted_by_hand(untied, 2)[0].sum() > met.sum()
