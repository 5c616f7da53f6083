"""The tie between token embedding and LM head: how it is made, and how it is checked.

V vocabulary, D width, B batch, T positions.
"""

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class BrokenTieError(RuntimeError):
    """The model is not tied as configured; no number it produced can be trusted."""


class TiedHead(nn.Module):
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
    def weight(self) -> nn.Parameter:
        """The embedding's own parameter (V, D)."""
        weight = self.__dict__["_embedding"].weight
        assert isinstance(weight, nn.Parameter)
        return weight

    def forward(self, hidden: Tensor) -> Tensor:
        """Hidden states (..., D) to logits (..., V)."""
        return F.linear(hidden, self.weight, self.bias)


def tie_problem(
    embedding: nn.Module, head: nn.Module, tied: bool, optimized: Iterable[Tensor] | None = None
) -> str | None:
    """What contradicts the configured tie, or None.

    Equal values prove nothing (two tensors on one storage drift apart under an optimizer), so this
    looks at object identity, storage, and the number of optimizer entries.

    Args:
        embedding, head: modules with a ``weight`` (V, D).
        tied: as configured.
        optimized: the parameters the optimizer updates, if there is one yet.
    """
    embed_weight, head_weight = embedding.weight, head.weight
    assert isinstance(embed_weight, Tensor)
    assert isinstance(head_weight, Tensor)
    if tied and head_weight is not embed_weight:
        return "model.tied=true, but lm_head.weight and token_embed.weight are two parameters"
    if not tied and (head_weight is embed_weight or _same_storage(head_weight, embed_weight)):
        return "model.tied=false, but lm_head.weight and token_embed.weight share one storage"
    if optimized is None:
        return None
    entries = [id(parameter) for parameter in optimized]
    for name, weight in (("token_embed.weight", embed_weight), ("lm_head.weight", head_weight)):
        count = entries.count(id(weight))
        if count != 1:
            return f"{name} has {count} optimizer entries, expected 1"
    return None


def _same_storage(a: Tensor, b: Tensor) -> bool:
    return not a.is_meta and a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()
