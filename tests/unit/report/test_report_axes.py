from typing import Any

import pytest

from report_records import collected, make_record
from tielab.record import Record
from tielab.report.axes import axis_of, axis_rank
from tielab.report.compare import Comparison, compare
from tielab.report.wording import equal_flops_text


def solved(
    seed: int, bits: float, *, axis: str = "params", embed_dim: int = 160, tied: bool = True, **changes: Any
) -> Record:
    """A run of width 160 that was asked for 128."""
    record = make_record(
        tied=tied, seed=seed, bits_per_byte=bits, embed_dim=embed_dim, body_hash=f"wide-{seed}", **changes
    )
    requested = {"model.embed_dim": 128, "model.num_heads": 4, "model.hidden_dim": 512}
    record.config["matching"] = {"axis": axis, "adjusted": "tied" if tied else "untied", "by": "width"}
    target = make_record(tied=not tied).parameters["total"]
    record.matching = record.config["matching"] | {
        "requested": requested,
        "solved": {
            "model.embed_dim": embed_dim,
            "model.num_heads": embed_dim // 32,
            "model.hidden_dim": 4 * embed_dim,
        },
        "parameters": record.parameters["total"],
        "target_parameters": target,
        "parameter_mismatch": -0.0099,
        "flops_ratio": 1.25,
    }
    return record


def plain(tied: bool, seed: int, bits: float, axis: str = "width", **changes: Any) -> Record:
    record = make_record(tied=tied, seed=seed, bits_per_byte=bits, **changes)
    record.config["matching"] = {"axis": axis, "adjusted": "tied", "by": "width"}
    return record


def seen(comparison: Comparison) -> dict[Any, dict[str, float]]:
    """By axis and arm the mean difference, or the number of runs where there is none."""
    return {
        group.values.get("matching"): {
            arm: round(group.differences[arm].difference.mean, 6) if arm in group.differences else len(runs)
            for arm, runs in group.arms.items()
        }
        for group in comparison.groups
    }


def test_a_solved_run_stands_beside_the_untied_one_of_its_setting() -> None:
    records = [
        record for seed in range(2) for record in (solved(seed, 2.0), plain(False, seed, 1.9, "params"))
    ]
    comparison = compare(collected(*records))
    assert comparison.setting_columns == ["matching"]
    assert seen(comparison) == {"params": {"tied": 0.1, "untied": 2}}
    assert (
        "matching params: tied has embed_dim 160 (asked 128), num_heads 5 (asked 4), "
        "hidden_dim 640 (asked 512), parameters -0.99 % off those matched, 1.250 times the FLOPs per token"
    ) in comparison.notes


def test_an_untied_run_is_the_partner_on_every_axis_and_counts_once() -> None:
    records = [
        record
        for seed in range(2)
        for record in (
            solved(seed, 2.0), solved(seed, 1.95, axis="flops"), plain(True, seed, 2.1),
            plain(False, seed, 1.9),
        )
    ]  # fmt: skip
    comparison = compare(collected(*records))
    assert comparison.setting_columns == ["matching"]
    assert list(comparison.table["matching"]) == ["width", "width", "params", "params", "flops", "flops"]
    assert seen(comparison) == {
        "width": {"tied": 0.2, "untied": 2},
        "params": {"tied": 0.1, "untied": 2},
        "flops": {"tied": 0.05, "untied": 2},
    }
    assert comparison.headline == "8 runs, all finished"
    assert [verdict.split(":")[0] for verdict in comparison.verdicts] == [
        "matching width", "matching params", "matching flops",
    ]  # fmt: skip


def test_a_tied_run_of_the_asked_width_does_not_take_a_failed_solved_ones_place() -> None:
    records = [
        solved(0, 2.0, status="failed"), solved(1, 2.0), plain(True, 0, 2.1), plain(True, 1, 2.1),
        plain(False, 0, 1.9), plain(False, 1, 1.9),
    ]  # fmt: skip
    comparison = compare(collected(*records))
    assert seen(comparison) == {"width": {"tied": 0.2, "untied": 2}, "params": {"tied": 0.1, "untied": 2}}
    assert comparison.groups[1].differences["tied"].difference.num_pairs == 1


def scaled(record: Record, total: int | None = None, **model: Any) -> Record:
    """The record of another arm, and of another size if one is given."""
    record.config["model"] |= model
    record.run_id += str(model)
    if total is not None:
        record.parameters = record.parameters | {"total": total}
        if record.matching:
            record.matching |= {"parameters": total}
    return record


RANK = "embed_rank 16"


def by_depth(record: Record) -> Record:
    """The record on the axis of equal parameters by depth."""
    record.config["matching"]["by"] = "depth"
    if record.matching:
        record.matching["by"] = "depth"
    return record


@pytest.mark.parametrize("asked", ["params", "width"])
def test_a_tied_run_that_needs_no_other_size_stands_on_its_axis_whatever_it_asked(asked: str) -> None:
    """Of equal jobs only the first of a sweep is run: it may be that of either axis."""
    total = make_record(tied=False).parameters["total"]
    records = [
        record
        for seed in range(2)
        for record in (
            scaled(by_depth(plain(True, seed, 2.1, asked)), round(0.96 * total)),
            by_depth(plain(False, seed, 1.9, asked)),
            scaled(by_depth(solved(seed, 2.0)), embed_rank=16),
        )
    ]
    comparison = compare(collected(*records))
    assert seen(comparison) == {
        "width": {"tied": 0.2, "untied": 2},
        "params by depth": {"tied": 0.2, "untied": 2, f"tied, {RANK}": 0.1},
    }
    assert not any("had to be solved" in note for note in comparison.notes)
    assert "; at equal parameters (-4.0 %)" in comparison.verdicts[1]
    # One that is farther off was asked for equal width, and stands there alone.
    for record in records[::3]:
        record.parameters["total"] = round(0.94 * total)
        record.config["matching"]["axis"] = "width"
    assert list(seen(compare(collected(*records)))["params by depth"]) == ["untied", f"tied, {RANK}"]


@pytest.mark.parametrize(("tokens_seen", "stands"), [(960_000, True), (900_000, False)])
def test_equal_flops_are_those_of_the_whole_training(tokens_seen: int, stands: bool) -> None:
    total, flops = make_record(tied=False).parameters["total"], {"flops_per_token": {"train": 6}}
    other = scaled(solved(0, 2.0, axis="flops", **flops), embed_rank=16)
    assert other.matching
    other.matching["target_train_flops"] = 6_000_000
    tied = scaled(plain(True, 0, 2.1, **flops, tokens_seen=tokens_seen), total)
    arms = seen(compare(collected(other, tied, plain(False, 0, 1.9, **flops))))["flops"]
    assert ("tied" in arms) is stands


def test_equal_time_is_met_by_what_it_was_measured_for() -> None:
    """Nothing in a record says whether another arm takes as long."""
    frozen = scaled(plain(False, 0, 2.0), embed_frozen=True)
    records = [solved(0, 2.0, axis="time"), plain(True, 0, 2.1), plain(False, 0, 1.9), frozen]
    assert list(seen(compare(collected(*records)))["time"]) == ["tied", "untied"]


def test_a_note_says_that_no_size_had_to_be_solved() -> None:
    records = [plain(tied, 0, 2.0, "params") for tied in (True, False)]
    comparison = compare(collected(*records))
    assert comparison.setting_columns == []
    assert "matching params: no size had to be solved, tied meets it as asked" in comparison.notes
    at_width = compare(collected(plain(True, 0, 2.0), plain(False, 0, 2.0, "params")))
    assert not any("had to be solved" in note for note in at_width.notes)


def test_on_a_solved_axis_an_arm_is_compared_with_the_one_its_size_was_solved_to_meet() -> None:
    total = make_record(tied=False).parameters["total"]
    records = [
        record
        for seed in range(2)
        for record in (
            solved(seed, 2.0), plain(False, seed, 1.9, "params"), scaled(solved(seed, 1.95), embed_rank=16),
            scaled(plain(False, seed, 2.2, "params"), total // 2, embed_rank=16),
        )
    ]  # fmt: skip
    comparison = compare(collected(*records))
    assert seen(comparison) == {
        # The two that were left alone are compared where they were left, and nowhere else.
        "width": {"untied": 2, f"untied, {RANK}": 0.3},
        "params": {"tied": 0.1, "untied": 2, f"tied, {RANK}": 0.05},
    }
    params = comparison.groups[1]
    assert params.axis.name == "params"
    assert {found.reference for found in params.differences.values()} == {"untied"}
    assert not any(" adds " in verdict for verdict in comparison.verdicts[1:])
    # A baseline of another size does not stand there.
    verdicts = compare(collected(*records), f"untied, {RANK}").verdicts
    assert (
        f"matching params: tied: no finished untied, {RANK} run that meets matching params, so no comparison"
        in verdicts
    )


def test_a_baseline_of_equal_size_is_compared_with_the_solved_arms_alone() -> None:
    records = [
        solved(0, 2.0), plain(False, 0, 1.9, "params"),
        scaled(plain(False, 0, 2.2, "params"), embed_frozen=True),
    ]  # fmt: skip
    frozen = "untied, embed_frozen true"
    assert seen(compare(collected(*records)))["params"] == {"tied": 0.1, "untied": 1, frozen: 1}
    assert seen(compare(collected(*records), frozen))["params"] == {"tied": -0.2, "untied": 1, frozen: 1}


def test_arms_that_were_all_left_alone_are_compared_at_equal_width() -> None:
    frozen = scaled(plain(False, 0, 2.2, "params"), embed_frozen=True)
    comparison = compare(collected(solved(0, 2.0), plain(False, 0, 1.9, "params"), frozen))
    assert seen(comparison)["width"] == {"untied": 1, "untied, embed_frozen true": 0.3}


def test_an_arm_that_was_solved_does_not_stand_beside_itself_at_the_asked_width() -> None:
    near = scaled(plain(True, 0, 2.1), make_record(tied=False).parameters["total"])
    near.started_at = "2027-01-01T00:00:00+00:00"
    comparison = compare(collected(solved(0, 2.0), near, plain(False, 0, 1.9)))
    assert seen(comparison) == {"width": {"tied": 0.2, "untied": 1}, "params": {"tied": 0.1, "untied": 1}}
    assert not any("not counted" in note for note in comparison.notes)


def test_a_pair_whose_parameters_do_not_meet_is_refused() -> None:
    smaller = scaled(plain(False, 0, 1.9, "params"), 1_500_000)
    comparison = compare(collected(solved(0, 2.0), smaller))
    assert seen(comparison) == {"params": {"tied": 1, "untied": 1}}
    assert (
        "matching params: seed 0: pair refused: parameters.total differs (tied 1884160, untied 1500000): "
        "more than 5 % apart, so not matched" in comparison.notes
    )


def test_one_axis_is_among_what_was_held_fixed() -> None:
    width = [plain(True, 0, 2.0), plain(False, 0, 2.0)]
    params = [solved(0, 2.0), plain(False, 0, 2.0, "params")]
    assert compare(collected(*width)).fixed["matching"] == "width"
    assert compare(collected(*params)).fixed["matching"] == "params"
    assert "matching" not in compare(collected(*width, *params[:1])).fixed


def test_comparisons_of_the_same_runs_on_two_axes_are_one_test() -> None:
    frozen = {"embed_frozen": True}
    records = [
        record
        for seed in range(3)
        for record in (
            solved(seed, 2.0 + seed / 100), plain(True, seed, 2.1 + seed / 90), plain(False, seed, 1.9),
            plain(False, seed, 1.8 + seed / 80),
        )
    ]  # fmt: skip
    for record in records[3::4]:
        record.config["model"] |= frozen
    comparison = compare(collected(*records))
    cells = [
        (group.values["matching"], arm, found.difference.num_cells)
        for group in comparison.groups
        for arm, found in group.differences.items()
    ]
    frozen_arm = "untied, embed_frozen true"
    assert cells == [
        ("width", "tied", 3), ("width", frozen_arm, 3), ("params", "tied", 3),
    ]  # fmt: skip


def test_tied_and_untied_sizes_that_were_both_solved_are_not_paired() -> None:
    records = [
        solved(0, 2.0),
        solved(0, 1.9, tied=False, embed_dim=100),
        plain(True, 0, 2.1),
        plain(False, 0, 2.0),
    ]
    comparison = compare(collected(*records))
    assert seen(comparison) == {
        "width": {"tied": 0.1, "untied": 1},
        "params": {"tied": 0.0, "untied": 1},
        "params, untied adjusted": {"tied": 0.2, "untied": 1},
    }


@pytest.mark.parametrize(
    ("matching", "name"),
    [
        ({"axis": "params", "adjusted": "tied", "by": "width"}, "params"),
        ({"axis": "params", "adjusted": "tied", "by": "depth"}, "params by depth"),
        ({"axis": "flops", "adjusted": "untied", "by": "depth"}, "flops by depth, untied adjusted"),
        ({"axis": "time", "adjusted": "tied", "by": "depth"}, "time"),
        ({"axis": "flops"}, "flops"),
    ],
)
def test_an_axis_is_named_by_what_is_not_usual(matching: dict[str, str], name: str) -> None:
    assert axis_of(matching).name == name


def test_axes_are_ordered_from_equal_width_on() -> None:
    names = ["time", "params, untied adjusted", "flops", "width", "params by depth", "params"]
    assert sorted(names, key=axis_rank) == [
        "width", "params", "params by depth", "params, untied adjusted", "flops", "time",
    ]  # fmt: skip


def test_equal_flops_are_said_with_the_tokens_they_took() -> None:
    said = equal_flops_text(997, 1000, 5760, 8192)
    assert said == "at equal training FLOPs (-0.3 %), with 5,760 tokens against 8,192"
