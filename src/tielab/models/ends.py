"""The maps between a model's body and its two ends, where a tying scheme asks for one.

D width (embed_dim), r rank. A map carries the final hidden states to the vectors that the head scores;
the head itself keeps the one product with its matrix, so the tie stays a matter of one parameter.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

HEAD_MAPS = ("none", "linear", "permutation", "rotation")


class LowRankMap(nn.Module):
    """A learned map D -> r -> D."""

    def __init__(self, embed_dim: int, rank: int):
        super().__init__()
        self.down = nn.Linear(embed_dim, rank, bias=False)
        self.up = nn.Linear(rank, embed_dim, bias=False)

    @property
    def matrix(self) -> Tensor:
        """The product of both factors (D, D)."""
        return self.up.weight @ self.down.weight

    def forward(self, hidden: Tensor) -> Tensor:
        """(..., D) to (..., D)."""
        out: Tensor = self.up(self.down(hidden))
        return out


class SquareMap(nn.Linear):
    """A learned map D -> D that begins as the identity, and the model with it as the plainly tied one."""

    def __init__(self, embed_dim: int):
        super().__init__(embed_dim, embed_dim, bias=False)

    @property
    def matrix(self) -> Tensor:
        return self.weight


class Rotation(nn.Module):
    """A fixed random orthogonal Q (D, D): a head with the matrix S then scores with W = S Q.

    Q is not saved with the weights: it follows from the seed.
    """

    matrix: Tensor

    def __init__(self, embed_dim: int):
        super().__init__()
        self.register_buffer("matrix", torch.empty(embed_dim, embed_dim), persistent=False)

    def draw(self, generator: torch.Generator) -> None:
        """Draw Q evenly over the orthogonal matrices: QR of a Gaussian, signs fixed (Mezzadri 2007)."""
        # In double precision, so that the rounded Q is the same on every machine.
        gaussian = torch.randn(self.matrix.shape, generator=generator, dtype=torch.float64)
        q, r = torch.linalg.qr(gaussian)
        self.matrix.copy_(q * r.diagonal().sign())

    def forward(self, hidden: Tensor) -> Tensor:
        """Q h for every h: (..., D) to (..., D)."""
        return F.linear(hidden, self.matrix)


class Transposed(nn.Module):
    """Maps (..., D) to (..., r) with the transpose of another module's matrix (D, r), which stays one.

    It is looked up at every use, as ``TiedHead`` does and for the same reason.
    """

    def __init__(self, linear: nn.Linear):
        super().__init__()
        object.__setattr__(self, "_linear", linear)

    @property
    def matrix(self) -> Tensor:
        weight: Tensor = self.__dict__["_linear"].weight
        return weight.T

    def forward(self, hidden: Tensor) -> Tensor:
        return F.linear(hidden, self.matrix)


def build_head_map(
    kind: str, embed_dim: int, rank: int | None, embed_rank: int | None, embed_up: nn.Linear | None
) -> nn.Module:
    """What the final hidden states pass before the head scores them.

    Args:
        kind: of ``HEAD_MAPS``; a permutation needs no map, since it is made where ids are looked up.
        rank: of a linear map; None: square.
        embed_rank: columns r of a factorised head's matrix.
        embed_up: maps looked-up vectors r -> D where a tied head is to use its transpose.

    Raises:
        ValueError: no such kind, a rank without a linear map, or a map and a factorisation.
    """
    if kind not in HEAD_MAPS:
        raise ValueError(f"head_map {kind} is not one of {', '.join(HEAD_MAPS)}")
    if rank is not None and kind != "linear":
        raise ValueError(f"head_map_rank {rank} needs a linear head_map, found {kind}")
    if embed_rank is not None:
        if kind != "none":
            raise ValueError(f"embed_rank {embed_rank} has a map of its own; it does not go with {kind}")
        return nn.Linear(embed_dim, embed_rank, bias=False) if embed_up is None else Transposed(embed_up)
    if kind == "linear":
        return SquareMap(embed_dim) if rank is None else LowRankMap(embed_dim, rank)
    return Rotation(embed_dim) if kind == "rotation" else nn.Identity()


def num_map_weights(module: nn.Module) -> int:
    """Entries of the matrices that a map multiplies a vector with, learned or fixed, its own or not."""
    if isinstance(module, Transposed):
        return module.matrix.numel()
    return sum(tensor.numel() for tensor in (*module.parameters(), *module.buffers()))
