"""Perplexities and bits per byte from sums, exponentiated once.

B batch, T positions.
"""

import math

import torch
from torch import Tensor
from torchmetrics import Metric


class TokenSums(Metric):
    """Sums over every scored token of every batch and process: nats, tokens, UTF-8 bytes.

    Sums do not depend on how the tokens were batched or spread over processes; a mean of batch
    means does. ``compute`` returns the three sums as a float64 tensor (3,).
    """

    full_state_update = False
    nats: Tensor
    num_tokens: Tensor
    num_bytes: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("nats", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("num_tokens", torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")
        self.add_state("num_bytes", torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, nats: Tensor, scored: Tensor, num_bytes: Tensor) -> None:
        """Add one batch: nats (B, T) per token, scored (B, T) bool, num_bytes (B, T) of each token."""
        # Double again: a module cast to bfloat16 takes its metrics' states along.
        self.nats = self.nats.double() + nats.double().masked_fill(~scored, 0.0).sum()
        self.num_tokens += scored.sum()
        self.num_bytes += num_bytes.masked_fill(~scored, 0).sum()

    def compute(self) -> Tensor:
        return torch.stack([self.nats, self.num_tokens.double(), self.num_bytes.double()])


class NatsPerToken(TokenSums):
    """Mean negative log-likelihood of the scored tokens, in nats."""

    def compute(self) -> Tensor:
        return self.nats / self.num_tokens


class Perplexity(TokenSums):
    """exp(nats / tokens): comparable within one tokenizer only."""

    def compute(self) -> Tensor:
        return torch.exp(self.nats / self.num_tokens)


class WordPerplexity(TokenSums):
    """exp(nats / words of the scored text): comparable across tokenizers, on one text only.

    Args:
        num_words: whitespace-separated words of everything that is scored, all processes together.
    """

    def __init__(self, num_words: int) -> None:
        super().__init__()
        self.num_words = num_words

    def compute(self) -> Tensor:
        return torch.exp(self.nats / self.num_words)


class BitsPerByte(TokenSums):
    """nats / (ln 2 * bytes of exactly the scored tokens): comparable across tokenizers."""

    def compute(self) -> Tensor:
        return self.nats / (math.log(2) * self.num_bytes)
