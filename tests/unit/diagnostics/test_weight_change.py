"""The relative update of a step and the drift from the start, against the weights themselves."""

import lightning.pytorch as L
import numpy as np
import pytest
import torch

from diagnostic_fits import Fit, T, V
from tielab.diagnostics.weight_change import WeightChange, drift
from tielab.models.minigpt import MiniGPT


class Keep(L.Callback):
    """The weights after every step."""

    def on_train_start(self, trainer, task):
        self.weights = [{name: p.detach().clone() for name, p in task.model.named_parameters()}]

    def on_train_batch_end(self, trainer, task, *_):
        if trainer.global_step == len(self.weights):
            self.weights.append({name: p.detach().clone() for name, p in task.model.named_parameters()})


@pytest.mark.parametrize(("tied", "accumulate"), [(True, 1), (False, 2)])
def test_updates_and_drift_are_those_of_the_weights(tied, accumulate):
    kept = Keep()
    fit = Fit([WeightChange(4), kept], 6, tied=tied, accumulate=accumulate)
    start, *_, before, after = kept.weights

    def relative(name):
        return float((after[name] - before[name]).norm() / before[name].norm())

    blocks = [name for name in after if name.startswith("blocks.") and after[name].dim() > 1]
    assert len(blocks) == 4
    expected = {
        "embedding": relative("token_embed.weight"),
        "blocks": np.median([relative(n) for n in blocks]),
    }
    if not tied:
        expected["head"] = relative("lm_head.weight")
    assert {n: fit.values(f"weights/update_{n}")[6] for n in expected} == pytest.approx(expected, rel=1e-5)
    assert list(fit.values("weights/update_blocks")) == [1, 4, 6]
    for name, key in [("embedding", "token_embed.weight"), ("head", "lm_head.weight")][: 1 if tied else 2]:
        cosine = torch.cosine_similarity(after[key], start[key], dim=1).mean()
        assert fit.values(f"weights/drift_{name}")[6] == pytest.approx(float(cosine), rel=1e-5)
        unmoved = (after[key] == start[key]).all(dim=1).sum()
        assert fit.values(f"weights/unmoved_rows_{name}")[6] == unmoved


def test_drift_leaves_rows_without_direction_out():
    start = torch.tensor([[1.0, 0.0], [0.0, 0.0], [1.0, 0.0], [3.0, 4.0]])
    now = torch.tensor([[0.0, 2.0], [1.0, 0.0], [2.0, 0.0], [3.0, 4.0]])
    membership = torch.tensor([[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0]]).double()
    found = drift(now, start, membership)
    assert found[:3] == pytest.approx([2 / 3, 0.0, 1.0])
    assert np.isnan(found[3])


def test_a_resumed_run_drifts_from_its_first_weights(tmp_path):
    class Save(L.Callback):
        def on_train_batch_end(self, trainer, *_):
            if trainer.global_step == 3:
                trainer.save_checkpoint(tmp_path / "x.ckpt")

    whole = Fit([WeightChange(2), Save()], 6)
    resumed = Fit([WeightChange(2)], 6, checkpoint=tmp_path / "x.ckpt")
    assert resumed.values("weights/drift_embedding") == {
        step: value for step, value in whole.values("weights/drift_embedding").items() if step > 3
    }


def test_a_head_that_is_split_off_drifts_from_where_its_rows_began():
    class Split(L.Callback):
        def on_train_batch_start(self, trainer, task, *_):
            if trainer.global_step == 2:
                model, old = task.model, task.model.token_embed.weight
                head = torch.nn.Linear(32, V, bias=False)
                head.weight = torch.nn.Parameter(old.detach().clone())
                model.lm_head = head
                trainer.optimizers[0].param_groups[1]["params"].append(head.weight)
                trainer.callbacks[3].tied = False

    model = MiniGPT(V, T, 32, 1, 4, 32)
    start = model.token_embed.weight.detach().clone()
    fit = Fit([Split(), WeightChange(1)], 4, model=model)
    values = fit.values("weights/drift_head")
    assert list(values) == [3, 4]
    expected = torch.cosine_similarity(fit.model.lm_head.weight.detach(), start, dim=1).mean()
    assert values[4] == pytest.approx(float(expected), rel=1e-5)
    assert values[4] != fit.values("weights/drift_embedding")[4]
