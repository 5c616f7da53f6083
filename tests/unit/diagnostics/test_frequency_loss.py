"""The validation loss by frequency adds up to the validation loss, and groups are those of the tokens."""

import numpy as np
import pytest
import torch

from diagnostic_fits import Fit, T
from tielab.diagnostics.frequency import frequencies
from tielab.diagnostics.frequency_loss import FrequencyLoss


def test_groups_add_up_to_the_validation_loss():
    diagnostic = FrequencyLoss()
    fit = Fit([diagnostic], num_validations=2)
    found = diagnostic.summary()
    (*_, last) = fit.task.validations
    for end in ("target", "input"):
        nats = sum(found[end]["last_nats_by_decile"]) + found[end]["last_nats_unused"]
        tokens = sum(found[end]["last_tokens_by_decile"]) + found[end]["last_tokens_unused"]
        assert nats == pytest.approx(last.nats, rel=1e-12)
        assert tokens == last.num_tokens
        assert list(fit.values(f"loss_by_frequency/{end}/10")) == [3, 6]
        assert found[end]["last_by_decile"][9] == fit.values(f"loss_by_frequency/{end}/10")[6]
        assert not fit.values(f"loss/{end}")


def test_a_groups_loss_is_that_of_its_tokens():
    fit = Fit([FrequencyLoss()])
    groups = frequencies(fit.trainer).groups
    batches = list(fit.data.val_dataloader())
    with torch.no_grad():
        fit.model.eval()
        nats = np.concatenate([fit.model.token_nats(ids, targets)[s] for ids, targets, s, _ in batches])
    ends = {
        "target": np.concatenate([targets[s] for _, targets, s, _ in batches]),
        "input": np.concatenate([ids[s] for ids, _, s, _ in batches]),
    }
    for end, ids in ends.items():
        expected = nats[groups[ids] == 9].mean()
        assert fit.values(f"loss_by_frequency/{end}/10")[6] == pytest.approx(expected, rel=1e-6), end
    assert len(nats) % T  # some positions of the last window are not scored


def test_a_score_of_the_finished_model_is_left_alone():
    diagnostic = FrequencyLoss()
    fit = Fit([diagnostic])
    before, num_rows = diagnostic.summary(), len(fit.logger.rows)
    fit.trainer.validate(fit.task, fit.data, verbose=False)
    assert diagnostic.summary() == before
    assert not any(name.startswith("loss_") for row in fit.logger.rows[num_rows:] for name in row)
