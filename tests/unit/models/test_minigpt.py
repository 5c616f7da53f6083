"""The model against facts that can be computed by hand or by another implementation."""

import copy
import math
import pickle

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from tielab.models.accounting import body_hash
from tielab.models.minigpt import MiniGPT, next_token_probabilities

V, T, D = 64, 16, 32


def small(**changes):
    return MiniGPT(
        **{"vocab_size": V, "block_size": T, "embed_dim": D, "num_layers": 2, "hidden_dim": 64} | changes
    )


def ids(batch=3, length=T, seed=0):
    return torch.randint(V, (batch, length), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("tied", [True, False])
def test_shapes_and_loss(tied):
    model = small(tied=tied)
    x = ids()
    logits = model(x)
    assert logits.shape == (3, T, V)
    expected = -logits[:, :-1].log_softmax(-1).gather(-1, x[:, 1:, None]).mean()
    torch.testing.assert_close(model.loss(x), expected)
    torch.testing.assert_close(model.loss(x[:, :-1], x[:, 1:]), small(tied=tied).loss(x[:, :-1], x[:, 1:]))
    torch.testing.assert_close(model.token_nats(x[:, :-1], x[:, 1:]).mean(), model.loss(x[:, :-1], x[:, 1:]))


def test_tied_head_is_the_embedding():
    model = small(tied=True)
    assert model.lm_head.weight is model.token_embed.weight
    keys = model.state_dict().keys()
    assert "token_embed.weight" in keys
    assert not any(key.startswith("lm_head") for key in keys)
    assert len(list(model.parameters())) == len({id(p) for p in model.parameters()})
    assert model.position_embed.weight is not model.token_embed.weight


def test_untied_head_is_its_own_matrix():
    model = small(tied=False)
    assert model.lm_head.weight is not model.token_embed.weight
    assert not torch.equal(model.lm_head.weight, model.token_embed.weight)
    assert {"token_embed.weight", "lm_head.weight"} <= model.state_dict().keys()


@pytest.mark.parametrize(
    "change",
    [
        copy.deepcopy,
        lambda m: pickle.loads(pickle.dumps(m)),
        lambda m: m.double(),
        lambda m: m.to(torch.bfloat16),
        lambda m: m.to_empty(device="cpu"),
        lambda m: (m.load_state_dict(small(seed=5).state_dict(), assign=True), m)[1],
    ],
    ids=["deepcopy", "pickle", "double", "bfloat16", "to_empty", "assign"],
)
def test_tie_survives(change):
    model = change(small(tied=True))
    assert model.lm_head.weight is model.token_embed.weight
    assert sum("token_embed" in n or "lm_head" in n for n, _ in model.named_parameters()) == 1


def test_output_bias_in_both_arms():
    for tied in (True, False):
        model = small(tied=tied, output_bias=True)
        with torch.no_grad():
            model.lm_head.bias += 1.5
        plain = small(tied=tied)
        torch.testing.assert_close(model(ids()), plain(ids()) + 1.5)


def test_lookup_equals_one_hot_product():
    table = small().token_embed.weight
    x = ids()
    torch.testing.assert_close(table[x], F.one_hot(x, V).float() @ table)


def test_tied_gradient_is_the_sum_of_both_paths():
    tied, untied = small(tied=True), small(tied=False)
    untied.load_state_dict({**tied.state_dict(), "lm_head.weight": tied.token_embed.weight})
    for model in (tied, untied):
        model.loss(ids()).backward()
    through_lookup, through_head = untied.token_embed.weight.grad, untied.lm_head.weight.grad
    torch.testing.assert_close(tied.token_embed.weight.grad, through_lookup + through_head)
    assert not torch.allclose(through_lookup, through_head, atol=1e-4)


def test_which_rows_get_a_gradient():
    x = ids(batch=1, length=6)
    seen = set(x[:, :-1].flatten().tolist())
    for tied in (True, False):
        model = small(tied=tied)
        model.loss(x[:, :-1], x[:, 1:]).backward()
        touched = set(model.token_embed.weight.grad.abs().sum(1).nonzero().flatten().tolist())
        assert touched == (set(range(V)) if tied else seen)
        assert (model.lm_head.weight.grad.abs().sum(1) > 0).all()


@pytest.mark.parametrize("width", [32, 128, 512])
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("scale", ["plain", "unit inputs"])
def test_first_loss_is_near_ln_v(width, tied, scale):
    """PyTorch's default (standard deviation 1) would start a tied model at 31, 128 and 513 nats."""
    vocab_size = 1000
    embed_scale = 1.0 if scale == "plain" else 1 / min(0.02, 2.56 / width)
    model = MiniGPT(vocab_size, 32, width, hidden_dim=4 * width, tied=tied, embed_scale=embed_scale)
    x = torch.randint(vocab_size, (8, 32), generator=torch.Generator().manual_seed(1))
    assert abs(model.loss(x[:, :-1], x[:, 1:]).item() - math.log(vocab_size)) < 0.3


@given(seed=st.integers(0, 2**31), width=st.sampled_from([8, 16, 32]))
@settings(max_examples=15, deadline=None)
def test_arms_share_every_other_initial_tensor(seed, width):
    shape = {
        "vocab_size": V,
        "block_size": 8,
        "embed_dim": width,
        "num_layers": 2,
        "hidden_dim": 16,
        "seed": seed,
    }
    tied, untied = MiniGPT(**shape, tied=True), MiniGPT(**shape, tied=False)
    own = untied.state_dict()
    for name, tensor in tied.state_dict().items():
        assert torch.equal(tensor, own[name]), name
    assert body_hash(tied) == body_hash(untied)
    assert body_hash(tied) != body_hash(MiniGPT(**{**shape, "seed": seed + 1}, tied=True))


def test_initial_weights_leave_the_global_generator_alone():
    before = torch.get_rng_state()
    first, second = small(seed=3), small(seed=3)
    assert torch.equal(first.blocks[0].mlp.up.weight, second.blocks[0].mlp.up.weight)
    # nn.Linear's own initialisation draws from it, ours must not depend on that.
    torch.set_rng_state(before)
    torch.rand(100)
    assert torch.equal(small(seed=3).blocks[0].mlp.up.weight, first.blocks[0].mlp.up.weight)


def test_causal():
    model = small().eval()
    x = ids(batch=1)
    changed = x.clone()
    changed[0, 9] = (changed[0, 9] + 1) % V
    before, after = model(x), model(changed)
    assert torch.equal(before[:, :9], after[:, :9])
    assert not torch.allclose(before[:, 9:], after[:, 9:])


def test_wrong_sizes_are_named():
    with pytest.raises(ValueError, match="embed_dim 100 cannot be split over 3 heads"):
        MiniGPT(V, T, 100, num_heads=3)
    with pytest.raises(ValueError, match="17 tokens exceeds block_size 16"):
        small()(ids(length=T + 1))
    for wrong in (-1, V):
        with pytest.raises(ValueError, match=rf"token id {wrong} is outside \[0, vocab_size {V}\)"):
            small()(torch.full((1, 2), wrong))


class TestGenerate:
    def test_greedy_takes_the_most_likely_id_and_scores_one_position(self):
        model = small().eval()
        scored = []
        model.lm_head.register_forward_hook(lambda m, args, out: scored.append(args[0].shape))
        x = ids(batch=2, length=5)
        out = model.generate(x, 3, greedy=True)
        assert scored == [(2, 1, D)] * 3
        assert torch.equal(out[:, :5], x)
        expected = x
        for _ in range(3):
            expected = torch.cat([expected, model(expected)[:, -1:].argmax(-1)], dim=1)
        assert torch.equal(out, expected)

    def test_goes_past_block_size(self):
        assert small().eval().generate(ids(length=T), 5).shape == (3, T + 5)

    def test_seeded(self):
        def draw(seed):
            return small().eval().generate(ids(), 8, generator=torch.Generator().manual_seed(seed))

        assert torch.equal(draw(1), draw(1))
        assert not torch.equal(draw(1), draw(2))

    def test_probabilities_by_hand(self):
        logits = torch.log(torch.tensor([[0.5, 0.25, 0.15, 0.1]]))
        close = torch.testing.assert_close
        close(next_token_probabilities(logits), logits.exp())
        close(next_token_probabilities(logits, top_k=2), torch.tensor([[2 / 3, 1 / 3, 0, 0]]))
        close(next_token_probabilities(logits, top_p=0.75), torch.tensor([[2 / 3, 1 / 3, 0, 0]]))
        close(next_token_probabilities(logits, top_p=0.76), torch.tensor([[5 / 9, 2.5 / 9, 1.5 / 9, 0]]))
        close(next_token_probabilities(logits, top_p=1e-9), torch.tensor([[1.0, 0, 0, 0]]))
        squared = logits.exp() ** 2
        close(next_token_probabilities(logits, temperature=0.5), squared / squared.sum())

    def test_top_k_keeps_k_even_when_logits_are_equal(self):
        assert (next_token_probabilities(torch.zeros(1, V), top_k=3) > 0).sum() == 3

    @pytest.mark.parametrize("wrong", [{"temperature": 0}, {"top_k": 0}, {"top_p": 0}, {"top_p": 1.1}])
    def test_out_of_range(self, wrong):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            next_token_probabilities(torch.zeros(1, 4), **wrong)


def copy_into_layer(block, layer):
    """Our block's weights under the names of torch's own transformer layer."""
    names = {
        "norm1.": "norm1.", "attention.query_key_value.": "self_attn.in_proj_",
        "attention.out.": "self_attn.out_proj.", "norm2.": "norm2.",
        "mlp.up.": "linear1.", "mlp.down.": "linear2.",
    }  # fmt: skip
    state = {
        names[k.rpartition(".")[0] + "."] + k.rpartition(".")[2]: v for k, v in block.state_dict().items()
    }
    layer.load_state_dict(state, strict=True)


@pytest.mark.parametrize("tied", [True, False])
def test_same_logits_as_a_model_of_torchs_own_layers(tied):
    """A pre-norm nn.TransformerEncoderLayer with a causal mask is a GPT-2 block with an exact GELU."""
    model = small(tied=tied, init_std=0.3).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:  # else norms and biases are 1 and 0 and prove nothing
                parameter += torch.randn(parameter.shape) * 0.1
    mask = torch.nn.Transformer.generate_square_subsequent_mask(T)
    x = ids()
    hidden = model.token_embed.weight[x] + model.position_embed.weight[torch.arange(T)]
    for block in model.blocks:
        layer = torch.nn.TransformerEncoderLayer(
            D, 4, 64, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        ).eval()
        copy_into_layer(block, layer)
        hidden = layer(hidden, src_mask=mask, is_causal=True)
    hidden = F.layer_norm(hidden, (D,), model.final_norm.weight, model.final_norm.bias)
    head = model.token_embed.weight if tied else model.lm_head.weight
    torch.testing.assert_close(model(x), hidden @ head.T, atol=1e-5, rtol=1e-5)
