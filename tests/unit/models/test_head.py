"""The head's loss without the logits: its values and gradients, and how much it ever holds."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from tielab.models import head as head_module
from tielab.models.head import UntiedHead, cross_entropy
from tielab.models.minigpt import MiniGPT

N, V, D = 50, 64, 32


def inputs(dtype=torch.float32, *, bias=True, seed=0):
    generator = torch.Generator().manual_seed(seed)
    hidden, weight = (torch.randn(size, D, generator=generator, dtype=dtype) for size in (N, V))
    offset = torch.randn(V, generator=generator, dtype=dtype) if bias else None
    tensors = [t if t is None else t.requires_grad_() for t in (hidden, weight, offset)]
    return (*tensors, torch.randint(V, (N,), generator=generator))


def gradients(loss, tensors):
    return torch.autograd.grad(loss, [t for t in tensors if t is not None])


@pytest.fixture(params=[1, 7 * V, 2**24], ids=["one row", "seven rows", "all rows"])
def chunk(request, monkeypatch):
    monkeypatch.setattr(head_module, "CHUNK_LOGITS", request.param)


class LargestTensor(TorchDispatchMode):
    """The most entries that any operation's result had."""

    entries = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        out = operation(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else [out]:
            if isinstance(tensor, torch.Tensor):
                self.entries = max(self.entries, tensor.numel())
        return out


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_loss_and_gradients_are_those_of_all_logits_at_once(chunk, dtype, tolerance, bias):
    *tensors, targets = inputs(dtype, bias=bias)
    loss = cross_entropy(*tensors, targets)
    expected = F.cross_entropy(F.linear(*tensors), targets)
    assert loss.dtype == dtype
    assert abs(loss - expected) < tolerance * expected
    for found, wanted in zip(gradients(3 * loss, tensors), gradients(3 * expected, tensors), strict=True):
        assert found.dtype == dtype
        assert (found - wanted).abs().max() <= tolerance * wanted.abs().max()


def test_each_target_has_the_nats_that_all_logits_at_once_give_it(chunk):
    *tensors, targets = inputs()
    expected = F.cross_entropy(F.linear(*tensors), targets, reduction="none")
    found = cross_entropy(*tensors, targets, reduction="none")
    assert torch.allclose(found, expected, rtol=1e-5)
    assert not found.requires_grad
    with torch.no_grad():
        assert torch.allclose(cross_entropy(*tensors, targets), expected.mean())


@pytest.mark.parametrize("scale", [30.0, 3e4])
def test_targets_whose_probability_is_next_to_nothing_have_exact_nats(chunk, scale):
    *tensors, targets = inputs()
    with torch.no_grad():
        tensors[1].mul_(scale)
    logits = F.linear(*tensors)
    assert (logits.softmax(dim=-1).gather(1, targets[:, None]) == 0).any()
    expected = F.cross_entropy(logits, targets, reduction="none")
    assert torch.allclose(cross_entropy(*tensors, targets, reduction="none"), expected, rtol=1e-5)
    loss = cross_entropy(*tensors, targets)
    assert torch.allclose(loss, expected.mean(), rtol=1e-5)
    for found, wanted in zip(gradients(loss, tensors), gradients(expected.mean(), tensors), strict=True):
        assert (found - wanted).abs().max() <= 1e-5 * wanted.abs().max()


def test_a_score_that_is_no_number_gives_a_loss_that_is_none():
    hidden, weight, _, targets = inputs(bias=False)
    with torch.no_grad():
        weight[3, 0] = torch.nan
    assert cross_entropy(hidden, weight, None, targets).isnan()
    assert cross_entropy(hidden, weight, None, targets, reduction="none").isnan().all()


def test_under_autocast_the_products_are_bfloat16_and_the_rest_is_float32(chunk):
    *tensors, targets = inputs()
    expected = F.cross_entropy(F.linear(*tensors), targets)
    with torch.autocast("cpu", torch.bfloat16):
        loss = cross_entropy(*tensors, targets)
    assert loss.dtype == torch.float32
    assert loss != expected
    assert abs(loss - expected) < 0.01 * expected
    for found, wanted in zip(gradients(loss, tensors), gradients(expected, tensors), strict=True):
        assert found.dtype == torch.float32
        assert (found - wanted).norm() < 0.02 * wanted.norm()


def test_a_frozen_matrix_gets_no_gradient():
    hidden, weight, _, targets = inputs(bias=False)
    frozen = weight.detach()
    cross_entropy(hidden, frozen, None, targets).backward()
    assert frozen.grad is None
    expected = torch.autograd.grad(F.cross_entropy(hidden @ weight.T, targets), hidden)[0]
    assert torch.allclose(hidden.grad, expected, atol=1e-7)


def test_gradients_taken_twice_are_refused_rather_than_wrong():
    *tensors, targets = inputs()
    loss = cross_entropy(*tensors, targets)
    gradients_once = torch.autograd.grad(loss, tensors, retain_graph=True)
    assert len(gradients_once) == 3
    with pytest.raises(RuntimeError, match="were taken before"):
        torch.autograd.grad(loss, tensors)


@pytest.mark.parametrize("tied", [True, False])
def test_a_step_and_an_evaluation_never_hold_more_logits_than_a_chunk(tied, monkeypatch):
    monkeypatch.setattr(head_module, "CHUNK_LOGITS", 3 * V)
    model = MiniGPT(V, 128, 8, 1, 1, 8, tied=tied)
    ids = torch.randint(V, (2, 128))
    largest_other = 2 * 128 * 24  # query, key and value of every position
    with LargestTensor() as of_a_step:
        model.loss(ids).backward()
    with LargestTensor() as of_an_evaluation:
        model.token_nats(ids, ids)
    with LargestTensor() as of_logits:
        model(ids)
    assert of_logits.entries == 2 * 128 * V > largest_other
    assert of_a_step.entries <= largest_other
    assert of_an_evaluation.entries <= largest_other


def test_a_step_makes_the_three_products_with_the_matrix_and_no_fourth(monkeypatch):
    monkeypatch.setattr(head_module, "CHUNK_LOGITS", 2**24)
    calls = []

    class Products(TorchDispatchMode):
        def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
            if operation.overloadpacket in (torch.ops.aten.mm, torch.ops.aten.addmm):
                calls.append(operation)
            return operation(*args, **(kwargs or {}))

    hidden, weight, _, targets = inputs(bias=False)
    with Products():
        cross_entropy(hidden, weight, None, targets).backward()
    assert len(calls) == 3


def test_perplexity_in_bfloat16_is_within_a_thousandth_of_that_in_float32():
    torch.manual_seed(0)
    model = MiniGPT(1024, 64, 64, 2, 4, 128, init_std=0.2).eval()
    ids = torch.randint(1024, (8, 65))
    targets = model(ids[:, :-1]).argmax(dim=-1).where(torch.rand(8, 64) < 0.3, ids[:, 1:])
    exact = model.token_nats(ids[:, :-1], targets).double().mean()
    with torch.autocast("cpu", torch.bfloat16):
        rounded = model.token_nats(ids[:, :-1], targets)
    assert rounded.dtype == torch.float32
    assert rounded.double().mean() != exact
    assert math.exp(abs(rounded.double().mean() - exact)) < 1 + 1e-3


def test_a_head_without_targets_gives_logits():
    untied = UntiedHead(D, V, bias=True)
    with torch.no_grad():
        untied.weight.normal_()
        untied.bias.normal_()
    hidden = torch.randn(2, 3, D)
    assert torch.equal(untied(hidden), F.linear(hidden, untied.weight, untied.bias))
