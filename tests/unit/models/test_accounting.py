"""Parameter counts to the literal, FLOPs against torch's own counter."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from tielab.models.accounting import flops_per_token, parameter_ledger, weights_hash
from tielab.models.minigpt import MiniGPT


def counted(*shape, **changes):
    with torch.device("meta"):
        return parameter_ledger(MiniGPT(*shape, **changes))


@pytest.mark.parametrize(
    ("shape", "tied", "untied", "difference"),
    [
        ((50257, 1024, 768, 12, 12, 3072), 124_439_808, 163_037_184, 38_597_376),
        ((100, 8, 32), 154_176, 157_376, 3_200),
    ],
)
def test_totals(shape, tied, untied, difference):
    assert counted(*shape, tied=True)["total"] == tied
    assert counted(*shape, tied=False)["total"] == untied
    assert untied - tied == difference


@pytest.mark.parametrize(
    ("vocab_size", "tied", "untied"), [(50_000, 38_400_000, 76_800_000), (50_257, 38_597_376, 77_194_752)]
)
def test_the_two_matrices(vocab_size, tied, untied):
    for arm, expected in ((True, tied), (False, untied)):
        ledger = counted(vocab_size, 8, 768, 1, 12, tied=arm)
        assert ledger["token_embedding"] + ledger["head"] == expected
    assert (untied - tied) * 4 / 2**20 == pytest.approx(
        146.484375 if vocab_size == 50_000 else 147.2373046875
    )


def test_output_bias():
    ledger = counted(50_257, 8, 768, 1, 12, tied=True, output_bias=True)
    assert ledger["head"] == 50_257
    assert ledger["token_embedding"] + ledger["head"] == 38_647_633


@given(vocab_size=st.integers(2, 3000), heads=st.integers(1, 6), bias=st.booleans())
@settings(max_examples=25, deadline=None)
def test_untied_minus_tied_is_v_times_d(vocab_size, heads, bias):
    width = 8 * heads
    both = [
        counted(vocab_size, 4, width, 1, heads, 16, tied=tied, output_bias=bias) for tied in (True, False)
    ]
    assert both[1]["total"] - both[0]["total"] == vocab_size * width
    for ledger in both:
        assert sum(n for part, n in ledger.items() if part != "total") == ledger["total"]
    assert {k: v for k, v in both[0].items() if k not in ("head", "total")} == {
        k: v for k, v in both[1].items() if k not in ("head", "total")
    }


@pytest.mark.parametrize("tied", [True, False])
def test_flops_equal_torchs_count_and_do_not_depend_on_the_tie(tied):
    model = MiniGPT(64, 16, 32, 2, 4, 64, tied=tied)
    # The fused attention of the CPU is unknown to torch's counter.
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model(torch.zeros(1, 16, dtype=torch.int64))
    assert flops_per_token(model)["forward"] * 16 == counter.get_total_flops()
    assert flops_per_token(model) == flops_per_token(MiniGPT(64, 16, 32, 2, 4, 64, tied=not tied))
    assert flops_per_token(model)["train"] == 3 * flops_per_token(model)["forward"]


def test_weights_hash_sees_one_changed_bit():
    model = MiniGPT(64, 8, 32, 1)
    before = weights_hash(model)
    assert before == weights_hash(MiniGPT(64, 8, 32, 1))
    with torch.no_grad():
        model.blocks[0].mlp.up.bias[0] = torch.nextafter(torch.tensor(0.0), torch.tensor(1.0))
    assert weights_hash(model) != before
