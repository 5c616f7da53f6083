"""Two real processes that hold one model: the tie, every row of the vocabulary, the global norm."""

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from ranks import in_ranks
from tielab.models.accounting import weights_hash
from tielab.models.minigpt import MiniGPT
from tielab.models.sharding import is_sharded, shard, whole
from tielab.models.tying import tie_problem
from tielab.training.optim import build_optimizer, clip_gradients

pytestmark = pytest.mark.distributed

OPTIMIZER = {
    "learning_rate": 1e-2, "beta1": 0.9, "beta2": 0.95, "epsilon": 1e-8, "weight_decay": 0.1,
    "embedding_weight_decay": 0.0, "fused": True, "embedding_learning_rate_scale": 1.0,
    "head_learning_rate_scale": 1.0,
}  # fmt: skip
CASES = [(vocab_size, tied, parts) for vocab_size in (7, 61) for tied in (True, False) for parts in (1, 2)]
"""Vocabularies that two processes cannot share evenly, arms, tensor-parallel sizes."""


def model(vocab_size, tied):
    return MiniGPT(vocab_size, 8, 32, 1, 4, 32, tied=tied, output_bias=True)


def mesh(tensor_parallel_size):
    shape = (torch.distributed.get_world_size() // tensor_parallel_size, tensor_parallel_size)
    return init_device_mesh("cpu", shape, mesh_dim_names=("data_parallel", "tensor_parallel"))


def sequences(vocab_size):
    """Input ids (8, 8) in which every token occurs."""
    return (torch.arange(64) * 5 % vocab_size).view(8, 8)


def one_step(m, input_ids):
    """Global gradient norm before and after clipping, and all weights after a step."""
    optimizer = build_optimizer(m, OPTIMIZER)
    m.loss(input_ids).backward()
    before = clip_gradients(m.parameters(), 0.1)
    after = torch.linalg.vector_norm(torch.cat([whole(p.grad).flatten() for p in m.parameters()]))
    optimizer.step()
    weights = {name: whole(p).detach().clone() for name, p in m.named_parameters()}
    return (float(before), float(after)), weights


def sharded_steps(cases):
    """Of every case: what holds before the step, its norms, the weights after it."""
    found = []
    for vocab_size, tied, parts in cases:
        m, groups = model(vocab_size, tied), mesh(parts)
        unsharded = weights_hash(m)
        shard(m, groups)
        held = (
            is_sharded(m)
            and weights_hash(m) == unsharded
            and (m.lm_head.weight is m.token_embed.weight) == tied
        )
        data_parallel = groups["data_parallel"]
        mine = sequences(vocab_size).chunk(data_parallel.size())[data_parallel.get_local_rank()]
        found.append((held, tie_problem(m, tied), *one_step(m, mine)))
    return found


def test_a_sharded_step_is_that_of_one_process():
    for found in in_ranks(sharded_steps, CASES):
        for (vocab_size, tied, _), (held, problem, norms, weights) in zip(CASES, found, strict=True):
            assert held
            assert problem is None
            reference = model(vocab_size, tied)
            before = reference.token_embed.weight.detach().clone()
            expected_norms, expected = one_step(reference, sequences(vocab_size))
            assert norms == pytest.approx(expected_norms, rel=1e-5)
            assert norms[0] > 0.11
            assert norms[1] == pytest.approx(0.1, rel=1e-4)
            assert weights.keys() == expected.keys()
            for name, tensor in expected.items():
                # Where a gradient is all but zero, Adam's first step is a matter of rounding.
                assert ((weights[name] - tensor).abs() < 1e-5).float().mean() > 0.9, name
            changed = (weights["token_embed.weight"] != before).any(dim=1)
            used = sequences(vocab_size)[:, :-1].unique()
            assert changed[used].all()
            assert changed.sum() == (vocab_size if tied else len(used))  # a head changes every row


class OrdinaryTie(MiniGPT):
    """Tied as most models are: a Linear that registers the embedding's parameter a second time."""

    def __init__(self, *arguments, **settings):
        super().__init__(*arguments, **settings)
        self.lm_head = nn.Linear(self.token_embed.embedding_dim, self.vocab_size, bias=False)
        self.lm_head.weight = self.token_embed.weight


def split_ordinary_tie():
    m = OrdinaryTie(64, 8, 32, 1)
    before = tie_problem(m, True)
    plan = {"token_embed": RowwiseParallel(), "lm_head": ColwiseParallel()}
    parallelize_module(m, mesh(2)["tensor_parallel"], plan)
    return before, m.lm_head.weight is m.token_embed.weight, tie_problem(m, True)


def test_torch_unties_an_ordinary_tie_that_it_splits():
    """Why TiedHead has no parameter; the test above shows that ours holds."""
    for before, is_tied, problem in in_ranks(split_ordinary_tie):
        assert before is None
        assert not is_tied
        assert "lm_head.weight and token_embed.weight are two parameters" in problem


def shard_apart(kind, tied):
    m = kind(61, 8, 32, 1, tied=tied)
    for module in (m.token_embed, m.lm_head, *m.blocks, m):
        fully_shard(module)
    return tie_problem(m, tied)


@pytest.mark.parametrize("kind", [MiniGPT, OrdinaryTie])
def test_separate_shard_groups_are_refused_before_any_step(kind):
    for problem in in_ranks(shard_apart, kind, True):
        assert "model.tied=true, but lm_head.weight and token_embed.weight" in problem


def test_an_untied_model_may_be_sharded_apart():
    assert in_ranks(shard_apart, MiniGPT, False) == [None, None]
