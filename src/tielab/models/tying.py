"""The tie between token embedding and LM head: how it is made, and how it is checked.

V vocabulary, D width, B batch, T positions.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from tielab.models.head import Head, UntiedHead
from tielab.models.sharding import whole

if TYPE_CHECKING:
    from tielab.models.minigpt import MiniGPT


class BrokenTieError(RuntimeError):
    """The model is not tied as configured; no number it produced can be trusted."""


class TiedHead(Head):
    """An LM head that scores with the rows of a token embedding and has no matrix of its own.

    ``head.weight is embedding.weight`` always holds, because the head looks the parameter up at
    every use. It therefore survives a move to another device, sharding, and loading, and the
    state dict holds the matrix once.

    Args:
        embedding: the token embedding (V, D).
        vocab_size, embed_dim: what the head must score; refused if the embedding has other sizes.
        bias: add V output biases.

    Raises:
        ValueError: the embedding's shape is not (vocab_size, embed_dim).
    """

    def __init__(self, embedding: nn.Embedding, vocab_size: int, embed_dim: int, *, bias: bool = False):
        super().__init__()
        found = (embedding.num_embeddings, embedding.embedding_dim)
        if found != (vocab_size, embed_dim):
            raise ValueError(
                f"cannot tie an embedding of shape {found} to a head of shape {(vocab_size, embed_dim)}: "
                "both need the same vocabulary and the same width"
            )
        # Past nn.Module's registration: a registered sub-module would list the matrix a second time.
        object.__setattr__(self, "_embedding", embedding)
        self.bias = nn.Parameter(torch.zeros(vocab_size)) if bias else None

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        """The embedding's own parameter (V, D)."""
        weight: Tensor = self.__dict__["_embedding"].weight
        return weight


def is_tied(model: "MiniGPT") -> bool:
    """Whether head and embedding are one parameter now, whatever was configured."""
    return _matrix(model.lm_head) is _matrix(model.token_embed)


def untie(model: "MiniGPT") -> None:
    """Give the head of a tied model a matrix of its own that equals the shared one; its bias stays."""
    vocab_size, num_columns = _matrix(model.token_embed).shape
    head = UntiedHead(num_columns, vocab_size)
    head.weight = nn.Parameter(_matrix(model.token_embed).detach().clone())
    head.bias = model.lm_head.bias  # type: ignore[assignment]
    model.lm_head = head.train(model.lm_head.training)


def tie_problem(model: "MiniGPT", tied: bool, optimized: Iterable[Tensor] | None = None) -> str | None:
    """What contradicts the configured tie, or None; names both parameters.

    Equal values prove nothing (two tensors on one storage drift apart under an optimizer), so this
    looks at object identity, storage, and the number of optimizer entries. Attributes prove nothing
    either, so last it scores one token and compares with the matrix that should have been used.
    Every process of a sharded model must call it.

    Args:
        model: has modules ``token_embed`` and ``lm_head`` with a ``weight`` (V, D) each.
        tied: as configured.
        optimized: the parameters the optimizer updates, if there is one yet; a frozen one must not be
            among them.
    """
    problem = identity_problem(model, tied)
    if problem is not None:
        return problem
    embed_weight, head_weight = _matrix(model.token_embed), _matrix(model.lm_head)
    if optimized is not None:
        entries = [id(parameter) for parameter in optimized]
        counts = entries.count(id(embed_weight)), entries.count(id(head_weight))
        expected = int(embed_weight.requires_grad), int(head_weight.requires_grad)
        if counts != expected:
            wanted = f"{expected[0]} and {expected[1]}" if expected != (1, 1) else "1 each"
            return (
                f"token_embed.weight has {counts[0]} optimizer entries and lm_head.weight {counts[1]}, "
                f"expected {'1 that both share' if tied else wanted}"
            )
    if embed_weight.is_meta:
        return None
    wrong_use = _wrong_use(model, tied)
    return None if wrong_use is None else f"{_asked(tied)} {wrong_use}"


def identity_problem(model: "MiniGPT", tied: bool) -> str | None:
    """The part of ``tie_problem`` that costs microseconds and needs no other process."""
    embed_weight, head_weight = _matrix(model.token_embed), _matrix(model.lm_head)
    if tied and head_weight is not embed_weight:
        return f"{_asked(tied)} lm_head.weight and token_embed.weight are two parameters"
    if not tied and (head_weight is embed_weight or _same_storage(head_weight, embed_weight)):
        return f"{_asked(tied)} lm_head.weight and token_embed.weight share one storage"
    return None


def _asked(tied: bool) -> str:
    return f"model.tied={str(tied).lower()}, but"


def _same_storage(a: Tensor, b: Tensor) -> bool:
    a, b = (tensor.to_local() if isinstance(tensor, DTensor) else tensor for tensor in (a, b))
    if a.is_meta or a.numel() == 0:
        return False
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


@torch.no_grad()
def _wrong_use(model: "MiniGPT", tied: bool) -> str | None:
    """Which end computes one token with another matrix than it shows, if one does.

    Two matrices of equal values are told apart only after a step has changed one of them.
    """
    agrees = {"token_embed": False, "lm_head": False}

    # Inside a forward pass of the whole model a sharded matrix is whole.
    def compare_vectors(embedding: nn.Module, inputs: tuple[Tensor], vectors: Tensor) -> None:
        # Of an embedding that is split by rows these are sums still to be made over processes.
        split = isinstance(vectors, DTensor)
        agrees["token_embed"] = split or _agree(vectors, F.embedding(inputs[0], _matrix(embedding)))

    def compare_scores(head: nn.Module, inputs: tuple[Tensor], logits: Tensor) -> None:
        matrix = _matrix(model.token_embed if tied else head)
        expected = F.linear(inputs[0], matrix, getattr(head, "bias", None))
        agrees["lm_head"] = _agree(whole(logits), whole(expected))

    modes = [(module, module.training) for module in model.modules()]
    hooks = [  # first of all hooks: the last ones shard the matrices again
        model.token_embed.register_forward_hook(compare_vectors, prepend=True),
        model.lm_head.register_forward_hook(compare_scores, prepend=True),
    ]
    try:
        model.eval()(torch.zeros(1, 1, dtype=torch.long, device=_matrix(model.token_embed).device))
    except (RuntimeError, ValueError) as error:
        if not any(word in str(error) for word in ("DTensor", "FSDP group")):
            raise  # a process that has gone, say
        return f"lm_head.weight and token_embed.weight are sharded apart: {error}"
    finally:
        for hook in hooks:
            hook.remove()
        for module, training in modes:
            module.training = training
        if isinstance(model, FSDPModule):
            model.reshard()  # a forward pass leaves the outermost group whole until a backward pass
    for name, agree in agrees.items():
        if not agree:
            return f"{name} computes with another matrix than token_embed.weight and lm_head.weight show"
    return None


def _agree(found: Tensor, expected: Tensor) -> bool:
    return torch.allclose(found, expected, equal_nan=True)  # a diverged model may still be tied


def _matrix(module: nn.Module) -> Tensor:
    assert isinstance(module.weight, Tensor)
    return module.weight
