"""Every tying scheme against what can be worked out: equivalences, gradients, counts, first losses."""

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from tielab.models.accounting import body_hash, flops_per_token, parameter_ledger, tensors_hash
from tielab.models.ends import SquareMap
from tielab.models.minigpt import MiniGPT
from tielab.models.tying import is_tied, tie_problem, untie

V, T, D, R = 64, 16, 32, 8
SCHEMES = {
    "tied": {},
    "untied": {"tied": False},
    "separate": {"tied": False, "embed_init_std": 1.0, "head_init_std": 0.01},
    "scaled": {"embed_scale": D**0.5},
    "linear": {"head_map": "linear", "head_map_penalty": 0.15},
    "low rank": {"head_map": "linear", "head_map_rank": R},
    "split late": {"untie_at": 0.5},
    "input gradient": {"embed_gradient_scale": 5.0},
    "factorised": {"embed_rank": R},
    "factorised untied": {"embed_rank": R, "tied": False},
    "permuted": {"head_map": "permutation"},
    "rotated": {"head_map": "rotation"},
    "frozen": {"tied": False, "embed_frozen": True},
}
every_scheme = pytest.mark.parametrize("scheme", SCHEMES)


def small(scheme="tied", **changes):
    shape = {"vocab_size": V, "block_size": T, "embed_dim": D, "num_layers": 2, "hidden_dim": 64}
    return MiniGPT(**shape | SCHEMES[scheme] | changes)


def ids(batch=3, length=T):
    return torch.randint(V, (batch, length), generator=torch.Generator().manual_seed(0))


def gradient(model, x):
    """Of the token embedding's matrix, for the loss of x."""
    model.zero_grad()
    model.loss(x).backward()
    return model.token_embed.weight.grad.clone()


def test_what_a_plain_model_is_has_not_changed():
    """Hashes of the weights and their names before there were other schemes than two."""
    shape = {"vocab_size": 64, "block_size": 8, "embed_dim": 32, "num_layers": 1, "hidden_dim": 32}
    for tied, expected in ((True, "d23af92a65d64ba6"), (False, "72b13abb9e682489")):
        model = MiniGPT(**shape, tied=tied, seed=3)
        assert tensors_hash(model.state_dict().items()) == expected
        assert body_hash(model) == "503b9607e965bccb"
        names = [name for name, _ in model.named_parameters()]
        assert names[:3] == ["token_embed.weight", "position_embed.weight", "blocks.0.norm1.weight"]
        assert names[-1] == ("final_norm.bias" if tied else "lm_head.weight")


@every_scheme
def test_the_guard_knows_it_and_the_body_is_that_of_every_other_scheme(scheme):
    model = small(scheme, output_bias=True)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    assert tie_problem(model, model.tied, trained) is None
    assert is_tied(model) is model.tied
    assert tie_problem(model, not model.tied) is not None
    assert body_hash(model) == body_hash(small())


@every_scheme
@pytest.mark.parametrize("width", [32, 256])
def test_the_first_loss_is_near_ln_v(scheme, width):
    model = small(scheme, embed_dim=width, num_heads=4, vocab_size=1000)
    x = torch.randint(1000, (8, T), generator=torch.Generator().manual_seed(1))
    assert abs(model.loss(x).item() - math.log(1000)) < 0.5


@every_scheme
def test_a_copy_and_a_model_built_from_the_meta_device_compute_the_same(scheme):
    model, x = small(scheme, seed=5).eval(), ids()
    assert torch.equal(copy.deepcopy(model)(x), model(x))
    with torch.device("meta"):
        other = small(scheme, seed=5)
    other.to_empty(device="cpu").reset_parameters()
    assert torch.equal(other.eval()(x), model(x))
    loaded = small(scheme, seed=5)
    loaded.load_state_dict({name: t + 0.1 for name, t in loaded.state_dict().items()})
    model.load_state_dict({name: t.clone() for name, t in loaded.state_dict().items()}, assign=True)
    assert torch.equal(loaded.eval()(x), model(x))
    assert is_tied(model) is model.tied


@every_scheme
def test_the_ledger_adds_up_and_flops_are_torchs_count(scheme):
    model = small(scheme)
    ledger = parameter_ledger(model)
    assert sum(n for part, n in ledger.items() if part != "total") == ledger["total"]
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model(torch.zeros(1, T, dtype=torch.int64))
    assert flops_per_token(model)["forward"] * T == counter.get_total_flops()
    assert flops_per_token(model)["train"] == 3 * flops_per_token(model)["forward"]


@pytest.mark.parametrize(
    ("scheme", "token_embedding", "head"),
    [
        ("tied", V * D, 0),
        ("untied", V * D, V * D),
        ("frozen", V * D, V * D),
        ("permuted", V * D, 0),
        ("rotated", V * D, 0),
        ("linear", V * D, D * D),
        ("low rank", V * D, 2 * R * D),
        ("factorised", V * R + R * D, 0),
        ("factorised untied", V * R + R * D, V * R + R * D),
        ("split late", V * D, V * D),  # at the end
    ],
)
def test_parameters_to_the_literal(scheme, token_embedding, head):
    ledger = parameter_ledger(small(scheme))
    assert (ledger["token_embedding"], ledger["head"]) == (token_embedding, head)
    rest = {"position_embedding", "blocks", "final_norm"}
    assert {k: ledger[k] for k in rest} == {k: parameter_ledger(small())[k] for k in rest}


@pytest.mark.parametrize("scheme", ["permuted", "rotated"])
def test_a_fixed_map_has_no_parameter_and_no_place_in_a_checkpoint(scheme):
    names = [name for name, _ in small(scheme).named_parameters()]
    assert names == [name for name, _ in small().named_parameters()]
    assert small(scheme).state_dict().keys() == small().state_dict().keys()
    assert all(torch.equal(t, small().state_dict()[n]) for n, t in small(scheme).state_dict().items())


def test_a_model_that_never_splits_has_one_matrix_and_a_split_one_two():
    assert parameter_ledger(small(untie_at=1.0)) == parameter_ledger(small())
    model = small(untie_at=0.5, output_bias=True)
    before, bias, logits = parameter_ledger(model), model.lm_head.bias, model(ids())
    untie(model)
    assert parameter_ledger(model) == before
    assert torch.equal(model(ids()), logits)
    assert model.lm_head.bias is bias
    assert tie_problem(model, False, list(model.parameters())) is None


class TestPermutation:
    def test_it_is_a_head_with_the_rows_in_another_order(self):
        """W = Pi S: a plain model that looks ids up in S and scores with S's rows permuted."""
        model, x = small("permuted", tied=True, init_std=0.3).eval(), ids()
        assert sorted(model.row_of_id.tolist()) == list(range(V))
        assert model.row_of_id.tolist() != list(range(V))
        table = model.token_embed.weight[model.row_of_id]  # S: row k is what id k is looked up as
        order = model.row_of_id.argsort()  # row i of W is row order[i] of S
        untied = small("untied").eval()
        untied.load_state_dict(
            {**model.state_dict(), "token_embed.weight": table, "lm_head.weight": table[order]}
        )
        torch.testing.assert_close(model(x), untied(x))

    def test_it_is_drawn_from_the_seed(self):
        first, again, other = (small("permuted", seed=seed).row_of_id for seed in (0, 0, 1))
        assert torch.equal(first, again)
        assert not torch.equal(first, other)

    def test_its_gradient_on_a_worked_example(self):
        """Three ids, width two, order 1, 2, 0; a body that doubles: z = W 2 S[x], loss -log p(target)."""
        matrix = torch.tensor([[0.1, 0.2], [0.3, -0.4], [-0.5, 0.6]], requires_grad=True)
        row_of_id = torch.tensor([1, 2, 0])
        x, target = 0, 2
        hidden = 2 * F.embedding(torch.tensor(x), matrix[row_of_id])
        F.cross_entropy(hidden @ matrix.T, torch.tensor(target)).backward()
        # By hand: dL/dz = p - onehot; dL/dW = dL/dz h^T; row 1, where id 0 lies, gets 2 W^T dL/dz as well.
        h = [0.6, -0.8]
        z = [0.06 - 0.16, 0.18 + 0.32, -0.3 - 0.48]
        total = sum(math.exp(v) for v in z)
        error = [math.exp(v) / total - (i == target) for i, v in enumerate(z)]
        expected = [[e * h[0], e * h[1]] for e in error]
        values = matrix.detach().tolist()
        for column in range(2):
            expected[1][column] += 2 * sum(error[i] * values[i][column] for i in range(3))
        torch.testing.assert_close(matrix.grad, torch.tensor(expected))

    def test_the_models_gradient_is_the_sum_of_both_paths_each_in_its_rows(self):
        model, x = small("permuted", init_std=0.3), ids()
        untied = small("untied")
        table, order = model.token_embed.weight[model.row_of_id], model.row_of_id.argsort()
        untied.load_state_dict(
            {**model.state_dict(), "token_embed.weight": table, "lm_head.weight": table[order]}
        )
        through_lookup = gradient(untied, x)
        found = gradient(model, x)
        torch.testing.assert_close(found, untied.lm_head.weight.grad + through_lookup[order])
        assert not torch.allclose(found, untied.lm_head.weight.grad + through_lookup, atol=1e-4)


class TestRotation:
    def test_it_is_orthogonal_and_drawn_from_the_seed(self):
        q, again, other = (small("rotated", seed=seed).head_map.matrix for seed in (0, 0, 1))
        torch.testing.assert_close(q @ q.T, torch.eye(D))
        assert torch.equal(q, again)
        assert not torch.allclose(q, other, atol=0.1)

    def test_it_is_a_head_with_the_columns_rotated(self):
        model, x = small("rotated", init_std=0.3).eval(), ids()
        table = model.token_embed.weight
        untied = small("untied").eval()
        untied.load_state_dict({**model.state_dict(), "lm_head.weight": table @ model.head_map.matrix})
        torch.testing.assert_close(model(x), untied(x))

    def test_the_gradient_is_the_sum_of_both_paths_one_rotated_back(self):
        model, x = small("rotated", init_std=0.3), ids()
        q = model.head_map.matrix
        untied = small("untied")
        untied.load_state_dict({**model.state_dict(), "lm_head.weight": model.token_embed.weight @ q})
        through_lookup = gradient(untied, x)
        torch.testing.assert_close(gradient(model, x), through_lookup + untied.lm_head.weight.grad @ q.T)


class TestLinearMap:
    def test_a_square_one_begins_as_the_plainly_tied_model(self):
        model = small("linear")
        assert isinstance(model.head_map, SquareMap)
        assert torch.equal(model(ids()), small()(ids()))
        with torch.no_grad():
            model.head_map.weight *= 2
        torch.testing.assert_close(model(ids()), 2 * small()(ids()))

    def test_a_low_rank_one_has_that_rank_and_keeps_the_scale_of_the_hidden_state(self):
        matrix = small("low rank", embed_dim=256, head_map_rank=64).head_map.matrix
        assert torch.linalg.matrix_rank(matrix) == 64
        hidden = torch.randn(4000, 256, generator=torch.Generator().manual_seed(0))
        assert (hidden @ matrix.T).std().item() == pytest.approx(1.0, abs=0.05)

    @pytest.mark.parametrize("scheme", ["linear", "low rank"])
    def test_the_penalty_is_lambda_times_the_frobenius_norm(self, scheme):
        model = small(scheme, head_map_penalty=0.15)
        squares = sum(x * x for row in model.head_map.matrix.tolist() for x in row)
        assert model.penalty().item() == pytest.approx(0.15 * math.sqrt(squares), rel=1e-5)
        if scheme == "linear":
            assert model.penalty().item() == pytest.approx(0.15 * math.sqrt(D))
        assert small(scheme, head_map_penalty=0.0).penalty() is None


class TestFactorised:
    @pytest.mark.parametrize("scheme", ["factorised", "factorised untied"])
    def test_it_is_a_whole_model_with_the_products(self, scheme):
        model, x = small(scheme).eval(), ids()
        table = model.token_embed.weight @ model.embed_up.weight.T
        head = table if model.tied else model.lm_head.weight @ model.head_map.weight
        whole = small("untied").eval()
        state = {k: v for k, v in model.state_dict().items() if k in whole.state_dict()}
        whole.load_state_dict({**state, "token_embed.weight": table, "lm_head.weight": head})
        torch.testing.assert_close(model(x), whole(x))

    def test_entries_of_both_products_have_the_asked_standard_deviation(self):
        model = small(
            "factorised untied", vocab_size=4000, embed_rank=16, embed_init_std=0.5, head_init_std=0.1
        )
        table = model.token_embed.weight @ model.embed_up.weight.T
        assert table.std().item() == pytest.approx(0.5, rel=0.1)
        assert (model.lm_head.weight @ model.head_map.weight).std().item() == pytest.approx(0.1, rel=0.1)

    def test_the_gradients_of_both_shared_factors_are_sums_over_both_ends(self):
        model, apart = small("factorised", init_std=0.3), small("factorised untied")
        factors = {"lm_head.weight": model.token_embed.weight, "head_map.weight": model.embed_up.weight.T}
        apart.load_state_dict({**model.state_dict(), **factors})
        for m in (model, apart):
            m.loss(ids()).backward()
        close = torch.testing.assert_close
        close(model.token_embed.weight.grad, apart.token_embed.weight.grad + apart.lm_head.weight.grad)
        close(model.embed_up.weight.grad, apart.embed_up.weight.grad + apart.head_map.weight.grad.T)
        assert apart.head_map.weight.grad.abs().max() > 1e-3

    def test_the_gradient_scale_is_of_the_matrix_and_not_of_its_second_factor(self):
        plain, scaled = small("factorised"), small("factorised", embed_gradient_scale=0.0)
        for m in (plain, scaled):
            m.loss(ids()).backward()
        assert not torch.allclose(plain.token_embed.weight.grad, scaled.token_embed.weight.grad)
        assert torch.equal(plain.embed_up.weight.grad, scaled.embed_up.weight.grad)


class TestGradientScale:
    @pytest.mark.parametrize("scale", [0.0, 0.5, 5.0])
    def test_it_scales_one_path_and_no_value(self, scale):
        model, x = small(embed_gradient_scale=scale), ids()
        assert torch.equal(model(x), small()(x))
        untied = small("untied")
        untied.load_state_dict({**small().state_dict(), "lm_head.weight": small().token_embed.weight})
        through_lookup = gradient(untied, x)
        torch.testing.assert_close(gradient(model, x), scale * through_lookup + untied.lm_head.weight.grad)

    def test_with_zero_a_table_that_only_looks_up_gets_nothing(self):
        assert not gradient(small("untied", embed_gradient_scale=0.0), ids()).any()
        assert gradient(small("untied"), ids()).any()

    def test_the_body_below_gets_its_whole_gradient(self):
        found = []
        for scale in (1.0, 0.0):
            model = small(embed_gradient_scale=scale)
            model.loss(ids()).backward()
            found.append(model.position_embed.weight.grad)
        assert torch.equal(*found)


def test_standard_deviations_of_both_ends():
    model = small("separate", vocab_size=4000, embed_dim=64, num_heads=4)
    assert model.token_embed.weight.std().item() == pytest.approx(1.0, rel=0.02)
    assert model.lm_head.weight.std().item() == pytest.approx(0.01, rel=0.02)
    assert model.position_embed.weight.std().item() == pytest.approx(0.02, rel=0.1)
    assert not small("untied", head_init_std=0.0).lm_head.weight.any()
    # The same numbers, scaled.
    torch.testing.assert_close(small(embed_init_std=0.04).token_embed.weight, 2 * small().token_embed.weight)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"head_map": "circle"}, "head_map circle is not one of none, linear"),
        ({"head_map_rank": 4}, "head_map_rank 4 needs a linear head_map, found none"),
        ({"head_map_penalty": 0.1, "head_map": "rotation"}, "head_map_penalty 0.1 needs a linear head_map"),
        ({"embed_rank": 4, "head_map": "rotation"}, "embed_rank 4 has a map of its own"),
    ],
)
def test_parts_that_exclude_each_other(changes, message):
    with pytest.raises(ValueError, match=message):
        small(**changes)
