"""The guard stops a broken tie wherever it breaks; validation and log come when they should."""

import signal

import lightning.pytorch as L
import pytest
import torch
from torch import nn

from fits import B, Fit, T, batches
from tielab.models.head import cross_entropy
from tielab.models.tying import BrokenTieError
from tielab.training.callbacks import RunInterruptedError, StopOnSignal, ValidateAt
from tielab.training.progress import ProgressBar


class AtStep(L.Callback):
    """Does something to the model after a step."""

    def __init__(self, step, action):
        self.step, self.action = step, action

    def on_train_batch_end(self, trainer, task, *_):
        if trainer.global_step == self.step:
            self.action(task.model)


def untie(model):
    head = nn.Linear(32, 64, bias=False)
    head.weight = nn.Parameter(model.token_embed.weight.detach().clone())
    model.lm_head = head


def tie(model):
    model.lm_head.weight = model.token_embed.weight


@pytest.mark.parametrize(("tied", "breakage"), [(True, untie), (False, tie)])
def test_a_tie_broken_at_step_3_fails_the_fit(tied, breakage):
    fit = Fit(6, tied=tied, num_validations=2, extra=[AtStep(3, breakage)])
    with pytest.raises(BrokenTieError, match=r"at step 3: .*lm_head\.weight and token_embed\.weight"):
        fit.run()
    assert fit.guard.observed is not tied
    assert not fit.guard.intact


class At(L.Callback):
    """Does something to the model in a hook."""

    def __init__(self, hook, action):
        setattr(self, hook, lambda trainer, task, *_: action(task.model))


def share_storage(model):
    model.lm_head.weight.data = model.token_embed.weight.data


def score_with_a_copy(model):
    matrix = model.token_embed.weight.detach().clone()

    def score(hidden, targets=None, reduction="mean"):
        return cross_entropy(hidden, matrix, None, targets) if targets is not None else hidden @ matrix.T

    model.lm_head.forward = score


CHANGES = [(True, untie), (False, tie), (False, share_storage)]


@pytest.mark.parametrize(
    ("tied", "breakage", "hook", "step"),
    [
        *((*change, "on_fit_start", 0) for change in CHANGES),  # seen where a checkpoint has been loaded
        *((*change, "on_train_start", 0) for change in CHANGES),  # seen before the next batch
        *((*change, "on_validation_end", 3) for change in CHANGES),  # seen by the last look
        (True, score_with_a_copy, "on_train_start", 1),
        (False, score_with_a_copy, "on_train_start", 1),
    ],
)
def test_a_tie_broken_anywhere_fails_at_the_next_look(tied, breakage, hook, step):
    fit = Fit(3, tied=tied, extra=[At(hook, breakage)])
    with pytest.raises(BrokenTieError, match=rf"at step {step}: .*lm_head") as error:
        fit.run()
    assert "lm_head.weight" in str(error.value)
    assert "token_embed.weight" in str(error.value)
    assert fit.guard.observed is not tied


@pytest.mark.parametrize("tied", [True, False])
def test_another_matrix_used_from_step_2_on_is_found_at_the_next_validation(tied):
    fit = Fit(6, tied=tied, num_validations=2, extra=[AtStep(2, score_with_a_copy)])
    with pytest.raises(BrokenTieError, match=r"at step 3: .* lm_head computes with another matrix"):
        fit.run()
    assert fit.task.validations == []


class ListTwice(L.Callback):
    def on_fit_start(self, trainer, task):
        trainer.optimizers[0].param_groups[0]["params"].append(task.model.token_embed.weight)


@pytest.mark.parametrize("tied", [True, False])
def test_a_second_optimizer_entry_fails_before_the_first_step(tied):
    problem = r"at step 0: token_embed\.weight has 2 optimizer entries and lm_head\.weight"
    with pytest.raises(BrokenTieError, match=problem):
        Fit(3, tied=tied, extra=[ListTwice()]).run()


@pytest.mark.parametrize(("tied", "breakage"), [(True, untie), (False, tie)])
def test_a_tie_broken_before_training_fails_before_the_first_step(tied, breakage):
    fit = Fit(6, tied=tied)
    breakage(fit.task.model)
    with pytest.raises(BrokenTieError, match="at step 0"):
        fit.run()


@pytest.mark.parametrize("tied", [True, False])
def test_an_intact_tie_is_observed_at_every_look(tied):
    fit = Fit(6, tied=tied, num_validations=3).run()
    assert fit.guard.observed is tied
    assert fit.guard.num_checks == 1 + 1 + 1 + 3 + 1


def test_nobody_looked_means_not_observed():
    assert Fit(1).guard.observed is None


@pytest.mark.parametrize(
    ("num_steps", "num_validations", "expected"),
    [(8, 2, {4, 8}), (7, 2, {4, 7}), (10, 3, {3, 7, 10}), (3, 10, {1, 2, 3}), (5, 1, {5})],
)
@pytest.mark.parametrize("accumulate", [1, 2])
def test_validations_are_spread_evenly_and_the_last_is_after_the_last_step(
    num_steps, num_validations, expected, accumulate
):
    assert ValidateAt(num_steps, num_validations).steps == expected
    fit = Fit(num_steps, num_validations=num_validations, accumulate=accumulate).run()
    per_step = B * T * accumulate
    assert [v.tokens_seen // per_step for v in fit.task.validations] == sorted(expected)


@pytest.mark.parametrize("accumulate", [1, 4])
def test_logged_losses_are_the_means_over_steps(accumulate):
    fit = Fit(5, accumulate=accumulate, log_every=2).run()
    rows = [row for row in fit.logger.rows if "train/loss" in row]
    assert [row["step"] for row in rows] == [1, 2, 4, 5]
    assert [row["tokens"] for row in rows] == [row["step"] * B * T * accumulate for row in rows]
    assert rows[0]["train/loss"] == fit.task.initial_loss
    assert all(row["gradient_norm"] > 0 for row in rows)
    assert rows[0]["learning_rate"] == pytest.approx(1e-2)  # the one-step warm-up ends at the peak
    assert rows[-1]["learning_rate"] == pytest.approx(1e-3)


def test_accumulated_micro_batches_train_like_one_batch():
    whole = batches(4, [8] * 4)
    halves = [(x[i : i + 4], y[i : i + 4]) for x, y in whole for i in (0, 4)]
    one = Fit(4, train=whole, log_every=1).run().logger.rows
    two = Fit(4, train=halves, log_every=1, accumulate=2).run().logger.rows
    for name in ("train/loss", "gradient_norm", "val/loss"):
        first, second = ([row[name] for row in rows if name in row] for rows in (one, two))
        assert first == pytest.approx(second, rel=1e-5), name


def test_gradients_are_clipped_and_the_norm_before_clipping_is_logged():
    norms = []

    class Watch(L.Callback):
        def on_before_zero_grad(self, trainer, task, optimizer):
            grads = [p.grad for p in task.parameters() if p.grad is not None]
            if grads:
                norms.append(float(torch.linalg.vector_norm(torch.cat([g.flatten() for g in grads]))))

    fit = Fit(4, log_every=1, extra=[Watch()])
    fit.task.optimizer_config = {**fit.task.optimizer_config, "gradient_clip_norm": 0.01}
    fit.run()
    assert norms
    assert all(norm <= 0.0101 for norm in norms)
    assert all(row["gradient_norm"] > 0.0101 for row in fit.logger.rows if "gradient_norm" in row)


def test_progress_off_a_terminal_is_lines_at_intervals(capsys, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("tielab.training.progress.time.monotonic", lambda: now[0])

    class Tick(L.Callback):
        def on_train_batch_start(self, *_):
            now[0] += 1.0

    Fit(20, extra=[Tick(), ProgressBar(line_seconds=5.0)]).run()
    lines = [line for line in capsys.readouterr().err.splitlines() if "tokens/s" in line]
    assert len(lines) == 4 + 1
    assert lines[-1].startswith("640/640 tokens")
    assert lines[0].startswith("160/640 tokens  loss ")
    assert lines[0].endswith("32 tokens/s  0:00:15 left")


def test_the_best_validation_and_the_final_losses_are_kept():
    fit = Fit(10, num_validations=5).run()
    assert len(fit.task.validations) == 5
    assert len(fit.task.final_losses) == 1
    assert fit.task.validations[-1].num_tokens == 3 * B * T
    assert fit.task.validations[-1].num_bytes == 2 * 3 * B * T


@pytest.fixture
def handlers():
    """Puts the handlers of both signals back."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield before
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("stopped", [True, False])
def test_a_signal_after_the_training_does_not_keep_the_record_from_being_written(stopped, handlers, tmp_path):
    """SLURM signals every process, and the one that started them passes it on: the second comes late."""
    stop = StopOnSignal(tmp_path / "last.ckpt", 1, validation_steps={4})
    signals = [AtStep(2, lambda model: signal.raise_signal(signal.SIGTERM))] if stopped else []
    fit = Fit(4, extra=[*signals, stop])
    if stopped:
        with pytest.raises(RunInterruptedError, match="after step 2"):
            fit.run()
    else:
        fit.run()
    assert (tmp_path / "last.ckpt").is_file() is stopped
    for number, before in handlers.items():
        assert signal.getsignal(number) not in (before, signal.SIG_DFL)  # else it would end this process
        signal.raise_signal(number)


def test_a_signal_before_the_training_does_what_it_did_before(handlers, tmp_path):
    early = At("on_train_start", lambda model: signal.raise_signal(signal.SIGINT))
    with pytest.raises(SystemExit):
        Fit(4, extra=[early, StopOnSignal(tmp_path / "last.ckpt", 1, validation_steps={4})]).run()
    assert not (tmp_path / "last.ckpt").exists()
