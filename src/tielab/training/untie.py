"""A tied model that is split in the middle of its training: when, and what becomes of the optimizer.

Tying early and untying late is what several speedrun records do; the optimizer's state is copied, so that
both matrices go on as the shared one would have.
"""

from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from tielab.models.minigpt import MiniGPT
from tielab.models.tying import untie
from tielab.training.optim import check_partition, group_name

HEAD_NAME = "lm_head.weight"


def untie_step(untie_at: float | None, num_steps: int) -> int | None:
    """Number of optimizer steps with one matrix, or None if the model is never split.

    A share below 1 leaves at least the last step with two.
    """
    if untie_at is None or untie_at == 1:
        return None
    return min(round(untie_at * num_steps), num_steps - 1)


def split(model: MiniGPT, optimizer: Optimizer, config: dict[str, Any]) -> None:
    """Untie a model in training; the head gets the values and the optimizer state of the shared matrix.

    Args:
        config: the config group ``optimizer``.
    """
    shared = model.token_embed.weight
    untie(model)
    head = model.get_parameter(HEAD_NAME)
    group = group_name(HEAD_NAME, head, config)
    next(g for g in optimizer.param_groups if g["name"] == group)["params"].append(head)
    if shared in optimizer.state:  # before the first step there is none
        optimizer.state[head] = {key: _copy(value) for key, value in optimizer.state[shared].items()}
    check_partition(optimizer.param_groups, model)


def _copy(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value
