"""What a model costs, by counting: parameters and floating-point operations.

B batch, T positions, D width, V vocabulary, L blocks.
"""

import hashlib
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from tielab.models.minigpt import MiniGPT
from tielab.models.sharding import whole


def parameter_ledger(model: MiniGPT) -> dict[str, int]:
    """Number of parameters by part, each counted once; the parts add up to ``total``.

    A tied head has no matrix of its own: its row is 0, or V with an output bias.
    """
    seen: set[int] = set()
    parts: dict[str, nn.Module] = {
        "token_embedding": model.token_embed,
        "position_embedding": model.position_embed,
        "blocks": model.blocks,
        "final_norm": model.final_norm,
        "head": model.lm_head,
    }
    ledger = {}
    for part, module in parts.items():
        fresh = [p for p in module.parameters() if id(p) not in seen]
        seen.update(id(p) for p in fresh)
        ledger[part] = sum(p.numel() for p in fresh)
    total = sum(p.numel() for p in model.parameters())
    assert sum(ledger.values()) == total, (ledger, total)
    return {**ledger, "total": total}


def flops_per_token(model: MiniGPT) -> dict[str, int]:
    """Floating-point operations per token, ``forward`` and ``train`` (forward and backward).

    Two per weight of every matrix product, and 4 L D T for the attention products over a full
    block of T = block_size. Equal in both arms: the head's product is computed either way, the
    lookup costs none. Training costs three times the forward pass (Kaplan et al. 2020, section 2.1).
    """
    vocab_size, embed_dim = model.token_embed.weight.shape
    matrices = sum(p.numel() for p in model.blocks.parameters() if p.dim() == 2) + vocab_size * embed_dim
    attention = 4 * len(model.blocks) * embed_dim * model.block_size
    forward = 2 * matrices + attention
    return {"forward": forward, "train": 3 * forward}


def tensors_hash(named: Iterable[tuple[str, Tensor]]) -> str:
    """16 hex digits over names, shapes and bits of tensors, in name order, gathered one by one."""
    digest = hashlib.sha256()
    for name, tensor in sorted(named, key=lambda item: item[0]):
        plain = whole(tensor.detach()).cpu().contiguous()
        digest.update(f"{name}:{tuple(plain.shape)}:{plain.dtype}".encode())
        digest.update(plain.flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]


def weights_hash(model: nn.Module) -> str:
    """Identity of a model's weights, bit for bit; of a sharded one every process must ask."""
    return tensors_hash(model.state_dict().items())


def body_hash(model: MiniGPT) -> str:
    """Identity of everything but token embedding and head: equal in two fairly paired arms."""
    ends = ("token_embed.", "lm_head.")
    return tensors_hash((n, p) for n, p in model.named_parameters() if not n.startswith(ends))
