"""The transformer block of GPT-2 (Radford et al. 2019).

B batch, T positions, D width (embed_dim), H heads.
"""

import torch.nn.functional as F
from torch import Tensor, nn

ACTIVATIONS = {"gelu": "none", "gelu_tanh": "tanh"}
"""Each with torch's word for how it is approximated."""


class Attention(nn.Module):
    """Causal self-attention over (B, T, D)."""

    def __init__(self, embed_dim: int, num_heads: int, dropout: float):
        super().__init__()
        self.num_heads = num_heads
        self.dropout = dropout
        self.query_key_value = nn.Linear(embed_dim, 3 * embed_dim)
        self.out = nn.Linear(embed_dim, embed_dim)

    def forward(self, x: Tensor) -> Tensor:
        B, T, D = x.shape
        qkv = self.query_key_value(x).view(B, T, 3, self.num_heads, D // self.num_heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)  # each (B, H, T, D / H)
        dropout = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(query, key, value, dropout_p=dropout, is_causal=True)
        out: Tensor = self.out(mixed.transpose(1, 2).reshape(B, T, D))
        return F.dropout(out, self.dropout, self.training)


class MLP(nn.Module):
    """Two linear maps with a GELU between them, position by position.

    Args:
        activation: of ``ACTIVATIONS``; ``gelu_tanh`` is GPT-2's approximation.
    """

    def __init__(self, embed_dim: int, hidden_dim: int, dropout: float, activation: str = "gelu"):
        super().__init__()
        self.dropout = dropout
        self.approximate = ACTIVATIONS[activation]
        self.up = nn.Linear(embed_dim, hidden_dim)
        self.down = nn.Linear(hidden_dim, embed_dim)

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(
            self.down(F.gelu(self.up(x), approximate=self.approximate)), self.dropout, self.training
        )


class Block(nn.Module):
    """A pre-LayerNorm transformer block (B, T, D) -> (B, T, D)."""

    def __init__(
        self, embed_dim: int, num_heads: int, hidden_dim: int, dropout: float, activation: str = "gelu"
    ):
        super().__init__()
        self.norm1 = nn.LayerNorm(embed_dim)
        self.attention = Attention(embed_dim, num_heads, dropout)
        self.norm2 = nn.LayerNorm(embed_dim)
        self.mlp = MLP(embed_dim, hidden_dim, dropout, activation)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        out: Tensor = x + self.mlp(self.norm2(x))
        return out
