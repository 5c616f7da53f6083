"""Parameter groups are a partition; the schedule has the stated shape."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tielab.models.minigpt import MiniGPT
from tielab.training.optim import (
    build_optimizer,
    build_schedule,
    check_partition,
    learning_rate_factor,
    parameter_groups,
)

ADAMW = {
    "learning_rate": 1e-3, "beta1": 0.9, "beta2": 0.95, "epsilon": 1e-8, "weight_decay": 0.1,
    "embedding_weight_decay": 0.02, "fused": True, "embedding_learning_rate_scale": 1.0,
    "head_learning_rate_scale": 1.0,
}  # fmt: skip


def model(**changes):
    return MiniGPT(
        **{"vocab_size": 64, "block_size": 8, "embed_dim": 32, "num_layers": 2, "hidden_dim": 64} | changes
    )


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("output_bias", [True, False])
def test_groups_are_a_partition(tied, output_bias):
    m = model(tied=tied, output_bias=output_bias)
    groups = {g["name"]: g for g in parameter_groups(m, ADAMW)}
    grouped = [id(p) for g in groups.values() for p in g["params"]]
    assert sorted(grouped) == sorted(id(p) for p in m.parameters())
    embeddings = {id(p) for p in groups["embeddings"]["params"]}
    assert embeddings == {id(m.token_embed.weight), id(m.position_embed.weight), id(m.lm_head.weight)}
    assert [g["weight_decay"] for g in groups.values()] == [0.1, 0.02, 0.0]
    assert all(p.dim() == 1 for p in groups["vectors"]["params"])


def test_a_duplicate_or_a_forgotten_parameter_is_refused():
    m = model()
    groups = parameter_groups(m, ADAMW)
    groups[0]["params"].append(m.token_embed.weight)
    with pytest.raises(ValueError, match="twice"):
        check_partition(groups, m)
    groups[0]["params"] = groups[0]["params"][:-2]
    with pytest.raises(ValueError, match="exactly"):
        check_partition(groups, m)


def test_decay_of_the_embedding_is_the_stated_key():
    m = model(tied=True)
    before = m.token_embed.weight.detach().clone()
    optimizer = build_optimizer(m, ADAMW)
    for p in m.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()
    torch.testing.assert_close(m.token_embed.weight, before * (1 - 1e-3 * 0.02))


@given(num_steps=st.integers(1, 400), warmup=st.floats(0, 0.9), final=st.floats(0, 1))
@settings(max_examples=80)
def test_schedule(num_steps, warmup, final):
    factors = [learning_rate_factor(s, num_steps, warmup, final) for s in range(num_steps)]
    num_warmup = math.ceil(warmup * num_steps)
    assert all(0 < f <= 1 + 1e-12 or final == 0 for f in factors)
    rising, falling = factors[:num_warmup], factors[num_warmup:]
    assert rising == sorted(rising)
    assert falling == sorted(falling, reverse=True)
    if rising:
        assert rising[-1] == pytest.approx(1)
    if len(falling) > 1:
        assert falling[0] == pytest.approx(1)
        assert falling[-1] == pytest.approx(final)


def test_scheduler_sets_the_first_rate_before_the_first_step():
    optimizer = build_optimizer(model(), ADAMW)
    build_schedule(optimizer, 100, {"warmup_fraction": 0.1, "final_fraction": 0.1})
    assert {g["lr"] for g in optimizer.param_groups} == {1e-4}
