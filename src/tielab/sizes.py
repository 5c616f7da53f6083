"""What a model of a config costs, counted without building it. Imports no torch.

The same numbers as ``models.accounting`` counts on built models. D width, H hidden width, L blocks,
T positions, V vocabulary, r rank.
"""

from typing import Any


def count_parameters(model: dict[str, Any], vocab_size: int) -> int:
    """Unique parameters of the model that a ``model`` config describes.

    One that is untied on the way (``untie_at`` below 1) has both matrices, as at its end.

    Args:
        vocab_size: V; the config's own may be null.
    """
    D, H, L = model["embed_dim"], model["hidden_dim"], model["num_layers"]
    block = 4 * D * D + 2 * D * H + 9 * D + H  # four attention maps, two of the MLP, biases, two norms
    split_at = model.get("untie_at")
    is_one = model["tied"] and (split_at is None or split_at >= 1)
    ends = (1 if is_one else 2) * (_table(model, vocab_size) + _factor(model)) + _learned_map(model)
    bias = vocab_size if model["output_bias"] else 0
    return int(ends + bias + model["block_size"] * D + L * block + 2 * D)


def train_flops_per_token(model: dict[str, Any], vocab_size: int) -> int:
    """Floating-point operations of one training token, forward and backward.

    Two per weight of every matrix product, those of fixed maps and of both ends' factors included, and
    4 L D T for the attention products, times three for the backward pass (Kaplan et al. 2020, section 2.1).
    """
    D, H, L, T = (model[name] for name in ("embed_dim", "hidden_dim", "num_layers", "block_size"))
    rotation = D * D if model.get("head_map") == "rotation" else 0
    ends = _table(model, vocab_size) + 2 * _factor(model) + _learned_map(model) + rotation
    matrices = L * (4 * D * D + 2 * D * H) + ends
    return int(3 * (2 * matrices + 4 * L * D * T))


def initial_std(model: dict[str, Any]) -> float:
    """Standard deviation of the weights at the start: ``init_std``; null: min(0.02, 2.56 / D)."""
    std = model["init_std"]
    return float(min(0.02, 2.56 / model["embed_dim"]) if std is None else std)


def _table(model: dict[str, Any], vocab_size: int) -> int:
    """Weights of the matrix with a row for each id: V x D, or V x r."""
    rank = model.get("embed_rank")
    return int(vocab_size * (model["embed_dim"] if rank is None else rank))


def _factor(model: dict[str, Any]) -> int:
    """Weights of one end's second factor, r x D; both ends multiply with one, shared or not."""
    return int((model.get("embed_rank") or 0) * model["embed_dim"])


def _learned_map(model: dict[str, Any]) -> int:
    """Weights of a learned map before the head's matrix: D x D, or D x r and r x D."""
    if model.get("head_map", "none") != "linear":
        return 0
    D, rank = model["embed_dim"], model.get("head_map_rank")
    return int(D * D if rank is None else 2 * D * rank)
