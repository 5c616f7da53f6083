"""What a model of a config costs, counted without building it. Imports no torch.

The same numbers as ``models.accounting`` counts on built models. D width, H hidden width, L blocks,
T positions, V vocabulary, r rank.
"""

from typing import Any


def count_parameters(model: dict[str, Any], vocab_size: int) -> int:
    """Unique parameters of the model that a ``model`` config describes.

    Args:
        vocab_size: V; the config's own may be null.
    """
    D, H, L = model["embed_dim"], model["hidden_dim"], model["num_layers"]
    block = 4 * D * D + 2 * D * H + 9 * D + H  # four attention maps, two of the MLP, biases, two norms
    table, rank = _table(model, vocab_size), model["embed_rank"]
    end = table if rank is None else table + rank * D
    ends = end * (1 if model["tied"] else 2) + (vocab_size if model["output_bias"] else 0)
    learned = _head_map(model) if model["head_map"] == "linear" else 0
    return int(ends + learned + model["block_size"] * D + L * block + 2 * D)


def train_flops_per_token(model: dict[str, Any], vocab_size: int) -> int:
    """Floating-point operations of one training token, forward and backward.

    Two per weight of every matrix product, fixed maps included, and 4 L D T for the attention products,
    times three for the backward pass (Kaplan et al. 2020, section 2.1).
    """
    D, H, L, T = (model[name] for name in ("embed_dim", "hidden_dim", "num_layers", "block_size"))
    factors = 2 * D * (model["embed_rank"] or 0)  # r x D after the lookup, D x r before the head
    matrices = L * (4 * D * D + 2 * D * H) + _table(model, vocab_size) + factors + _head_map(model)
    return int(3 * (2 * matrices + 4 * L * D * T))


def _table(model: dict[str, Any], vocab_size: int) -> int:
    """Entries of a matrix with a row for every id: V x D, or V x r of a factorised one."""
    rank = model["embed_rank"]
    return int(vocab_size * (model["embed_dim"] if rank is None else rank))


def _head_map(model: dict[str, Any]) -> int:
    """Entries of a map before the head's matrix: D x D, or D x r and r x D; a permutation costs none."""
    D, rank = model["embed_dim"], model["head_map_rank"]
    if model["head_map"] not in ("linear", "rotation"):
        return 0
    return int(D * D if rank is None else 2 * D * rank)
