"""What a model costs, by counting: parameters and floating-point operations.

B batch, T positions, D width, V vocabulary, L blocks.
"""

import hashlib
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from tielab.models.ends import num_map_weights
from tielab.models.minigpt import MiniGPT
from tielab.models.sharding import whole
from tielab.models.tying import is_tied


def parameter_ledger(model: MiniGPT) -> dict[str, int]:
    """Number of parameters by part, each counted once; the parts add up to ``total``.

    A tied head has no matrix of its own: its row is 0, or V with an output bias. Maps belong to their
    end: ``embed_up`` to the token embedding, ``head_map`` to the head, whose transposed or fixed one
    counts nothing. A frozen embedding is counted like a trained one. A model that the training will
    split (``untie_at`` below 1) is counted as it is at the end: with both matrices.
    """
    seen: set[int] = set()
    parts: dict[str, tuple[nn.Module, ...]] = {
        "token_embedding": (model.token_embed, model.embed_up),
        "position_embedding": (model.position_embed,),
        "blocks": (model.blocks,),
        "final_norm": (model.final_norm,),
        "head": (model.head_map, model.lm_head),
    }
    ledger = {}
    for part, modules in parts.items():
        fresh = [p for module in modules for p in module.parameters() if id(p) not in seen]
        seen.update(id(p) for p in fresh)
        ledger[part] = sum(p.numel() for p in fresh)
    total = sum(p.numel() for p in model.parameters())
    assert sum(ledger.values()) == total, (ledger, total)
    if model.untie_at is not None and model.untie_at < 1 and is_tied(model):
        ledger["head"] += model.token_embed.weight.numel()
    return {**ledger, "total": sum(ledger.values())}


def flops_per_token(model: MiniGPT) -> dict[str, int]:
    """Floating-point operations per token, ``forward`` and ``train`` (forward and backward).

    Two per weight of every matrix product, those of the ends' maps included, and 4 L D T for the
    attention products over a full block of T = block_size. Equal in a tied and an untied arm: the head's
    product is computed either way, the lookup costs none. Training costs three times the forward pass
    (Kaplan et al. 2020, section 2.1).
    """
    embed_dim = model.position_embed.embedding_dim
    ends = (
        model.token_embed.weight.numel() + num_map_weights(model.embed_up) + num_map_weights(model.head_map)
    )
    matrices = sum(p.numel() for p in model.blocks.parameters() if p.dim() == 2) + ends
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
    """Identity of everything but the two ends: equal in two fairly paired arms of whatever schemes."""
    ends = ("token_embed.", "embed_up.", "head_map.", "lm_head.")
    return tensors_hash((n, p) for n, p in model.named_parameters() if not n.startswith(ends))
