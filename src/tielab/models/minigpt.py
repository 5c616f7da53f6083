"""MiniGPT: a small GPT-2-shaped language model whose head may share the token embedding.

B batch, T positions, D width (embed_dim), V vocabulary (vocab_size), L blocks, r rank.
"""

import hashlib
import inspect
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from tielab.models.blocks import ACTIVATIONS, Block
from tielab.models.ends import LowRankMap, Rotation, SquareMap, build_head_map
from tielab.models.head import Head, UntiedHead
from tielab.models.tying import TiedHead


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
        head_map: what the final hidden states pass before the head's matrix W scores them: ``none``;
            ``linear``, a learned map (Press & Wolf 2017); or a fixed random one that keeps a tied
            matrix S from meaning the same at both ends: ``permutation`` of its rows, W = Pi S, or
            ``rotation`` of its columns, W = S Q.
        head_map_rank: r of a linear map D -> r -> D; None: D x D.
        head_map_penalty: of Press & Wolf's projection regularisation, see ``penalty``.
        embed_rank: r of matrices that are factorised into V x r and r x D at both ends (Lan et al.
            2020); None: whole. Of a tied model both factors are shared.
        embed_gradient_scale: multiplies the gradient that reaches the matrix through the lookup.
        embed_frozen: the token embedding is not trained.
        embed_init_std: of the entries of looked-up vectors; None: init_std.
        head_init_std: of the entries of an untied head's vectors; None: init_std.
        untie_at: share of the training after which a tied model is split; the training does it.
        activation: of the MLPs: ``gelu``, or ``gelu_tanh``, the approximation of GPT-2's own code.

    Raises:
        ValueError: embed_dim is not a multiple of num_heads, there is no such activation, or parts of a
            scheme exclude each other.
    """

    row_of_id: Tensor | None
    """(V,): the row in which an id is looked up; None: its own."""
    arguments: dict[str, Any]
    """What this model was built with, by name."""

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
        head_map: str = "none",
        head_map_rank: int | None = None,
        head_map_penalty: float = 0.0,
        embed_rank: int | None = None,
        embed_gradient_scale: float = 1.0,
        embed_frozen: bool = False,
        embed_init_std: float | None = None,
        head_init_std: float | None = None,
        untie_at: float | None = None,
        activation: str = "gelu",
    ):
        given = dict(locals())
        super().__init__()
        self.arguments = {name: given[name] for name in inspect.signature(MiniGPT).parameters}
        if embed_dim % num_heads:
            raise ValueError(
                f"embed_dim {embed_dim} cannot be split over {num_heads} heads; "
                f"choose a multiple of {num_heads}"
            )
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation {activation} is not one of {', '.join(ACTIVATIONS)}")
        if head_map_penalty and head_map != "linear":
            raise ValueError(f"head_map_penalty {head_map_penalty} needs a linear head_map, found {head_map}")
        self.vocab_size = vocab_size
        self.block_size = block_size
        self.dropout = dropout
        self.tied = tied
        self.embed_scale = embed_scale
        self.init_std = min(0.02, 2.56 / embed_dim) if init_std is None else init_std
        self.embed_init_std = self.init_std if embed_init_std is None else embed_init_std
        self.head_init_std = self.init_std if head_init_std is None else head_init_std
        self.head_map_penalty = head_map_penalty
        self.embed_gradient_scale = embed_gradient_scale
        self.untie_at = untie_at
        self.seed = seed

        num_columns = embed_dim if embed_rank is None else embed_rank
        self.token_embed = nn.Embedding(vocab_size, num_columns)
        self.token_embed.weight.requires_grad_(not embed_frozen)
        rows = torch.empty(vocab_size, dtype=torch.long) if head_map == "permutation" else None
        self.register_buffer("row_of_id", rows, persistent=False)
        embed_up = None if embed_rank is None else nn.Linear(embed_rank, embed_dim, bias=False)
        self.embed_up = embed_up or nn.Identity()
        self.position_embed = nn.Embedding(block_size, embed_dim)
        self.blocks = nn.ModuleList(
            Block(embed_dim, num_heads, hidden_dim, dropout, activation) for _ in range(num_layers)
        )
        self.final_norm = nn.LayerNorm(embed_dim)
        self.head_map = build_head_map(
            head_map, embed_dim, head_map_rank, embed_rank, embed_up if tied else None
        )
        # The tie is made here and nowhere else.
        self.lm_head: nn.Module = (
            TiedHead(self.token_embed, vocab_size, num_columns, bias=output_bias)
            if tied
            else UntiedHead(num_columns, vocab_size, bias=output_bias)
        )
        self._compiled: Callable[[nn.Module, Tensor], Tensor] | None = None
        self.reset_parameters()

    def compile_blocks(self) -> None:
        """Let training steps run blocks that ``torch.compile`` builds at the first of them.

        All blocks run one compiled function. No module is wrapped, so parameters keep their names.
        """
        self._compiled = torch.compile(_run, dynamic=False)

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw every weight anew from (seed, its own name).

        One shared generator would hand the untied head the numbers the tied model gives to its
        blocks, and the comparison would measure initialisation.
        """
        for name, parameter in self.named_parameters():
            if parameter.is_meta:
                continue
            if parameter.dim() == 1:
                is_norm_weight = "norm" in name and name.endswith("weight")
                parameter.fill_(1.0 if is_norm_weight else 0.0)
            else:
                generator = named_generator(self.seed, name)
                parameter.copy_(
                    self._std(name, parameter) * torch.randn(parameter.shape, generator=generator)
                )
        self._reset_maps()

    def _std(self, name: str, parameter: Tensor) -> float:
        """Standard deviation of a matrix at the start.

        The maps keep the scale of what they are given: hidden states of unit variance leave a low-rank
        map with unit variance, and the product of two factors has the entries' standard deviation of
        the V x D matrix it stands for. So the first loss stays near ln V.
        """
        if name == "token_embed.weight":
            return self.embed_init_std
        if name == "lm_head.weight":
            return self.head_init_std
        if name == "head_map.down.weight":
            return float(parameter.shape[1] ** -0.5)
        if name.startswith(("embed_up.", "head_map.")):
            return float(min(parameter.shape) ** -0.5)
        is_residual = name.endswith(("attention.out.weight", "mlp.down.weight"))
        return self.init_std / (2 * len(self.blocks)) ** 0.5 if is_residual else self.init_std

    def _reset_maps(self) -> None:
        if isinstance(self.head_map, SquareMap) and not self.head_map.weight.is_meta:
            nn.init.eye_(self.head_map.weight)
        if isinstance(self.head_map, Rotation) and not self.head_map.matrix.is_meta:
            self.head_map.draw(named_generator(self.seed, "head_map.matrix"))
        if self.row_of_id is not None and not self.row_of_id.is_meta:
            order = torch.randperm(self.vocab_size, generator=named_generator(self.seed, "row_of_id"))
            self.row_of_id.copy_(order)

    def hidden_states(self, input_ids: Tensor) -> Tensor:
        """Ids (B, T) to final normalised hidden states (B, T, D).

        Raises:
            ValueError: T exceeds block_size, or (on the CPU) an id is outside [0, V).
        """
        T = input_ids.shape[1]
        if self.block_size < T:
            raise ValueError(f"a sequence of {T} tokens exceeds block_size {self.block_size}")
        self._check_ids(input_ids)
        x = self.look_up(input_ids) * self.embed_scale + self.position_embed.weight[:T]
        x = F.dropout(x, self.dropout, self.training)
        run_block = self._compiled if self._compiled and self.training and torch.is_grad_enabled() else _run
        for block in self.blocks:
            x = run_block(block, x)
        out: Tensor = self.final_norm(x)
        return out

    def look_up(self, input_ids: Tensor) -> Tensor:
        """Ids (B, T) to their vectors (B, T, D).

        Of a permuted model the matrix stands in the head's order, and ids are looked up elsewhere: the
        same scheme as a head that permutes the rows, without moving V x D numbers at every step.
        """
        rows = input_ids if self.row_of_id is None else self.row_of_id[input_ids]
        vectors: Tensor = self.token_embed(rows)
        if self.embed_gradient_scale != 1 and vectors.requires_grad:
            vectors.register_hook(  # type: ignore[no-untyped-call]
                lambda gradient: gradient * self.embed_gradient_scale
            )
        out: Tensor = self.embed_up(vectors)
        return out

    def _check_ids(self, input_ids: Tensor) -> None:
        # On a GPU this would wait for the device at every step; the data module has checked the ids.
        if input_ids.device.type != "cpu" or torch.compiler.is_compiling():
            return
        low, high = (int(bound) for bound in torch.aminmax(input_ids))
        if low < 0 or high >= self.vocab_size:
            wrong = low if low < 0 else high
            raise ValueError(f"token id {wrong} is outside [0, vocab_size {self.vocab_size})")

    def logits(self, hidden: Tensor) -> Tensor:
        """Final hidden states (..., D) to logits (..., V)."""
        out: Tensor = self.lm_head(self.head_map(hidden))
        return out

    def forward(self, input_ids: Tensor, targets: Tensor | None = None, reduction: str = "mean") -> Tensor:
        """Ids (B, T) to logits (B, T, V); with targets (B, S <= T) to the cross entropy of the first S.

        Args:
            reduction: of the cross entropy: ``mean`` in nats per token, or ``none``, (B, S).
        """
        hidden = self.hidden_states(input_ids)
        if targets is None:
            return self.logits(hidden)
        hidden = self.head_map(hidden[:, : targets.shape[1]])
        split = isinstance(self.lm_head.weight, DTensor)  # by rows of V, over processes
        if split or not isinstance(self.lm_head, Head):
            logits: Tensor = self.lm_head(hidden)
            nats = F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), reduction=reduction)
            return nats if reduction == "mean" else nats.view_as(targets)
        loss: Tensor = self.lm_head(hidden, targets, reduction=reduction)
        return loss

    def token_nats(self, input_ids: Tensor, targets: Tensor) -> Tensor:
        """Negative log-likelihood of every target in nats: (B, T), (B, T) -> (B, T)."""
        nats: Tensor = self(input_ids, targets, "none")
        return nats

    def loss(self, input_ids: Tensor, targets: Tensor | None = None) -> Tensor:
        """Token-mean cross entropy in nats; without targets, of each next id within input_ids."""
        loss: Tensor = self(input_ids, input_ids[:, 1:] if targets is None else targets)
        return loss

    def penalty(self) -> Tensor | None:
        """lambda ||A||, the Frobenius norm of the learned head map (Press & Wolf 2017).

        None without one or with lambda = 0. It is a part of what is trained on, never of a loss that is
        reported. This is the form of the paper, beside a mean over tokens; the authors' code has the squared
        norm beside a sum over unrolled steps, and there the same lambda weighs less.
        """
        if not self.head_map_penalty:
            return None
        assert isinstance(self.head_map, SquareMap | LowRankMap)
        norm: Tensor = torch.linalg.matrix_norm(self.head_map.matrix)
        return self.head_map_penalty * norm

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
            logits = self.logits(hidden[:, -1:])[:, 0].float()  # (B, V)
            if greedy:
                next_ids = logits.argmax(dim=-1, keepdim=True)
            else:
                probabilities = next_token_probabilities(logits, temperature, top_k, top_p)
                next_ids = torch.multinomial(probabilities, 1, generator=generator)
            input_ids = torch.cat([input_ids, next_ids], dim=1)
        return input_ids


def _run(block: nn.Module, x: Tensor) -> Tensor:
    out: Tensor = block(x)
    return out


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
