"""The finished model at other strides: other context, the same tokens, the rest of the run as it was."""

import lightning.pytorch as L
import pytest
import torch

from fits import B, Fit, T, evaluation_batches
from tielab.training.strides import CheckStrides

pytestmark = pytest.mark.filterwarnings("ignore")


def halves():
    """The batches of ``evaluation_batches``, each in two, with the earlier halves of the windows unscored."""
    for input_ids, targets, scored, num_bytes in evaluation_batches():
        for first in (True, False):
            part = scored & ((torch.arange(T) < T // 2) == first)
            yield input_ids, targets, part, num_bytes


def loaders(stride):
    return {1: evaluation_batches, 2: halves}[stride]()


def test_the_pass_is_that_of_the_validation_and_disturbs_none_of_it():
    seen = []

    class Watch(L.Callback):
        def on_validation_start(self, trainer, task):
            seen.append(trainer.global_step)

    strides = CheckStrides([1, 2], loaders)
    fit = Fit(4, num_validations=2, extra=[Watch(), strides]).run()
    plain = Fit(4, num_validations=2).run()
    assert strides.validations[1] == fit.task.validations[-1]
    assert strides.validations[2].nats == pytest.approx(fit.task.validations[-1].nats, rel=1e-9)
    assert strides.validations[2].num_tokens == 3 * B * T
    assert seen == [2, 4]
    assert fit.task.validations == plain.task.validations
    assert [row.keys() for row in fit.logger.rows] == [row.keys() for row in plain.logger.rows]
    for mine, theirs in zip(fit.task.parameters(), plain.task.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_dropout_is_off():
    strides = CheckStrides([1], loaders)
    fit = Fit(2, extra=[strides])
    fit.task.model.dropout = 0.5
    fit.run()
    assert strides.validations[1] == fit.task.validations[-1]


def test_a_stride_that_scores_other_tokens_fails_the_run():
    few = CheckStrides([1], lambda stride: evaluation_batches()[:2])
    with pytest.raises(RuntimeError, match=r"stride 1 scored num_tokens=64, the validation before 96"):
        Fit(2, extra=[few]).run()
