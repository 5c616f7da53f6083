"""Tokens per second against a clock that only moves when told to."""

import lightning.pytorch as L
import numpy as np
import pytest

from fits import B, FakeClock, Fit, T


class Spend(L.Callback):
    """Lets time pass in given hooks."""

    def __init__(self, clock, **seconds):
        for hook, amount in seconds.items():
            setattr(self, hook, self.spend(clock, amount))

    @staticmethod
    def spend(clock, amount):
        def hook(*_):
            clock.now += amount

        return hook


@pytest.mark.parametrize("accumulate", [1, 4])
def test_exact_for_any_accumulation(accumulate):
    clock = FakeClock()
    # on_before_backward lies inside the training of a micro-batch.
    fit = Fit(8, accumulate=accumulate, clock=clock, extra=[Spend(clock, on_before_backward=0.5)]).run()
    assert fit.meter.tokens_per_second == [B * T / 0.5] * 4
    assert fit.timer.seconds == 8 * accumulate * 0.5


def test_time_outside_of_training_changes_nothing():
    clock = FakeClock()
    outside = Spend(
        clock,
        on_validation_start=5.0,
        on_validation_batch_end=3.0,
        on_validation_end=7.0,
        on_train_batch_end=11.0,
    )
    fit = Fit(8, num_validations=4, clock=clock, extra=[Spend(clock, on_before_backward=0.5), outside]).run()
    assert fit.meter.tokens_per_second == [B * T / 0.5] * 4


def test_the_warm_up_is_left_out():
    clock = FakeClock()

    class SlowStart(L.Callback):
        def on_before_backward(self, trainer, *_):
            clock.now += 100.0 if trainer.global_step < 2 else 0.5

    fit = Fit(8, warmup_steps=2, clock=clock, extra=[SlowStart()]).run()
    assert fit.meter.tokens_per_second == [B * T / 0.5] * 3


def test_tokens_are_counted_not_assumed():
    clock = FakeClock()
    fit = Fit(4, sizes=[4, 4, 4, 1], clock=clock, extra=[Spend(clock, on_before_backward=1.0)]).run()
    assert fit.meter.tokens_per_second == [4 * T / 1.0, 2.5 * T / 1.0]


@pytest.mark.parametrize(("num_shares", "rate"), [(1, B * T / 0.5), (3, 3 * B * T / 0.5)])
def test_processes_that_read_the_same_batch_count_once(num_shares, rate, monkeypatch):
    monkeypatch.setattr("tielab.training.throughput.batch_share", lambda trainer: (0, num_shares))
    clock = FakeClock()
    fit = Fit(4, clock=clock, extra=[Spend(clock, on_before_backward=0.5)]).run()
    assert fit.meter.tokens_per_second == [rate] * 2


def test_median_and_quartiles():
    meter = Fit(1).meter
    meter.tokens_per_second = [1.0, 2.0, 3.0, 4.0, 100.0]
    found = meter.summary(num_processes=2)
    assert (found.q1, found.median, found.q3) == (2.0, 3.0, 4.0)
    assert found.per_device == 1.5
    assert found.num_intervals == 5


def test_a_run_too_short_to_measure_has_no_number():
    assert Fit(3, warmup_steps=2).run().meter.summary(1) is None


def test_real_time_is_plausible():
    fit = Fit(6).run()
    assert all(0 < rate < np.inf for rate in fit.meter.tokens_per_second)
