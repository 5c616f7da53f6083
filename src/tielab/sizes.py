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
    num_ends = 1 if model["tied"] else 2
    bias = vocab_size if model["output_bias"] else 0
    ends = num_ends * _end(model, vocab_size) + _head_map(model) + bias
    return int(ends + model["block_size"] * D + L * block + 2 * D)


def train_flops_per_token(model: dict[str, Any], vocab_size: int) -> int:
    """Floating-point operations of one training token, forward and backward.

    Two per weight of every matrix product and 4 L D T for the attention products, times three for the
    backward pass (Kaplan et al. 2020, section 2.1).
    """
    D, H, L, T = (model[name] for name in ("embed_dim", "hidden_dim", "num_layers", "block_size"))
    matrices = L * (4 * D * D + 2 * D * H) + _end(model, vocab_size) + _head_map(model)
    return int(3 * (2 * matrices + 4 * L * D * T))


def _end(model: dict[str, Any], vocab_size: int) -> int:
    """Weights of one end: V x D, or V x r and r x D."""
    D, rank = model["embed_dim"], model.get("embed_rank")
    return int(vocab_size * D if rank is None else vocab_size * rank + rank * D)


def _head_map(model: dict[str, Any]) -> int:
    """Weights of a learned map before the head's matrix: D x D, or D x r and r x D."""
    if model.get("head_map", "none") != "linear":
        return 0
    D, rank = model["embed_dim"], model.get("head_map_rank")
    return int(D * D if rank is None else 2 * D * rank)
