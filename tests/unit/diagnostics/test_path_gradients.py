"""The gradients by path are exact, and measuring them changes no bit of the training."""

import weakref

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call

from diagnostic_fits import Fit
from tielab.diagnostics.path_gradients import ModuleGradient, PathGradients
from tielab.models.minigpt import MiniGPT

V, T = 64, 8


def text(num_windows=4, seed=0):
    ids = torch.randint(V, (num_windows, T + 1), generator=torch.Generator().manual_seed(seed))
    return ids[:, :-1], ids[:, 1:]


def by_two_views(model, batches):
    """G_in and G_out by another route: the model run with two matrices that hold the same values."""
    untied = MiniGPT(V, T, 32, 1, 4, 32, tied=False, embed_scale=model.embed_scale).double()
    values = {name: value.detach() for name, value in model.named_parameters()}
    views = [values["token_embed.weight"].clone().requires_grad_() for _ in range(2)]
    values |= {"token_embed.weight": views[0], "lm_head.weight": views[1]}
    for ids, targets in batches:
        logits = functional_call(untied, values, (ids,))
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        (loss / len(batches)).backward()
    return views[0].grad, views[1].grad


@pytest.mark.parametrize("num_batches", [1, 3])
@pytest.mark.parametrize("embed_scale", [1.0, 5.0])
def test_they_are_those_of_two_views_of_the_matrix_and_add_up(num_batches, embed_scale):
    model = MiniGPT(V, T, 32, 1, 4, 32, embed_scale=embed_scale).double()
    batches = [text(seed=seed) for seed in range(num_batches)]
    lookup, head = ModuleGradient(model.token_embed), ModuleGradient(model.lm_head)
    for ids, targets in batches:
        (model.loss(ids, targets) / num_batches).backward()
    lookup.remove()
    head.remove()
    expected_in, expected_out = by_two_views(model, batches)
    largest = model.token_embed.weight.grad.abs().max()
    assert (lookup.total - expected_in).abs().max() < 1e-12 * largest
    assert (head.total - expected_out).abs().max() < 1e-12 * largest
    assert (lookup.total + head.total - model.token_embed.weight.grad).abs().max() < 1e-12 * largest
    assert lookup.total.norm() > 0.01 * head.total.norm()


@pytest.fixture
def watched():
    """Every gradient a fit's optimizer gets, with what the diagnostic found in it."""

    class Watch(PathGradients):
        def on_before_optimizer_step(self, trainer, task, optimizer):
            self.totals = [part and part.total.clone() for part in (self._lookup, self._head)]
            self.gradients = {name: p.grad.clone() for name, p in task.model.named_parameters()}
            super().on_before_optimizer_step(trainer, task, optimizer)

    return Watch(every_n_steps=2)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_the_two_add_up_to_the_gradient_before_clipping(watched, accumulate):
    fit = Fit([watched], accumulate=accumulate)
    residuals = fit.values("gradient/residual")
    assert list(residuals) == [1, 2, 4, 6]
    assert max(residuals.values()) < 1e-6
    lookup, head = watched.totals
    gradient = watched.gradients["token_embed.weight"]
    assert (lookup + head - gradient).abs().max() < 1e-6 * gradient.abs().max()
    assert fit.values("gradient/in_norm")[6] == pytest.approx(float(lookup.norm()), rel=1e-5)
    assert fit.values("gradient/out_norm")[6] == pytest.approx(float(head.norm()), rel=1e-5)
    assert fit.values("gradient_norm")[6] > 0.1  # what would have been clipped


def test_shares_and_cosine_are_those_of_the_formulas(watched):
    fit = Fit([watched])
    lookup, head = (part.double() for part in watched.totals)
    a, b = float(lookup.norm()), float(head.norm())
    expected = {
        "share_l2": b / (a + b),
        "share_energy": b**2 / (a**2 + b**2),
        "cosine": float((lookup * head).sum()) / (a * b),
    }
    assert {name: fit.values(f"gradient/{name}")[6] for name in expected} == pytest.approx(expected, rel=1e-5)
    by_count = np.argsort(np.bincount(fit.data.prepared.train.tokens, minlength=V), kind="stable")
    rows = torch.from_numpy(by_count[-5:])  # the tenth of the 50 used rows
    assert fit.values("gradient_by_frequency/in_norm/10")[6] == pytest.approx(
        float(lookup[rows].norm()), rel=1e-5
    )
    assert fit.values("gradient_by_frequency/share_l2/unused")[6] == 1.0


def test_of_an_untied_model_they_are_the_gradients_of_the_two_matrices(watched):
    fit = Fit([watched], tied=False)
    lookup, head = watched.gradients["token_embed.weight"], watched.gradients["lm_head.weight"]
    assert fit.values("gradient/in_norm")[6] == pytest.approx(float(lookup.norm()), rel=1e-5)
    assert fit.values("gradient/out_norm")[6] == pytest.approx(float(head.norm()), rel=1e-5)
    assert fit.values("gradient/residual") == {}
    assert watched.totals[1] is None


@pytest.mark.parametrize("accumulate", [1, 2])
def test_the_published_stand_in_is_the_norm_over_all_looked_up_vectors(accumulate):
    class Activations(PathGradients):
        def on_train_batch_start(self, trainer, task, batch, batch_idx):
            super().on_train_batch_start(trainer, task, batch, batch_idx)
            if batch_idx % accumulate == 0:
                self.kept = []

            def keep(module, inputs, output):
                output.register_hook(self.kept.append)
                hook.remove()

            hook = task.model.token_embed.register_forward_hook(keep)

    diagnostic = Activations(every_n_steps=1)
    fit = Fit([diagnostic], 2, accumulate=accumulate)
    assert len(diagnostic.kept) == accumulate
    expected = float(torch.cat(diagnostic.kept).norm())
    assert fit.values("gradient/activation_norm")[2] == pytest.approx(expected, rel=1e-5)
    out = fit.values("gradient/out_norm")[2]
    assert fit.values("gradient/share_l2_activation")[2] == pytest.approx(out / (out + expected), rel=1e-5)
    # Rows that occur more than once add up in G_in, not in the stand-in.
    assert expected != pytest.approx(fit.values("gradient/in_norm")[2], rel=1e-2)


def test_a_frozen_table_gets_no_gradient_through_the_lookup():
    model = MiniGPT(V, T, 32, 1, 4, 32, tied=False)
    model.token_embed.weight.requires_grad_(False)
    fit = Fit([PathGradients(1)], 2, tied=False, model=model)
    assert fit.values("gradient/in_norm") == {1: 0, 2: 0}
    assert fit.values("gradient/activation_norm") == {1: 0, 2: 0}
    assert fit.values("gradient/share_l2") == {1: 1, 2: 1}
    assert fit.values("gradient/cosine") == {}


def test_a_scaled_gradient_counts_as_it_reaches_the_matrix():
    model = MiniGPT(V, T, 32, 1, 4, 32)
    lookup, head = ModuleGradient(model.token_embed), ModuleGradient(model.lm_head)

    def halve(module, inputs, output):
        output.register_hook(lambda gradient: 0.5 * gradient)

    model.token_embed.register_forward_hook(halve)
    model.loss(*text()).backward()
    gradient = model.token_embed.weight.grad
    assert (lookup.total + head.total - gradient).abs().max() < 1e-6 * gradient.abs().max()


def test_a_watched_step_leaves_no_graph_behind():
    model = MiniGPT(V, T, 32, 1, 4, 32)
    watched = [ModuleGradient(module) for module in (model.token_embed, model.lm_head)]
    outputs = []
    for module in (model.token_embed, model.lm_head):
        module.register_forward_hook(lambda *given: outputs.append(weakref.ref(given[-1])))
    model.loss(*text()).backward()
    assert [output() for output in outputs] == [None, None]
    assert all(part.total.any() for part in watched)


class ThirdUse(MiniGPT):
    def loss(self, input_ids, targets=None):
        return super().loss(input_ids, targets) + self.token_embed.weight.square().sum()


def test_a_gradient_that_the_two_do_not_explain_fails_the_run():
    with pytest.raises(RuntimeError, match=r"path_gradients: .* miss that of their matrix by"):
        Fit([PathGradients(2)], model=ThirdUse(V, T, 32, 1, 4, 32))


class PermutedHead(nn.Module):
    """Scores with the rows of another module's matrix in another order."""

    def __init__(self, embedding, order):
        super().__init__()
        object.__setattr__(self, "embedding", embedding)
        self.register_buffer("order", order)

    @property
    def weight(self):
        return self.embedding.weight

    def forward(self, hidden):
        return nn.functional.linear(hidden, self.weight[self.order])


def test_they_hold_for_a_head_that_does_something_with_the_matrix_first():
    model = MiniGPT(V, T, 32, 1, 4, 32)
    model.lm_head = PermutedHead(model.token_embed, torch.randperm(V))
    lookup, head = ModuleGradient(model.token_embed), ModuleGradient(model.lm_head)
    model.loss(*text()).backward()
    gradient = model.token_embed.weight.grad
    assert (lookup.total + head.total - gradient).abs().max() < 1e-6 * gradient.abs().max()
    assert head.total.norm() > 0.01
