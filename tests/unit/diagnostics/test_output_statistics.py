"""What the output statistics say, against the textbook formulas on all logits at once."""

import math

import numpy as np
import pytest
import torch
from torchmetrics.functional.classification import multiclass_calibration_error

from diagnostic_fits import Fit, T, V
from tielab.diagnostics.output_statistics import OutputStatistics, OutputSums, even_windows, output_quantities
from tielab.models.minigpt import MiniGPT


def draw(num_positions=50, vocab_size=20):
    g = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(num_positions, vocab_size, generator=g)
    hidden = torch.randn(num_positions, 4, generator=g)
    ids, targets = torch.randint(vocab_size, (2, num_positions), generator=g)
    ids[:10] = logits[:10].argmax(dim=1)
    targets[5:25] = logits[5:25].argmax(dim=1)
    return logits, hidden, ids, targets


def test_quantities_are_those_of_all_logits_at_once():
    logits, hidden, ids, targets = draw()
    found = OutputSums()
    for part in (slice(0, 13), slice(13, 50)):
        found.add(logits[part], hidden[part], ids[part], targets[part])
    p = logits.double().softmax(dim=1)
    every = torch.arange(50)
    std = logits.double().std(dim=1, correction=0)
    entropy = float(-(p * p.log()).sum(dim=1).mean())
    nll = float(-p[every, targets].log().mean())
    log_z = logits.double().exp().sum(dim=1).log()
    expected = {
        "logit_std": float(std.mean()),
        "max_logit": float(logits.abs().max()),
        "hidden_norm": float(hidden.norm(dim=1).mean()),
        "entropy": entropy,
        "nll": nll,
        "calibration_gap": entropy - nll,
        "ece_15": float(multiclass_calibration_error(p, targets, 20, n_bins=15)),
        "log_partition_mean": float(log_z.mean()),
        "log_partition_variance": float(log_z.var(correction=0)),
        "self_prediction": float((logits.argmax(dim=1) == ids).double().mean()),
        "self_logit": float(((logits[every, ids] - logits.mean(dim=1)) / std).mean()),
    }
    assert expected["self_prediction"] >= 0.2
    assert output_quantities(found) == pytest.approx(expected, rel=1e-5)


def test_logits_that_are_not_finite_stay_visible():
    logits, hidden, ids, targets = draw()
    found = OutputSums()
    found.add(logits, hidden, ids, targets)
    found.add(logits * math.nan, hidden, ids, targets)
    quantities = output_quantities(found)
    assert all(math.isnan(quantities[name]) for name in ("max_logit", "nll", "entropy", "ece_15"))


def test_windows_are_spread_over_the_whole_split():
    data = Fit([], 1).data
    windows = list(even_windows(data, 5))
    tokens = data.prepared.validation.tokens
    assert len(windows) == 5
    assert windows[0][0].tolist() == tokens[:T].tolist()
    assert windows[-1][1].tolist() == tokens[-T:].tolist()
    assert all(torch.equal(ids[1:], targets[:-1]) for ids, targets in windows)
    assert len(list(even_windows(data, 10_000))) == 400 - T


def test_only_a_tied_model_predicts_its_input_before_the_first_update():
    found = {}
    for tied in (True, False):
        diagnostic = OutputStatistics(8)
        model = MiniGPT(V, T, 32, 1, 4, 32, tied=tied, embed_scale=5.0)
        fit = Fit([diagnostic], tied=tied, model=model)
        rates = fit.values("output/self_prediction")
        assert list(rates) == [0, 6]
        assert diagnostic.summary()["self_prediction"]["first"] == rates[0]
        found[tied] = rates[0], fit.values("output/self_logit")[0]
    assert found[True][0] > 0.9
    assert found[True][1] > 3
    assert found[False][0] < 0.2
    assert abs(found[False][1]) < 1


def test_all_windows_give_the_loss_of_the_split():
    fit = Fit([OutputStatistics(10_000)], num_validations=1)
    ids, targets = (torch.stack(part) for part in zip(*even_windows(fit.data, 10_000), strict=True))
    with torch.no_grad():
        expected = float(fit.model.eval().token_nats(ids, targets).mean())
    assert fit.values("output/nll")[6] == pytest.approx(expected, rel=1e-5)
    rows = fit.model.lm_head.weight.detach().norm(dim=1)
    assert fit.values("output/head_row_norm")[6] == pytest.approx(float(rows.mean()), rel=1e-5)
    assert np.isclose(fit.values("output/hidden_norm")[6], 32**0.5, rtol=0.1)  # a LayerNorm's output


def test_dropout_is_off_while_it_looks_and_on_again_afterwards():
    first, second = (
        Fit([OutputStatistics(4)], 1, model=MiniGPT(V, T, 32, 1, 4, 32, dropout=p)) for p in (0.0, 0.5)
    )
    assert first.values("output/nll")[0] == second.values("output/nll")[0]
    assert second.model.training
