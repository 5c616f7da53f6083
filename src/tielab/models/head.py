"""The LM head: scores hidden states with a matrix, and turns scores into losses a chunk at a time.

N positions of a batch, D columns of the matrix, V vocabulary.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CHUNK_LOGITS = 2**24
"""Logits that exist at a time in float32, which are 64 MiB; twice as many in a format half as wide. Fewer
slow down large vocabularies, more gain nothing."""

SMALLEST_PROBABILITY = 1e-30
"""Whose logarithm is as exact as any other's in float32."""


class Head(nn.Module):
    """Scores hidden states with its matrix ``weight`` (V, D) and, if there is one, its ``bias`` (V,)."""

    weight: Tensor
    bias: Tensor | None

    def forward(self, hidden: Tensor, targets: Tensor | None = None, reduction: str = "mean") -> Tensor:
        """Hidden states (..., D) to logits (..., V); with targets (...) to their cross entropy in nats.

        Args:
            reduction: ``mean`` over the targets, or ``none``: float32 of the shape of targets.
        """
        if targets is None:
            return F.linear(hidden, self.weight, self.bias)
        return cross_entropy(hidden, self.weight, self.bias, targets, reduction)


class UntiedHead(Head):
    """A head with a matrix of its own."""

    def __init__(self, embed_dim: int, vocab_size: int, *, bias: bool = False):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab_size, embed_dim))
        self.bias = nn.Parameter(torch.zeros(vocab_size)) if bias else None


def cross_entropy(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, reduction: str = "mean"
) -> Tensor:
    """Cross entropy of linear scores, without ever holding more than ``CHUNK_LOGITS`` of them.

    The gradients of the mean are computed with it, while a chunk's logits exist: three matrix products, as
    with all logits at once. Hsu et al. 2024 (arXiv 2410.10989) chunk over positions as this does.

    Args:
        hidden: (..., D). weight: (V, D). bias: (V,) or None. targets: (...) int64.
        reduction: ``mean``: a scalar; ``none``: (...), which cannot be differentiated.
    """
    flat, goals = hidden.flatten(0, -2), targets.flatten()
    if reduction == "none":
        return _nats(flat, weight, bias, goals).view_as(targets)
    if not torch.is_grad_enabled():
        return _nats(flat, weight, bias, goals).mean()
    loss: Tensor = _MeanCrossEntropy.apply(flat, weight, bias, goals)  # type: ignore[no-untyped-call]
    return loss


def _rows(vocab_size: int, dtype: torch.dtype) -> int:
    """Positions whose logits are held at a time."""
    return max(1, CHUNK_LOGITS * 4 // dtype.itemsize // vocab_size)


def _wide(dtype: torch.dtype) -> torch.dtype:
    """What logits are turned into losses in: float32, or wider."""
    return torch.promote_types(dtype, torch.float32)


@torch.no_grad()
def _nats(hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor) -> Tensor:
    rows = _rows(weight.shape[0], hidden.dtype)
    parts = []
    for some_hidden, some_targets in zip(torch.split(hidden, rows), torch.split(targets, rows), strict=True):
        logits = F.linear(some_hidden, weight, bias)
        parts.append(_nats_and_probabilities(logits.to(_wide(logits.dtype)), some_targets)[0])
    return torch.cat(parts)


class _MeanCrossEntropy(torch.autograd.Function):
    """Mean cross entropy whose gradients are found in the forward pass, and can be taken once."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor) -> Tensor:
        device = hidden.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype
        with torch.autocast(device, enabled=False):
            found = _Sums(hidden.to(dtype), weight.to(dtype), bias, targets, ctx.needs_input_grad[1])
        ctx.gradients = [found.by_hidden, found.by_weight, found.by_bias]
        ctx.dtypes = [hidden.dtype, weight.dtype, None if bias is None else bias.dtype]
        ctx.num_targets = len(targets)
        return found.nats.mean()

    @staticmethod
    def backward(ctx: Any, *outputs: Tensor) -> tuple[Tensor | None, ...]:
        # Given away rather than saved, or each would be copied where it is added up.
        gradients, ctx.gradients = ctx.gradients, None
        if gradients is None:
            raise RuntimeError("the gradients of this loss were taken before; compute the loss again")
        scale = outputs[0] / ctx.num_targets
        return (*map(_scaled, gradients, ctx.dtypes, (scale,) * 3), None)


def _scaled(gradient: Tensor | None, dtype: torch.dtype, scale: Tensor) -> Tensor | None:
    return None if gradient is None else gradient.to(dtype).mul_(scale)


class _Sums:
    """Nats of every target (N,), and the gradients of their sum: (N, D), (V, D), (V,)."""

    def __init__(
        self, hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, weight_is_trained: bool
    ):
        self.nats = hidden.new_empty(len(hidden), dtype=_wide(hidden.dtype))
        self.by_hidden = torch.empty_like(hidden)
        self.by_weight: Tensor | None = None
        self.by_bias = None if bias is None else torch.zeros_like(bias)
        rows = _rows(weight.shape[0], hidden.dtype)
        for start in range(0, len(hidden), rows):
            chunk = slice(start, start + rows)
            self.nats[chunk], by_logits = _nats_and_gradient(hidden[chunk], weight, bias, targets[chunk])
            if self.by_bias is not None:
                self.by_bias += by_logits.sum(dim=0)
            by_logits = by_logits.to(hidden.dtype)
            torch.mm(by_logits, weight, out=self.by_hidden[chunk])
            if weight_is_trained:
                self._add(by_logits.t(), hidden[chunk])
            del by_logits  # before the next chunk's come

    def _add(self, by_logits: Tensor, hidden: Tensor) -> None:
        """Add a product (V, n) x (n, D); of a second one on, sums are in float32."""
        if self.by_weight is None:
            self.by_weight = torch.mm(by_logits, hidden)
            return
        self.by_weight = self.by_weight.to(_wide(hidden.dtype))
        if hidden.dtype == self.by_weight.dtype:
            self.by_weight.addmm_(by_logits, hidden)
        else:
            self.by_weight += torch.mm(by_logits, hidden)


def _nats_and_gradient(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor
) -> tuple[Tensor, Tensor]:
    """Nats (n,) of a chunk, and their gradient by the logits (n, V): softmax minus one-hot."""
    logits = torch.mm(hidden, weight.t()).to(_wide(hidden.dtype))
    if bias is not None:
        logits += bias
    nats, by_logits = _nats_and_probabilities(logits, targets)
    by_logits.scatter_add_(1, targets[:, None], by_logits.new_full((len(targets), 1), -1.0))
    return nats, by_logits


def _nats_and_probabilities(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Nats (n,) of the targets, and the probabilities (n, V)."""
    if logits.device.type != "cpu":
        log_probabilities = torch.log_softmax(logits, dim=-1)
        nats = -log_probabilities.gather(1, targets[:, None])[:, 0]
        return nats, log_probabilities.exp_()
    # Takes half the time on the CPU. On a GPU it would wait to see whether a target is next to impossible.
    probabilities = torch.softmax(logits, dim=-1)
    of_targets = probabilities.gather(1, targets[:, None])[:, 0]
    nats = -of_targets.log()
    unlikely = (of_targets < SMALLEST_PROBABILITY).nonzero()[:, 0]
    if len(unlikely):
        nats[unlikely] = F.cross_entropy(logits[unlikely], targets[unlikely], reduction="none")
    return nats, probabilities
