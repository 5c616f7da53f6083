from typing import Any

import pytest

from report_records import collected, make_config, make_record
from tielab.config import SCHEME_DEFAULTS, SCHEME_KEYS
from tielab.errors import RequestError
from tielab.record import Record
from tielab.report.arms import Scheme, arm_name, in_order, references, scheme_name, scheme_of
from tielab.report.compare import compare


def config(tied: bool, **changes: Any) -> dict[str, Any]:
    """A config whose scheme keys are set by their last name."""
    made = make_config(tied=tied, seed=0)
    for name, value in changes.items():
        made["optimizer" if "learning_rate" in name else "model"][name] = value
    return made


def scheme(tied: bool, **changes: Any) -> Scheme:
    return scheme_of(config(tied, **changes))


def run(tied: bool, seed: int, bits_per_byte: float, **changes: Any) -> Record:
    record = make_record(tied=tied, seed=seed, bits_per_byte=bits_per_byte)
    made = config(tied, **changes)
    for section in ("model", "optimizer"):
        record.config[section] |= {key: made[section][key] for key in changes if key in made[section]}
    return record


def test_a_config_from_before_there_were_schemes_has_the_defaults() -> None:
    assert scheme_of(make_config(tied=True, seed=0)) == {"model.tied": True} | SCHEME_DEFAULTS
    assert tuple(scheme(False)) == SCHEME_KEYS


@pytest.mark.parametrize(
    ("tied", "changes", "name"),
    [
        (True, {}, "tied"),
        (False, {}, "untied"),
        (True, {"head_map": "none", "embed_frozen": False, "untie_at": None}, "tied"),
        (True, {"head_map": "permutation"}, "tied, head_map permutation"),
        (False, {"embed_frozen": True}, "untied, embed_frozen true"),
        (
            True,
            {"head_map_rank": 8, "head_map": "linear", "embed_scale": 8.0},
            "tied, embed_scale 8.0, head_map linear, head_map_rank 8",
        ),
        (False, {"head_learning_rate_scale": 0.3}, "untied, head_learning_rate_scale 0.3"),
    ],
)
def test_an_arm_is_named_by_what_is_not_the_default(tied: bool, changes: dict[str, Any], name: str) -> None:
    assert arm_name(config(tied, **changes)) == name


def test_every_scheme_key_makes_another_arm() -> None:
    names = {scheme_name({"model.tied": True} | SCHEME_DEFAULTS | {key: "x"}) for key in SCHEME_DEFAULTS}
    assert len(names | {"tied", "untied"}) == len(SCHEME_KEYS) + 1


def test_arms_are_ordered_tied_untied_then_by_what_they_change() -> None:
    schemes = [
        scheme(False, embed_scale=8.0), scheme(True, head_map="linear"), scheme(False),
        scheme(True, embed_scale=16.0), scheme(True, embed_scale=8.0), scheme(True), scheme(True),
    ]  # fmt: skip
    assert in_order(schemes) == [
        "tied", "untied", "tied, head_map linear", "tied, embed_scale 8.0", "untied, embed_scale 8.0",
        "tied, embed_scale 16.0",
    ]  # fmt: skip


def test_references() -> None:
    plain = [scheme(True), scheme(False)]
    scaled = [scheme(True, embed_scale=8.0), scheme(False, embed_scale=8.0)]
    mapped = scheme(True, head_map="rotation")
    assert references(plain) == {"tied": "untied"}
    assert references([*plain, *scaled, mapped]) == {
        "tied": "untied",
        "tied, embed_scale 8.0": "untied, embed_scale 8.0",
        "untied, embed_scale 8.0": "untied",
        "tied, head_map rotation": "untied",
    }
    assert references(scaled) == {"tied, embed_scale 8.0": "untied, embed_scale 8.0"}
    # Without an untied arm the plain tied one.
    assert references([plain[0], mapped]) == {"tied, head_map rotation": "tied"}
    assert references([mapped]) == {}


def test_a_baseline_is_the_reference_of_all_others() -> None:
    schemes = [scheme(True), scheme(False), scheme(True, head_map="rotation")]
    assert references(schemes, "tied") == {"untied": "tied", "tied, head_map rotation": "tied"}
    assert references(schemes, "tied, head_map rotation") == {
        "tied": "tied, head_map rotation", "untied": "tied, head_map rotation",
    }  # fmt: skip


def test_where_sizes_were_solved_the_plain_arm_is_the_reference() -> None:
    plain = [scheme(True), scheme(False)]
    low_rank = [scheme(True, embed_rank=16), scheme(False, embed_rank=16)]
    assert references([*plain, *low_rank], adjusted="tied") == {
        "tied": "untied",
        "tied, embed_rank 16": "untied",
        "untied, embed_rank 16": "untied",
    }
    assert references([*plain, *low_rank], adjusted="untied") == {
        "tied": "untied",
        "tied, embed_rank 16": "untied",
        "untied, embed_rank 16": "tied",
    }
    # Without a plain one the twin, as at equal width.
    assert references(low_rank, adjusted="tied") == {"tied, embed_rank 16": "untied, embed_rank 16"}
    assert references([*plain, *low_rank], "tied", adjusted="tied")["untied, embed_rank 16"] == "tied"


def test_an_unknown_baseline_is_refused_with_the_arms_there_are() -> None:
    with pytest.raises(RequestError, match="--baseline 'foo' is no arm here, found: tied; untied; name one"):
        references([scheme(False), scheme(True)], "foo")


def test_every_arm_is_compared_with_its_reference() -> None:
    runs = [
        record
        for seed, luck in enumerate((0.0, 0.001, -0.001))
        for record in (
            run(True, seed, 2.0 + luck),
            run(False, seed, 1.9),
            run(True, seed, 2.2 + luck, head_map="permutation"),
            run(False, seed, 2.1 + luck, embed_frozen=True),
        )
    ]
    comparison = compare(collected(*runs))
    assert comparison.setting_columns == []
    (group,) = comparison.groups
    assert list(group.arms) == ["tied", "untied", "untied, embed_frozen true", "tied, head_map permutation"]
    means = {
        arm: (found.reference, round(found.difference.mean, 6)) for arm, found in group.differences.items()
    }
    assert means == {
        "tied": ("untied", 0.1),
        "untied, embed_frozen true": ("untied", 0.2),
        "tied, head_map permutation": ("untied", 0.3),
    }
    assert list(comparison.table["arm"]) == list(group.arms)
    assert list(comparison.table["reference"].fillna("")) == ["untied", "", "untied", "untied"]
    assert comparison.verdicts[2].startswith("(tied, head_map permutation) \N{MINUS SIGN} untied = +0.3000")
    assert {found.difference.num_cells for found in group.differences.values()} == {3}
    others = compare(collected(*runs), baseline="tied").groups[0].differences
    assert {(arm, found.reference) for arm, found in others.items()} == {
        (arm, "tied") for arm in group.arms if arm != "tied"
    }


def test_a_note_says_which_of_several_differences_a_seed_is_missing_from() -> None:
    runs = [run(tied, seed, 2.0 + seed) for tied in (True, False) for seed in (0, 1)]
    notes = compare(collected(*runs, run(True, 0, 2.0, head_map="linear"))).notes
    assert (
        "(tied, head_map linear) \N{MINUS SIGN} untied: seed 1: untied run only: part of the mean, "
        "not of the difference" in notes
    )


def test_arms_without_a_common_reference_ask_for_a_baseline() -> None:
    runs = [run(True, 0, 2.0, embed_scale=8.0), run(False, 0, 2.0, embed_frozen=True)]
    (verdict,) = compare(collected(*runs)).verdicts
    assert verdict == (
        "no arm among untied, embed_frozen true; tied, embed_scale 8.0 is the reference of another: "
        "name one with --baseline"
    )
    (verdict,) = compare(collected(*runs), "untied, embed_frozen true").verdicts
    assert verdict.startswith("(tied, embed_scale 8.0) \N{MINUS SIGN} (untied, embed_frozen true) = +0.0000")
