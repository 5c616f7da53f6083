"""AdamW over a partition of the parameters, and the learning-rate schedule."""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm
from torch.optim import AdamW, Optimizer

from tielab.models.sharding import whole

END_MODULES = ("token_embed", "embed_up", "position_embed", "head_map", "lm_head")
RATE_SCALES = {"token_embed": "embedding_learning_rate_scale", "lm_head": "head_learning_rate_scale"}


def group_name(name: str, parameter: Tensor, config: dict[str, Any]) -> str:
    """The group that a parameter of the model belongs to, by its name and shape.

    A matrix of an end, the maps among them, is an embedding; the two with V rows have a group of
    their own where their learning rate is another.
    """
    module = name.partition(".")[0]
    if parameter.dim() < 2:
        return "vectors"
    if module in RATE_SCALES and config[RATE_SCALES[module]] != 1:
        return module
    return "embeddings" if module in END_MODULES else "matrices"


def parameter_groups(model: nn.Module, config: dict[str, Any]) -> list[dict[str, Any]]:
    """Groups that hold every trained parameter exactly once: blocks' matrices, embeddings and head, the rest.

    Vectors (biases, norms) have no weight decay. A shared matrix appears once, as an embedding. A fourth
    or fifth group holds the token embedding or the head at another learning rate; that of the head is
    there, and empty, also for a tied model, which may get a head of its own later.

    Args:
        config: the config group ``optimizer``.
    """
    rates = {
        module: config["learning_rate"] * config[key]
        for module, key in RATE_SCALES.items()
        if config[key] != 1
    }
    decays = {"matrices": config["weight_decay"], "vectors": 0.0}
    groups: dict[str, dict[str, Any]] = {
        name: {"name": name, "params": [], "weight_decay": decays.get(name, config["embedding_weight_decay"])}
        for name in ("matrices", "embeddings", "vectors", *rates)
    }
    for module, rate in rates.items():
        groups[module]["lr"] = rate
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            groups[group_name(name, parameter, config)]["params"].append(parameter)
    check_partition(list(groups.values()), model)
    return list(groups.values())


def check_partition(groups: list[dict[str, Any]], model: nn.Module) -> None:
    """Raise ValueError unless the groups hold each trained parameter of the model exactly once."""
    grouped = [id(p) for group in groups for p in group["params"]]
    if len(grouped) != len(set(grouped)):
        raise ValueError("a parameter stands in the optimizer twice")
    if set(grouped) != {id(p) for p in model.parameters() if p.requires_grad}:
        raise ValueError("the optimizer's groups do not hold exactly the model's parameters")


def build_optimizer(model: nn.Module, config: dict[str, Any]) -> Optimizer:
    """AdamW (Loshchilov & Hutter 2019) with the keys of OptimizerConfig."""
    return AdamW(
        parameter_groups(model, config),
        lr=config["learning_rate"],
        betas=(config["beta1"], config["beta2"]),
        eps=config["epsilon"],
        fused=config["fused"],
    )


def number_by_model(state: dict[str, Any], optimizer: Optimizer, model: nn.Module) -> dict[str, Any]:
    """An optimizer's state dict with its parameters numbered as the model lists them.

    Torch numbers them as the groups list them and does not look at the numbers when it loads; the
    numbers of a sharded optimizer are the model's, and there they are looked at.
    """
    place = {id(parameter): number for number, parameter in enumerate(model.parameters())}
    listed = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    numbers = [place[id(parameter)] for parameter in listed]
    groups = [{**group, "params": [numbers[i] for i in group["params"]]} for group in state["param_groups"]]
    return {"state": {numbers[i]: kept for i, kept in state["state"].items()}, "param_groups": groups}


def clip_gradients(parameters: Iterable[nn.Parameter], limit: float) -> Tensor:
    """Scale all gradients so that their global norm is at most limit; returns the norm before.

    The norm is over all parts of all gradients, on however many processes; each must call this.
    """
    by_mesh: dict[Any, list[nn.Parameter]] = {}  # torch combines no tensors that lie on different ones
    for parameter in parameters:
        if parameter.grad is not None:
            by_mesh.setdefault(getattr(parameter, "device_mesh", None), []).append(parameter)
    norms = [
        whole(get_total_norm([p.grad for p in parts if p.grad is not None])) for parts in by_mesh.values()
    ]
    norm = norms[0] if len(norms) == 1 else torch.linalg.vector_norm(torch.stack(norms))
    for parts in by_mesh.values():
        clip_grads_with_norm_(parts, limit, norm)
    return norm


def learning_rate_factor(step: int, num_steps: int, warmup_fraction: float, final_fraction: float) -> float:
    """Share of the peak learning rate at optimizer step 0 <= step < num_steps.

    Linear warm-up that reaches 1 at its last step, then a cosine that ends at final_fraction.
    """
    num_warmup = math.ceil(warmup_fraction * num_steps)
    if step < num_warmup:
        return (step + 1) / num_warmup
    progress = (step - num_warmup) / max(1, num_steps - 1 - num_warmup)
    return final_fraction + (1 - final_fraction) * 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))


def build_schedule(
    optimizer: Optimizer, num_steps: int, config: dict[str, Any]
) -> torch.optim.lr_scheduler.LambdaLR:
    """The schedule as a scheduler that is stepped once per optimizer step."""
    return torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda step: learning_rate_factor(
            step, num_steps, config["warmup_fraction"], config["final_fraction"]
        ),
    )
