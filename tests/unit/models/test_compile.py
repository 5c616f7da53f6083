"""Compiled blocks: the same model, one graph for all of them, in training steps only."""

import copy
from functools import partial

import pytest
import torch
from torch._dynamo.utils import counters

from running import config_of
from tielab.config import config_hash
from tielab.data.tokenizer import CharTokenizer
from tielab.fit import build_model, run_identity
from tielab.models.minigpt import MiniGPT
from tielab.models.tying import tie_problem

V, T = 64, 16


def arms(**changes):
    """A model and its compiled twin."""
    plain, compiled = (MiniGPT(V, T, 32, 3, 4, 64, **changes) for _ in range(2))
    compiled.compile_blocks()
    return plain, compiled


def step(model, optimizer, seed):
    ids = torch.randint(V, (4, T), generator=torch.Generator().manual_seed(seed))
    loss = model.loss(ids)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


@pytest.fixture
def quickly_built(monkeypatch):
    """torch.compile without the code generation, which takes seconds and a C++ compiler."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    torch._dynamo.reset()
    counters.clear()


@pytest.mark.parametrize("tied", [True, False])
def test_weights_have_the_names_and_the_tie_they_have_without(quickly_built, tied):
    plain, compiled = arms(tied=tied)
    optimizer = torch.optim.AdamW(compiled.parameters())
    step(compiled, optimizer, 0)
    assert list(compiled.state_dict()) == list(plain.state_dict())
    assert tie_problem(compiled, tied, compiled.parameters()) is None
    plain.load_state_dict(compiled.state_dict())
    assert tie_problem(copy.deepcopy(compiled), tied) is None


def test_all_blocks_run_one_graph_and_nothing_is_built_after_the_first_step(quickly_built):
    _, compiled = arms()
    optimizer = torch.optim.AdamW(compiled.parameters())
    ids = torch.zeros(3, 5, dtype=torch.long)
    compiled.eval().token_nats(ids, ids)
    assert counters["stats"]["unique_graphs"] == 0
    compiled.train()
    step(compiled, optimizer, 0)
    assert counters["stats"]["unique_graphs"] == 1
    for seed in range(1, 4):
        compiled.eval().token_nats(ids, ids)
        step(compiled.train(), optimizer, seed)
    assert counters["stats"]["unique_graphs"] == 1
    assert not counters["graph_break"]


def test_the_generated_code_trains_as_the_model_does():
    plain, compiled = arms()
    losses = []
    for model in (plain, compiled):
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        losses.append([step(model, optimizer, 0) for _ in range(5)])
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert losses[0][-1] < losses[0][0] - 0.01


def test_a_checkpoint_goes_on_with_and_without():
    tokenizer = CharTokenizer("", byte_fallback=True)
    without, compiled = (
        config_of("model=nano", "vocab=byte"),
        config_of("model=nano", "vocab=byte", "compile=true"),
    )
    assert run_identity(without, tokenizer) == run_identity(compiled, tokenizer)
    assert config_hash(without) != config_hash(compiled)
    names = [build_model(c["model"], tokenizer).state_dict().keys() for c in (without, compiled)]
    assert names[0] == names[1]
