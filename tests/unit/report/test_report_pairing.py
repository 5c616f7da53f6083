import math
from typing import Any

import pytest

from report_records import make_config, make_record
from tielab.record import Record
from tielab.report.pairing import PairedDifference, equivalence_band, paired_difference, refusals, warnings


def test_equal_runs_have_nothing_against_them() -> None:
    assert refusals(make_record(), make_record(tied=False)) == []
    assert warnings(make_record(), make_record(tied=False)) == []


@pytest.mark.parametrize(
    ("section", "key", "value", "refusal"),
    [
        (
            "trainer",
            "precision",
            "bf16-mixed",
            "config.trainer.precision differs (tied 32-true, untied bf16-mixed)",
        ),
        ("data", "eval_stride", 32, "config.data.eval_stride differs (tied 64, untied 32)"),
        (
            "schedule",
            "warmup_fraction",
            0.2,
            "config.schedule differs (tied {'warmup_fraction': 0.1, 'final_fraction': 0.1}, "
            "untied {'warmup_fraction': 0.2, 'final_fraction': 0.1})",
        ),
    ],
)
def test_another_config_is_refused(section: str, key: str, value: Any, refusal: str) -> None:
    config = make_config(tied=False, seed=0)
    config[section][key] = value
    assert refusals(make_record(), make_record(tied=False, config=config)) == [refusal]


def test_a_refusal_names_the_arms() -> None:
    one, other = make_record(num_steps=10), make_record(num_steps=11)
    assert refusals(one, other, "tied, head_map linear", "tied") == [
        "num_steps differs (tied, head_map linear 10, tied 11)"
    ]


EVERYTHING = ("body_hash", "batch_hash", "tokens_seen", "num_steps", "num_processes")


def solved(axis: str, *keys: str) -> Record:
    """A tied run of a solved size that differs in everything a record can differ in."""
    matching = {"axis": axis, "solved": dict.fromkeys(keys, 1), "requested": dict.fromkeys(keys, 2)}
    return make_record(
        matching=matching, body_hash="x", batch_hash="x", tokens_seen=1, num_steps=1, num_processes=2,
        parameters=make_record(tied=False).parameters,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("axis", "keys", "exempt"),
    [
        ("params", ("model.embed_dim",), {"body_hash"}),
        ("flops", ("model.embed_dim", "budget.tokens"), {"body_hash", "tokens_seen", "num_steps"}),
        ("time", ("model.num_layers", "budget.tokens"), {"body_hash", "tokens_seen", "num_steps"}),
        ("time", ("budget.tokens",), {"tokens_seen", "num_steps"}),
    ],
)
def test_matching_exempts_what_it_changes_and_nothing_else(
    axis: str, keys: tuple[str, ...], exempt: set[str]
) -> None:
    untied = make_record(tied=False, num_steps=7)
    for pair in ((solved(axis, *keys), untied), (untied, solved(axis, *keys))):
        refused = [refusal.split()[0] for refusal in refusals(*pair)]
        assert refused == [name for name in EVERYTHING if name not in exempt]


@pytest.mark.parametrize(
    ("changes", "warning"),
    [
        (
            {"code_hash": "new"},
            "code_hash differs (tied new, untied old): the arms may have run different code",
        ),
        (
            {"num_threads": 4},
            "num_threads differs (tied 4, untied 2): the arms may have been rounded differently",
        ),
        (
            {"versions": {"torch": "2.13", "lightning": "2.6", "numpy": "2.0"}},
            "versions.torch differs (tied 2.13, untied 2.12); "
            "versions.scipy differs (tied missing, untied 1.15): the arms ran with different libraries",
        ),
    ],
)
def test_other_circumstances_are_named(changes: dict[str, Any], warning: str) -> None:
    circumstances = {
        "code_hash": "old",
        "num_threads": 2,
        "versions": {"torch": "2.12", "lightning": "2.6", "numpy": "2.0", "scipy": "1.15"},
    }
    other = make_record(tied=False, **circumstances)
    assert warnings(make_record(**circumstances), other) == []
    assert warnings(make_record(**circumstances | changes), other) == [warning]
    assert refusals(make_record(**circumstances | changes), other) == []


def sized(axis: str, total: int, train: int, tied: bool = True, matched: bool = True) -> Record:
    """A run of so many parameters and FLOPs per token, solved for unless it is not matched."""
    matching = {"axis": axis, "solved": {"model.embed_dim": 1}, "requested": {"model.embed_dim": 2}}
    return make_record(
        tied=tied,
        matching=matching if matched else None,
        parameters={"total": total},
        flops_per_token={"train": train},
        tokens_seen=10,
    )


@pytest.mark.parametrize(
    ("axis", "total", "train", "refused"),
    [
        ("params", 1_050, 9, []),
        ("params", 950, 9, []),
        (
            "params", 1_060, 9,
            ["parameters.total differs (tied 1060, untied 1000): more than 5 % apart, so not matched"],
        ),
        ("flops", 1_000, 950, []),
        (
            "flops", 1_000, 900,
            [
                "flops_per_token.train x tokens_seen differs (tied 9000, untied 10000): "
                "more than 5 % apart, so not matched"
            ],
        ),
        ("flops", 1_200, 900, ["parameters.total", "flops_per_token.train"]),
        ("time", 1_200, 900, []),
    ],
)  # fmt: skip
def test_sizes_that_were_to_meet_and_do_not_are_refused(
    axis: str, total: int, train: int, refused: list[str]
) -> None:
    other = sized(axis, 1_000, 1_000, tied=False, matched=False)
    found = refusals(sized(axis, total, train), other)
    assert len(found) == len(refused)
    assert all(reason.startswith(start) for reason, start in zip(found, refused, strict=True))
    # Of which of the two the size was solved is no matter, and neither is what was not to meet.
    assert len(refusals(other, sized(axis, total, train))) == len(refused)
    assert refusals(sized(axis, total, train, matched=False), other) == []


def difference(low: float | None, high: float | None, **changes: Any) -> PairedDifference:
    mean = 0.1 if low is None or high is None else (low + high) / 2
    return PairedDifference(2, mean, low, high, 0.0, **changes)


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (None, None, "one seed: no claim"),
        (-0.1, 0.2, "no difference shown"),
        (0.0, 0.2, "no difference shown"),
        (0.01, 0.2, "untied better"),
        (-0.2, -0.01, "tied better"),
        (-0.001, 0.001, "equivalent within 0.5 % perplexity"),
        (0.0005, 0.001, "equivalent within 0.5 % perplexity"),
        (-0.002, 0.001, "no difference shown"),
        (0.001, 0.002, "untied better"),
    ],
)
def test_the_verdict_follows_the_interval(low: float | None, high: float | None, verdict: str) -> None:
    assert difference(low, high, band=0.0018).verdict == verdict


def test_a_claim_among_several_needs_the_adjusted_p() -> None:
    assert difference(0.01, 0.2, p_value=0.01, holm_p=0.049, num_cells=5).verdict == "untied better"
    assert difference(0.01, 0.2, p_value=0.01, holm_p=0.05, num_cells=5).verdict == (
        "no difference shown after Holm correction over 5 cells"
    )
    assert difference(-0.1, 0.2, holm_p=1.0, num_cells=5).verdict == "no difference shown"


def test_equivalence_among_several_is_judged_by_the_wider_interval() -> None:
    wide, narrow = (-0.0019, 0.0019), (-0.0015, 0.0015)
    assert difference(-0.001, 0.001, band=0.0018, corrected=narrow).verdict.startswith("equivalent")
    assert difference(-0.001, 0.001, band=0.0018, corrected=wide).verdict == "no difference shown"


@pytest.mark.parametrize(
    ("low", "high", "diverged", "verdict"),
    [
        (-0.2, -0.1, (0, 0), "tied better"),
        (-0.2, -0.1, (2, 0), "no claim: tied diverged on 2 of 5 seeds"),
        (-0.2, -0.1, (2, 1), "no claim: tied diverged on 2 of 5 seeds, untied diverged on 1 of 4 seeds"),
        (-0.2, -0.1, (1, 1), "tied better"),
        (-0.2, -0.1, (0, 1), "tied better"),
        (0.1, 0.2, (2, 0), "untied better"),
        (0.1, 0.2, (0, 2), "no claim: untied diverged on 2 of 4 seeds"),
        (-0.001, 0.001, (1, 0), "no claim: tied diverged on 1 of 5 seeds"),
        (-0.001, 0.001, (1, 1), "equivalent within 0.5 % perplexity"),
        (-0.1, 0.2, (2, 0), "no difference shown"),
        (None, None, (2, 0), "one seed: no claim"),
    ],
)
def test_nothing_is_claimed_for_the_survivors_of_an_arm_that_diverged_more(
    low: float | None, high: float | None, diverged: tuple[int, int], verdict: str
) -> None:
    found = difference(low, high, band=0.0018, diverged=diverged, num_seeds=(5, 4))
    assert found.verdict == verdict


def test_the_verdict_names_the_better_arm() -> None:
    names = {"arm": "tied, head_map linear", "reference": "untied"}
    assert difference(-0.2, -0.1, **names).verdict == "tied, head_map linear better"
    assert difference(0.1, 0.2, **names).verdict == "untied better"


def test_the_band_is_half_a_percent_of_perplexity() -> None:
    # 0.005 nats for each of 10,000 tokens over 40,000 bytes: 0.00125 nats, 0.00125 / ln 2 bits per byte.
    assert equivalence_band(make_record()) == pytest.approx(0.0018033688)
    # The perplexity of a run that is worse by the band: exp(0.005).
    worse = make_record(bits_per_byte=2.0 + 0.0018033688)
    assert worse.validation
    assert worse.validation["perplexity"] / 256 == pytest.approx(math.exp(0.005))


def test_every_statistic_of_three_pairs() -> None:
    pairs = {
        str(seed): (make_record(bits_per_byte=tied), make_record(tied=False, bits_per_byte=untied))
        for seed, (tied, untied) in enumerate([(2.1, 2.0), (2.2, 2.0), (2.4, 2.1)])
    }
    found = paired_difference(pairs)
    # Differences 0.1, 0.2, 0.3: mean 0.2, sd 0.1, standard error 0.1 / sqrt(3) = 0.0577350.
    assert found.num_pairs == 3
    assert found.mean == pytest.approx(0.2)
    assert found.sd == pytest.approx(0.1)
    # t(2, 97.5 %) = 4.3026527: margin 0.2484138; noncentrality for 80 % power 5.6534893, times 0.0577350.
    assert (found.low, found.high) == (pytest.approx(-0.0484138), pytest.approx(0.4484138))
    assert found.minimum_detectable == pytest.approx(0.3264044, abs=1e-6)
    # t = 2 sqrt(3), two degrees of freedom: p = 1 - sqrt(12 / 14).
    assert found.p_value == found.holm_p == pytest.approx(0.0741799, abs=1e-6)
    assert found.sign_flip_p == 0.25
    # The mean of three draws is the lowest value in 1 of 27 cases, more than 2.5 %.
    assert (found.bootstrap_low, found.bootstrap_high) == (pytest.approx(0.1), pytest.approx(0.3))
    # 4 bytes per token: 2^0.4 - 1, 2^0.8 - 1, 2^1.2 - 1.
    assert found.perplexity_percent == pytest.approx(100 * (0.3195079 + 0.7411011 + 1.2973967) / 3, rel=1e-6)
    assert dict(found.values) == pytest.approx({"0": 0.1, "1": 0.2, "2": 0.3})
    assert found.verdict == "no difference shown"


def test_one_pair_has_no_spread_and_no_test() -> None:
    found = paired_difference({"7": (make_record(), make_record(tied=False, bits_per_byte=1.5))})
    assert (found.mean, found.values) == (0.5, (("7", 0.5),))
    names = ("sd", "low", "high", "p_value", "sign_flip_p", "bootstrap_low", "minimum_detectable", "holm_p")
    assert {getattr(found, name) for name in names} == {None}
