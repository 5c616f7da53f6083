"""MiniGPT: a small GPT-2-shaped language model whose head may share the token embedding.

B batch, T positions, D width (embed_dim), V vocabulary (vocab_size), L blocks, H heads.
"""

import hashlib

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tielab.models.tying import TiedHead


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
    """Two linear maps with a GELU between them, position by position."""

    def __init__(self, embed_dim: int, hidden_dim: int, dropout: float):
        super().__init__()
        self.dropout = dropout
        self.up = nn.Linear(embed_dim, hidden_dim)
        self.down = nn.Linear(hidden_dim, embed_dim)

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(self.down(F.gelu(self.up(x))), self.dropout, self.training)


class Block(nn.Module):
    """A pre-LayerNorm transformer block (B, T, D) -> (B, T, D)."""

    def __init__(self, embed_dim: int, num_heads: int, hidden_dim: int, dropout: float):
        super().__init__()
        self.norm1 = nn.LayerNorm(embed_dim)
        self.attention = Attention(embed_dim, num_heads, dropout)
        self.norm2 = nn.LayerNorm(embed_dim)
        self.mlp = MLP(embed_dim, hidden_dim, dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        out: Tensor = x + self.mlp(self.norm2(x))
        return out


class MiniGPT(nn.Module):
    """A GPT-2-shaped decoder (Radford et al. 2019) with a tied or an untied LM head.

    Args:
        vocab_size: V.
        block_size: longest sequence T.
        embed_dim: D, a multiple of num_heads.
        num_layers: L.
        num_heads: H.
        hidden_dim: width of the MLPs.
        dropout: on embeddings, attention weights and both branches of a block.
        tied: score with the token embedding itself (Press & Wolf 2017) instead of a second matrix.
        output_bias: add V biases to the logits.
        embed_scale: looked-up token vectors are multiplied by it (Gemma's and T5's input scale).
        init_std: of every matrix; None: min(0.02, 2.56 / D). GPT-2's 0.02 lets a wide tied model
            predict its own input: the logit of the current token grows like init_std * D.
        seed: of the initial weights.

    Raises:
        ValueError: embed_dim is not a multiple of num_heads.
    """

    def __init__(
        self,
        vocab_size: int,
        block_size: int,
        embed_dim: int = 128,
        num_layers: int = 4,
        num_heads: int = 4,
        hidden_dim: int = 512,
        dropout: float = 0.0,
        tied: bool = True,
        *,
        output_bias: bool = False,
        embed_scale: float = 1.0,
        init_std: float | None = None,
        seed: int = 0,
    ):
        super().__init__()
        if embed_dim % num_heads:
            raise ValueError(
                f"embed_dim {embed_dim} cannot be split over {num_heads} heads; "
                f"choose a multiple of {num_heads}"
            )
        self.vocab_size = vocab_size
        self.block_size = block_size
        self.dropout = dropout
        self.tied = tied
        self.embed_scale = embed_scale
        self.init_std = min(0.02, 2.56 / embed_dim) if init_std is None else init_std
        self.seed = seed

        self.token_embed = nn.Embedding(vocab_size, embed_dim)
        self.position_embed = nn.Embedding(block_size, embed_dim)
        self.blocks = nn.ModuleList(
            Block(embed_dim, num_heads, hidden_dim, dropout) for _ in range(num_layers)
        )
        self.final_norm = nn.LayerNorm(embed_dim)
        # The tie is made here and nowhere else.
        self.lm_head: nn.Module = (
            TiedHead(self.token_embed, vocab_size, embed_dim, bias=output_bias)
            if tied
            else nn.Linear(embed_dim, vocab_size, bias=output_bias)
        )
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw every weight anew from (seed, its own name).

        One shared generator would hand the untied head the numbers the tied model gives to its
        blocks, and the comparison would measure initialisation.
        """
        residual_std = self.init_std / (2 * len(self.blocks)) ** 0.5
        for name, parameter in self.named_parameters():
            if parameter.is_meta:
                continue
            if parameter.dim() == 1:
                is_norm_weight = "norm" in name and name.endswith("weight")
                parameter.fill_(1.0 if is_norm_weight else 0.0)
            else:
                is_residual = name.endswith(("attention.out.weight", "mlp.down.weight"))
                std = residual_std if is_residual else self.init_std
                parameter.copy_(
                    std * torch.randn(parameter.shape, generator=named_generator(self.seed, name))
                )

    def hidden_states(self, input_ids: Tensor) -> Tensor:
        """Ids (B, T) to final normalised hidden states (B, T, D).

        Raises:
            ValueError: T exceeds block_size, or (on the CPU) an id is outside [0, V).
        """
        T = input_ids.shape[1]
        if self.block_size < T:
            raise ValueError(f"a sequence of {T} tokens exceeds block_size {self.block_size}")
        self._check_ids(input_ids)
        x = self.token_embed(input_ids) * self.embed_scale + self.position_embed.weight[:T]
        x = F.dropout(x, self.dropout, self.training)
        for block in self.blocks:
            x = block(x)
        out: Tensor = self.final_norm(x)
        return out

    def _check_ids(self, input_ids: Tensor) -> None:
        # On a GPU this would wait for the device at every step; the data module has checked the ids.
        if input_ids.device.type != "cpu" or torch.compiler.is_compiling():
            return
        low, high = (int(bound) for bound in torch.aminmax(input_ids))
        if low < 0 or high >= self.vocab_size:
            wrong = low if low < 0 else high
            raise ValueError(f"token id {wrong} is outside [0, vocab_size {self.vocab_size})")

    def forward(self, input_ids: Tensor) -> Tensor:
        """Ids (B, T) to logits (B, T, V)."""
        logits: Tensor = self.lm_head(self.hidden_states(input_ids))
        return logits

    def token_nats(self, input_ids: Tensor, targets: Tensor) -> Tensor:
        """Negative log-likelihood of every target in nats: (B, T), (B, T) -> (B, T) float32."""
        logits = self(input_ids).float()
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none").view_as(targets)

    def loss(self, input_ids: Tensor, targets: Tensor | None = None) -> Tensor:
        """Token-mean cross entropy in nats; without targets, of each next id within input_ids."""
        logits = self(input_ids)
        if targets is None:
            logits, targets = logits[:, :-1], input_ids[:, 1:]
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())

    @torch.no_grad()
    def generate(
        self,
        input_ids: Tensor,
        num_tokens: int,
        *,
        greedy: bool = False,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Continue (B, T) ids by num_tokens: (B, T + num_tokens).

        The head scores the last position only. The model sees the last block_size ids.
        """
        for _ in range(num_tokens):
            hidden = self.hidden_states(input_ids[:, -self.block_size :])
            logits = self.lm_head(hidden[:, -1:])[:, 0].float()  # (B, V)
            if greedy:
                next_ids = logits.argmax(dim=-1, keepdim=True)
            else:
                probabilities = next_token_probabilities(logits, temperature, top_k, top_p)
                next_ids = torch.multinomial(probabilities, 1, generator=generator)
            input_ids = torch.cat([input_ids, next_ids], dim=1)
        return input_ids


def next_token_probabilities(
    logits: Tensor, temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None
) -> Tensor:
    """Logits (B, V) to sampling probabilities (B, V).

    Args:
        temperature: greater than 0; divides the logits.
        top_k: keep the k most likely ids.
        top_p: keep the fewest ids whose probabilities sum to at least p (Holtzman et al. 2020).

    Raises:
        ValueError: temperature <= 0, top_k < 1, or top_p outside (0, 1].
    """
    if temperature <= 0:
        raise ValueError(
            f"temperature {temperature} must be greater than 0; for the most likely id use greedy"
        )
    if top_k is not None and top_k < 1:
        raise ValueError(f"top_k {top_k} must be at least 1")
    if top_p is not None and not 0 < top_p <= 1:
        raise ValueError(f"top_p {top_p} must lie in (0, 1]")
    logits = logits / temperature
    if top_k is not None and top_k < logits.shape[-1]:
        # By position, not by value: ties at the k-th logit must not let more than k through.
        kept = torch.zeros_like(logits, dtype=torch.bool).scatter_(-1, logits.topk(top_k).indices, True)
        logits = logits.masked_fill(~kept, float("-inf"))
    if top_p is not None:
        ordered, order = logits.softmax(dim=-1).sort(dim=-1, descending=True, stable=True)
        before = ordered.cumsum(dim=-1) - ordered
        dropped = torch.zeros_like(logits, dtype=torch.bool).scatter_(-1, order, before >= top_p)
        logits = logits.masked_fill(dropped, float("-inf"))
    return logits.softmax(dim=-1)


def named_generator(seed: int, name: str) -> torch.Generator:
    """A CPU generator that depends on the seed and the name alone."""
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)
