"""All diagnostics together: the training is the same bit for bit, what they say is documented and resumed."""

import json
import math

import lightning.pytorch as L
import numpy as np
import pytest
import torch

from diagnostic_fits import NUM_USED, Fit, V
from tielab.diagnostics.base import Track, single
from tielab.diagnostics.columns import DIAGNOSTIC_COLUMNS
from tielab.diagnostics.embedding_geometry import EmbeddingGeometry
from tielab.diagnostics.frequency_loss import FrequencyLoss
from tielab.diagnostics.output_statistics import OutputStatistics
from tielab.diagnostics.path_gradients import PathGradients
from tielab.diagnostics.row_updates import RowUpdates
from tielab.diagnostics.weight_change import WeightChange
from tielab.errors import RequestError
from tielab.models.minigpt import MiniGPT


def diagnostics():
    return [
        PathGradients(2), RowUpdates(3), WeightChange(2), EmbeddingGeometry(), OutputStatistics(4),
        FrequencyLoss(),
    ]  # fmt: skip


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
@pytest.mark.parametrize(("tied", "accumulate"), [(True, 1), (True, 2), (False, 2)])
def test_the_weights_are_the_same_bit_for_bit(tied, accumulate, precision):
    def run(callbacks):
        model = MiniGPT(V, 8, 32, 1, 4, 32, dropout=0.1, tied=tied)
        return Fit(callbacks, 7, model=model, tied=tied, accumulate=accumulate, num_validations=2,
                   precision=precision)  # fmt: skip

    plain, watched = run([]), run(diagnostics())
    assert same(plain.weights(), watched.weights())
    optimizers = [fit.trainer.optimizers[0].state_dict()["state"] for fit in (plain, watched)]
    assert all(
        torch.equal(optimizers[0][i][k], optimizers[1][i][k]) for i in optimizers[0] for k in ("exp_avg",)
    )
    assert [v.nats for v in plain.task.validations] == [v.nats for v in watched.task.validations]
    assert len(watched.logger.rows) > len(plain.logger.rows) + 10


@pytest.mark.parametrize("tied", [True, False])
def test_every_name_is_documented_and_every_summary_is_plain(tied):
    found = diagnostics()
    fit = Fit(found, tied=tied)
    logged = {name for row in fit.logger.rows for name in row}
    assert {name for name in logged if name.startswith(("gradient/", "rows/", "weights/", "geometry/"))}
    core = {"step", "tokens", "seconds", "learning_rate", "gradient_norm", "tokens_per_second"}
    extra = {name for name in logged - core if not name.startswith(("train/", "val/"))}
    assert extra <= DIAGNOSTIC_COLUMNS.keys()
    missing = {name for name in DIAGNOSTIC_COLUMNS.keys() - extra if "head" not in name}
    # Nothing else is undefined than the scores of tokens that are not in this validation split.
    allowed = ("loss_by_frequency/", "gradient_by_frequency/") if tied else ("loss_", "gradient", "weights/")
    assert all(name.startswith(allowed) for name in missing), missing
    text = json.dumps({diagnostic.name: diagnostic.summary() for diagnostic in found}, allow_nan=False)
    assert all(json.loads(text).values())
    assert all(row["tokens"] == 32 * row["step"] for row in fit.logger.rows)


class Crash(L.Callback):
    def on_train_batch_start(self, trainer, task, batch, batch_idx):
        if trainer.global_step == 4:
            trainer.save_checkpoint(self.path)
            raise ZeroDivisionError


def test_a_resumed_run_sums_up_the_whole(tmp_path):
    whole, first, second = diagnostics(), diagnostics(), diagnostics()
    Fit(whole, 8, num_validations=4)
    crash = Crash()
    crash.path = tmp_path / "x.ckpt"
    with pytest.raises(ZeroDivisionError):
        Fit(first, 8, num_validations=4, extra=[crash])
    Fit(second, 8, num_validations=4, checkpoint=crash.path)
    for one, other in zip(whole, second, strict=True):
        assert one.summary() == other.summary(), one.name
    assert first[0].summary() != whole[0].summary()


def test_hooks_are_gone_after_a_crash_in_the_middle_of_a_step():
    class Break(L.Callback):
        def on_before_backward(self, trainer, *_):
            if trainer.global_step == 1:
                raise ZeroDivisionError

    model = MiniGPT(V, 8, 32, 1, 4, 32)
    with pytest.raises(ZeroDivisionError):
        Fit([Break(), *diagnostics()], model=model)
    assert not model.lm_head._forward_hooks
    assert not model.token_embed._forward_hooks
    assert "token_nats" not in vars(model)


def test_diagnostics_of_a_diverged_run_do_not_hide_it():
    class Diverge(L.Callback):
        def on_train_batch_start(self, trainer, task, *_):
            if trainer.global_step == 3:
                task.model.token_embed.weight.data.fill_(math.nan)

    found = diagnostics()
    Fit([Diverge(), *found])
    json.dumps([diagnostic.summary() for diagnostic in found], allow_nan=False)


@pytest.mark.parametrize("value", [0, 2.5, "25", True])
@pytest.mark.parametrize("kind", [PathGradients, RowUpdates, WeightChange, OutputStatistics])
def test_an_interval_that_is_no_whole_number_of_at_least_1_is_refused(kind, value):
    with pytest.raises(RequestError, match=rf"={value} must be a whole number of at least 1"):
        kind(value)


def test_measured_steps_are_the_first_the_multiples_and_the_last():
    diagnostic = PathGradients(25)
    assert [step for step in range(1, 62) if diagnostic.is_due(step, 61)] == [1, 25, 50, 61]


def test_a_track_leaves_undefined_values_out_of_the_mean():
    track = Track()
    track.add({**single(a=1.0), "b": np.array([1.0, math.nan, *[2.0] * 10])})
    track.add({**single(a=4.0), "b": np.array([3.0, math.nan, *[4.0] * 10])})
    found = track.summary()
    assert found["a"] == {"first": 1.0, "mean": 2.5, "last": 4.0}
    assert found["b"]["mean_by_decile"] == [None, *[3.0] * 9]
    assert found["b"]["last_unused"] == 4.0
    copy = Track()
    copy.load_state_dict(track.state_dict())
    assert copy.summary() == found


def test_unused_rows_are_their_own_group():
    rows = RowUpdates(2)
    Fit([rows])
    found = rows.summary()
    assert found["num_steps"] == 6
    assert found["steps_in_inputs_unused"] == 0
    assert found["untouched"]["last"] >= V - NUM_USED
