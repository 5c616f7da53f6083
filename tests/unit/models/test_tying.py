"""The tie and its guard: worked examples, shapes that cannot be tied, broken ties."""

import pytest
import torch
from torch import nn

from tielab.models.minigpt import MiniGPT
from tielab.models.tying import TiedHead, tie_problem


@pytest.mark.parametrize(
    ("table", "hidden", "logits", "winner"),
    [
        (
            [[0.2, -0.5, 0.8], [0.3, -0.4, 0.7], [-0.9, 0.1, 0.2], [0.6, 0.3, -0.5]],
            [0.5, 0.2, -0.3],
            [-0.24, -0.14, -0.49, 0.51],
            3,
        ),
        ([[0.2, 0.8], [0.5, 0.3], [0.9, 0.1]], [0.3, 0.7], [0.62, 0.36, 0.34], 0),
    ],
)
def test_worked_examples(table, hidden, logits, winner):
    matrix = torch.tensor(table)
    embedding = nn.Embedding.from_pretrained(matrix, freeze=False)
    found = TiedHead(embedding, *matrix.shape)(torch.tensor(hidden))
    torch.testing.assert_close(found, torch.tensor(logits))
    assert found.argmax() == winner


def test_softmax_of_the_worked_example():
    found = torch.tensor([-0.24, -0.14, -0.49, 0.51]).softmax(0)
    torch.testing.assert_close(found, torch.tensor([0.2000, 0.2210, 0.1557, 0.4233]), atol=5e-5, rtol=0)


@pytest.mark.parametrize("shape", [(65, 32), (64, 16)])
def test_other_shapes_cannot_be_tied(shape):
    with pytest.raises(ValueError, match=r"embedding of shape \(64, 32\) to a head of shape"):
        TiedHead(nn.Embedding(64, 32), *shape)


def model(tied):
    return MiniGPT(64, 8, 32, 1, tied=tied)


def problem(m, tied, optimized=None):
    return tie_problem(m, tied, optimized)


@pytest.mark.parametrize("tied", [True, False])
def test_a_right_model_has_no_problem(tied):
    m = model(tied)
    assert problem(m, tied) is None
    assert problem(m, tied, list(m.parameters())) is None


def test_equal_values_do_not_make_a_tie():
    m = model(True)
    m.lm_head = nn.Linear(32, 64, bias=False)
    m.lm_head.weight = nn.Parameter(m.token_embed.weight)  # one storage, two parameters
    assert "two parameters" in problem(m, True)


def untied_by_assignment(m):
    m.load_state_dict({name: tensor.clone() for name, tensor in m.state_dict().items()}, assign=True)
    return m


def untied_by_to_empty(m):
    with torch.device("meta"):
        m = type(m)(64, 8, 32, 1)
    assert problem(m, True) is None
    m.to_empty(device="cpu").reset_parameters()
    return m


class OrdinaryTie(MiniGPT):
    """Tied as most models are: a Linear that registers the embedding's parameter a second time."""

    def __init__(self, *arguments, **settings):
        super().__init__(*arguments, **settings)
        self.lm_head = nn.Linear(32, 64, bias=False)
        self.lm_head.weight = self.token_embed.weight


@pytest.mark.parametrize("break_tie", [untied_by_assignment, untied_by_to_empty])
def test_what_unties_an_ordinary_tie_is_found_and_cannot_untie_ours(break_tie):
    ordinary = OrdinaryTie(64, 8, 32, 1)
    assert problem(ordinary, True) is None
    broken = problem(break_tie(ordinary), True)
    assert broken == "model.tied=true, but lm_head.weight and token_embed.weight are two parameters"
    ours = break_tie(model(True))
    assert problem(ours, True) is None
    assert ours.lm_head.weight is ours.token_embed.weight


def test_a_parametrization_that_makes_the_matrix_anew_at_every_use_is_no_tie():
    m = model(True)
    nn.utils.parametrizations.weight_norm(m.token_embed)
    assert "lm_head.weight and token_embed.weight are two parameters" in problem(m, True)


@pytest.mark.parametrize("tied", [True, False])
def test_a_diverged_model_may_be_tied(tied):
    m = model(tied)
    m.token_embed.weight.data.fill_(float("nan"))
    assert problem(m, tied) is None


def test_an_error_of_the_model_itself_is_not_called_a_broken_tie():
    m = model(True)
    m.final_norm = nn.LayerNorm(31)
    with pytest.raises(RuntimeError, match="normalized_shape"):
        problem(m, True)


class OtherHead(TiedHead):
    """Shows one matrix and scores with another."""

    def forward(self, hidden):
        return nn.functional.linear(hidden, self.hidden_matrix)


class OtherLinear(nn.Linear):
    def forward(self, hidden):
        return nn.functional.linear(hidden, self.hidden_matrix)


class OtherEmbedding(nn.Embedding):
    def forward(self, input_ids):
        return nn.functional.embedding(input_ids, self.weight + 1.0)


def test_a_head_that_scores_with_another_matrix_than_it_shows_is_found():
    m = model(True)
    m.lm_head = OtherHead(m.token_embed, 64, 32)
    m.lm_head.hidden_matrix = m.token_embed.weight.detach()
    assert problem(m, True) is None
    m.lm_head.hidden_matrix = m.token_embed.weight.detach() * 1.001
    found = problem(m, True)
    assert found.startswith("model.tied=true, but lm_head computes with another matrix")
    assert "token_embed.weight and lm_head.weight" in found


def test_an_untied_head_that_scores_with_the_embedding_is_found():
    m = model(False)
    m.lm_head = OtherLinear(32, 64, bias=False)
    m.lm_head.hidden_matrix = m.lm_head.weight.detach()
    assert problem(m, False) is None
    m.lm_head.hidden_matrix = m.token_embed.weight.detach()
    assert "model.tied=false, but lm_head computes with another matrix" in problem(m, False)


def test_an_embedding_that_looks_up_another_matrix_is_found():
    m = model(False)
    m.token_embed = OtherEmbedding(64, 32)
    assert "token_embed computes with another matrix" in problem(m, False)


def test_a_head_that_is_not_asked_is_found():
    m = model(True)
    m.forward = lambda input_ids: m.hidden_states(input_ids) @ torch.ones(32, 64)
    assert "lm_head computes with another matrix" in problem(m, True)


def test_looking_changes_nothing():
    m = MiniGPT(64, 8, 32, 1, dropout=0.5)
    m.blocks[0].eval()
    before, state = {n: p.clone() for n, p in m.named_parameters()}, torch.get_rng_state()
    assert problem(m, True) is None
    assert torch.equal(torch.get_rng_state(), state)
    assert m.training
    assert not m.blocks[0].mlp.training
    assert all(torch.equal(p, before[n]) and p.grad is None for n, p in m.named_parameters())
    assert not m.lm_head._forward_hooks


def test_an_untied_model_that_shares_is_found():
    for shared in (lambda w: w, lambda w: nn.Parameter(w.data)):
        m = model(False)
        m.lm_head.weight = shared(m.token_embed.weight)
        assert "share one storage" in problem(m, False)


@pytest.mark.parametrize("tied", [True, False])
def test_optimizer_entries_are_counted(tied):
    m = model(tied)
    twice = [*m.parameters(), m.token_embed.weight]
    assert "2 optimizer entries" in problem(m, tied, twice)
    without = [p for p in m.parameters() if p is not m.token_embed.weight]
    assert "0 optimizer entries" in problem(m, tied, without)
    assert "lm_head.weight" in problem(m, tied, without)
