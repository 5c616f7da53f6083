import json
from typing import Any

import pytest

from report_records import collected, make_record, make_validation
from tielab.record import Record
from tielab.report.compare import compare
from tielab.report.render import to_json

# The band is 0.0018 bits per byte: 0.005 nats for each of 10,000 tokens over 40,000 bytes.


def scored(tied: bool, seed: int, bits: float, others: dict[str, float], **changes: Any) -> Record:
    """A run at stride 64, scored at other strides too."""
    record = make_record(tied=tied, seed=seed, bits_per_byte=bits)
    validations = {stride: make_validation(value) | changes for stride, value in others.items()}
    record.stride_validations = validations  # type: ignore[attr-defined]
    return record


def study(shift: float, **changes: Any) -> list[Record]:
    """Differences 0.11 and 0.09 at stride 64, larger by ``shift`` at stride 16."""
    return [
        record
        for seed, difference in enumerate((0.11, 0.09))
        for record in (
            scored(True, seed, 2.0 + difference, {"16": 1.9 + difference + shift, "32": 1.95 + difference}),
            scored(False, seed, 2.0, {"16": 1.9, "32": 1.95}, **changes),
        )
    ]


def test_a_difference_that_stays_within_the_band_is_stable() -> None:
    comparison = compare(collected(*study(0.001)))
    assert (
        "paired difference at stride 64 +0.1000, 32 +0.1000, 16 +0.1010: stable "
        "(changes by 0.0010 bits/byte at most, under 0.5 % perplexity)"
    ) in comparison.notes
    assert "changes with the evaluation stride" not in comparison.verdicts[0]
    (difference,) = json.loads(to_json(comparison))["differences"]
    assert difference["strides"]["stable"] is True
    assert difference["strides"]["means"] == pytest.approx({"64": 0.1, "32": 0.1, "16": 0.101})


@pytest.mark.parametrize("shift", [0.004, -0.004])
def test_a_difference_that_depends_on_the_stride_is_said_in_the_verdict(shift: float) -> None:
    comparison = compare(collected(*study(shift)))
    assert "the difference changes with the evaluation stride, the notes say how" in comparison.verdicts[0]
    (note,) = [note for note in comparison.notes if "at stride" in note]
    assert note.endswith("changes with the stride (by 0.0040 bits/byte at most, over 0.5 % perplexity)")


def test_only_strides_at_which_every_run_was_scored_on_one_text_count() -> None:
    records = study(0.001)
    del records[0].stride_validations["16"]  # type: ignore[attr-defined]
    records[1].stride_validations["32"]["content_hash"] = "other"  # type: ignore[attr-defined]
    assert not any("at stride" in note for note in compare(collected(*records)).notes)


def test_old_records_have_one_stride() -> None:
    records = [make_record(), make_record(tied=False)]
    assert not any("at stride" in note for note in compare(collected(*records)).notes)
