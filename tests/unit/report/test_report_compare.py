import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from report_records import collected, make_config, make_record, make_validation
from tielab.record import Record
from tielab.report.collect import Collected, CollectedRun, UnreadableRun
from tielab.report.compare import Comparison, compare
from tielab.report.render import to_plain
from tielab.report.statistics import minimum_detectable


def both_arms(tied: list[float], untied: list[float], **changes: Any) -> list[Record]:
    arms = ((True, tied), (False, untied))
    return [
        make_record(tied=arm, seed=seed, bits_per_byte=bits, **changes)
        for arm, values in arms
        for seed, bits in enumerate(values)
    ]


def row(comparison: Comparison, **wanted: Any) -> dict[str, Any]:
    table = comparison.table
    for name, value in wanted.items():
        table = table[table[name] == value]
    assert len(table) == 1
    return dict(table.iloc[0])


def test_one_seed_gives_the_plain_difference_and_no_claim() -> None:
    comparison = compare(collected(*both_arms([2.0], [1.75])))
    tied = row(comparison, tied=True)
    assert (tied["n"], tied["num_pairs"]) == (1, 1)
    assert tied["difference_bits_per_byte"] == 0.25
    assert math.isnan(tied["difference_low"])
    assert math.isnan(tied["bits_per_byte_sd"])
    # 40,000 bytes over 10,000 tokens: 4 bytes per token, so perplexity = 2 ** (4 * bits per byte).
    assert tied["perplexity"] == pytest.approx(256)
    assert tied["difference_perplexity_percent"] == pytest.approx(100)
    assert comparison.verdicts == [
        "tied \N{MINUS SIGN} untied = +0.2500 bits/byte, +100.0 % perplexity (one seed: no claim); "
        "tied saves 524,288 parameters (29 %)"
    ]


def test_two_seeds_by_hand() -> None:
    comparison = compare(collected(*both_arms([2.0, 2.5], [1.75, 1.5])))
    tied, untied = row(comparison, tied=True), row(comparison, tied=False)
    assert (tied["bits_per_byte"], untied["bits_per_byte"]) == (2.25, 1.625)
    assert tied["bits_per_byte_sd"] == pytest.approx(0.5 / math.sqrt(2))
    # Differences 0.25 and 1.0: mean 0.625, sd 0.5303301, t(1, 97.5 %) = 12.7062047, margin 4.7648268.
    assert tied["difference_bits_per_byte"] == 0.625
    assert tied["difference_low"] == pytest.approx(-4.1398268)
    assert tied["difference_high"] == pytest.approx(5.3898268)
    # One degree of freedom: t = 0.625 / 0.375 = 5 / 3, p = 1 - 2 / pi * atan(5 / 3) = 0.344.
    assert "2 seeds, p = 0.34): no difference shown" in comparison.verdicts[0]


def test_three_seeds_by_hand() -> None:
    comparison = compare(collected(*both_arms([2.1, 2.2, 2.4], [2.0, 2.0, 2.1])))
    tied = row(comparison, tied=True)
    # Differences 0.1, 0.2, 0.3: mean 0.2, sd 0.1, t(2, 97.5 %) = 4.3026527, margin 0.2484138.
    assert tied["bits_per_byte"] == pytest.approx(2.2333333)
    assert tied["bits_per_byte_sd"] == pytest.approx(0.1527525)
    assert tied["difference_bits_per_byte"] == pytest.approx(0.2)
    assert tied["difference_low"] == pytest.approx(-0.0484138)
    assert tied["difference_high"] == pytest.approx(0.4484138)


@pytest.mark.parametrize(
    ("shift", "verdict"), [(0.5, "untied better by 0.5000"), (-0.5, "tied better by 0.5000")]
)
def test_equal_differences_give_a_point_interval_not_nan(shift: float, verdict: str) -> None:
    comparison = compare(collected(*both_arms([2.0 + shift, 3.0 + shift], [2.0, 3.0])))
    tied = row(comparison, tied=True)
    assert tied["difference_low"] == tied["difference_high"] == shift
    assert f": {verdict} bits/byte" in comparison.verdicts[0]


def test_identical_arms_are_equivalent() -> None:
    comparison = compare(collected(*both_arms([2.0, 3.0], [2.0, 3.0])))
    assert "+0.0000 bits/byte, +0.0 % perplexity" in comparison.verdicts[0]
    assert ": equivalent within 0.5 % perplexity" in comparison.verdicts[0]


bits_values = st.floats(0.5, 8.0)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(bits_values, bits_values), min_size=1, max_size=8))
def test_the_mean_of_paired_differences_is_the_difference_of_the_means(
    values: list[tuple[float, float]],
) -> None:
    comparison = compare(collected(*both_arms([a for a, _ in values], [b for _, b in values])))
    tied, untied = row(comparison, tied=True), row(comparison, tied=False)
    expected = tied["bits_per_byte"] - untied["bits_per_byte"]
    assert tied["difference_bits_per_byte"] == pytest.approx(expected, abs=1e-12)
    if len(values) > 1:
        assert tied["difference_low"] <= tied["difference_bits_per_byte"] <= tied["difference_high"]


def other_data(**changes: str) -> dict[str, Any]:
    return {"data": make_record().data | changes}


CHANGES: list[tuple[str, dict[str, Any]]] = [
    ("validation.content_hash", {"validation": make_validation(2.0) | {"content_hash": "other"}}),
    ("validation.num_tokens", {"validation": make_validation(2.0) | {"num_tokens": 9_999}}),
    (
        "data.corpus_hash",
        other_data(corpus_hash="other"),
    ),
    ("data.tokenizer_hash", other_data(tokenizer_hash="other")),
    ("body_hash", {"body_hash": "other"}),
    ("body_hash", {"body_hash": None}),
    ("batch_hash", {"batch_hash": "other"}),
    ("tokens_seen", {"tokens_seen": 999_999}),
    ("num_processes", {"num_processes": 2}),
]


@pytest.mark.parametrize(("name", "changes"), CHANGES)
def test_a_pair_that_differs_elsewhere_is_refused(name: str, changes: dict[str, Any]) -> None:
    comparison = compare(collected(make_record(), make_record(tied=False, **changes)))
    refused = [note for note in comparison.notes if "pair refused" in note]
    assert len(refused) == 1
    assert refused[0].startswith(f"seed 0: pair refused: {name} differs (tied ")
    assert row(comparison, tied=True)["num_pairs"] == 0
    assert comparison.verdicts == ["no pair of runs may be compared, the notes say why"]


def test_a_refusal_names_both_values() -> None:
    comparison = compare(
        collected(make_record(body_hash="1" * 64), make_record(tied=False, body_hash="2" * 64))
    )
    assert comparison.notes[0].endswith("body_hash differs (tied 111111111111, untied 222222222222)")
    comparison = compare(collected(make_record(body_hash=None), make_record(tied=False, batch_hash=None)))
    assert comparison.notes[0].endswith(
        "body_hash differs (tied missing, untied body-0); batch_hash differs (tied batch-0, untied missing)"
    )


def test_hashes_missing_on_both_sides_are_equal() -> None:
    comparison = compare(collected(*both_arms([2.0], [1.75], body_hash=None, batch_hash=None)))
    assert row(comparison, tied=True)["num_pairs"] == 1


def test_other_precision_is_another_setting() -> None:
    config = make_config(tied=False, seed=0)
    config["trainer"]["precision"] = "bf16-mixed"
    comparison = compare(collected(make_record(), make_record(tied=False, config=config)))
    assert comparison.setting_columns == ["trainer.precision"]
    assert comparison.verdicts == [
        "trainer.precision 32-true: no finished untied run, so no comparison",
        "trainer.precision bf16-mixed: no finished tied run, so no comparison",
    ]


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({"commit": "b" * 40}, "commit differs (tied aaaaaaaaaaaa, untied bbbbbbbbbbbb)"),
        ({"dirty": True}, "dirty differs (tied False, untied True)"),
        ({"device": "H200"}, "device differs (tied cpu, untied H200): throughput and memory cannot"),
    ],
)
def test_other_code_or_device_is_a_warning(changes: dict[str, Any], note: str) -> None:
    comparison = compare(collected(make_record(), make_record(tied=False, **changes)))
    assert row(comparison, tied=True)["num_pairs"] == 1
    assert any(f"seed 0: {note}" in line for line in comparison.notes)


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        (
            {"status": "failed", "error": {"type": "OSError", "message": "\x1b[31mdisk full\x1b[0m\nmore"}},
            "failed: disk full",
        ),
        ({"status": "failed", "error": None}, "failed"),
        ({"status": "interrupted"}, "interrupted"),
        ({"status": "running", "validation": None}, "running"),
        ({"tie_observed": False}, "not compared: configured tied, but tie_observed is False"),
        ({"tie_observed": None}, "not compared: configured tied, but tie_observed is None"),
        ({"validation": None}, "finished without a valid validation: nats is None"),
        (
            {"validation": make_validation(2.0) | {"bits_per_byte": math.nan}},
            "finished without a valid validation: bits_per_byte is nan",
        ),
    ],
)
def test_a_run_without_a_number_is_a_note(changes: dict[str, Any], note: str) -> None:
    comparison = compare(collected(*both_arms([2.0], [2.1]), make_record(seed=7, **changes)))
    assert comparison.notes[0].startswith(f"run2 (tied, seed 7): {note}")
    assert list(comparison.table["n"]) == [1, 1]
    assert comparison.headline == "2 of 3 runs give numbers, the notes say why the others do not"


def test_a_run_that_went_on_with_other_code_is_said() -> None:
    changed = make_record(code_hash="new", resumed_at_step=7, attempts=[{"code_hash": "old"}])
    anew = make_record(tied=False, code_hash="new", attempts=[{"code_hash": "old"}])
    same = make_record(seed=1, code_hash="new", resumed_at_step=7, attempts=[{"code_hash": "new"}])
    notes = [note for note in compare(collected(changed, anew, same)).notes if "other code" in note]
    assert notes == ["run0 (tied, seed 0): went on at step 7 with other code (code_hash old, new)"]


def test_nothing_finished_leaves_notes_and_an_empty_table() -> None:
    comparison = compare(collected(make_record(status="failed"), make_record(tied=False, status="failed")))
    assert comparison.table.empty
    assert comparison.verdicts == []
    assert len(comparison.notes) == 2


def test_unreadable_runs_are_notes() -> None:
    unreadable = [UnreadableRun(Path("bad"), "not JSON")]
    comparison = compare(Collected([CollectedRun(Path("run"), make_record())], unreadable))
    assert "bad: cannot be read: not JSON" in comparison.notes


def test_of_repeated_runs_the_latest_started_counts() -> None:
    late = make_record(bits_per_byte=1.0, started_at="2026-02-01T00:00:00+00:00")
    early = make_record(bits_per_byte=3.0, started_at="2026-01-01T00:00:00+00:00")
    comparison = compare(collected(late, early))
    assert row(comparison, tied=True)["bits_per_byte"] == 1.0
    assert "run1: not counted, run0 (tied, seed 0) repeats it and started later" in comparison.notes


def test_a_seed_of_one_arm_only_is_in_the_mean_and_not_in_the_difference() -> None:
    comparison = compare(collected(*both_arms([2.0, 3.0, 7.0], [1.0, 1.0])))
    tied = row(comparison, tied=True)
    assert (tied["bits_per_byte"], tied["difference_bits_per_byte"], tied["num_pairs"]) == (4.0, 1.5, 2)
    assert "seed 2: tied run only: part of the mean, not of the difference" in comparison.notes


def test_the_data_seed_alone_makes_another_pair() -> None:
    records = both_arms([2.0], [1.0]) + both_arms([2.5], [1.0])
    for record in records[2:]:
        record.config["data"]["seed"] = 5
    comparison = compare(collected(*records))
    assert row(comparison, tied=True)["num_pairs"] == 2
    assert comparison.setting_columns == []


def test_setting_columns_are_what_varies_and_twins_collapse() -> None:
    records = [
        record
        for vocab_size in (4096, 512)
        for embed_dim in (128, 64)
        for record in both_arms([2.0], [2.0], vocab_size=vocab_size, embed_dim=embed_dim)
    ]
    comparison = compare(collected(*records))
    assert comparison.setting_columns == ["vocab_size", "embed_dim"]
    rows = comparison.table[["vocab_size", "embed_dim", "tied"]].to_numpy().tolist()
    assert rows == [
        [vocab_size, embed_dim, tied]
        for vocab_size in (512, 4096)
        for embed_dim in (64, 128)
        for tied in (True, False)
    ]
    assert "embed_dim stands for num_heads, hidden_dim too: they always change together" in comparison.notes
    assert not any("vocab_size stands for" in note for note in comparison.notes)


def test_run_only_keys_are_no_setting() -> None:
    records = both_arms([2.0], [2.0])
    records[0].config |= {"launch": "inline", "logger": {"wandb": {"project": "x"}}}
    records[0].config["callbacks"]["progress"] = None
    comparison = compare(collected(*records))
    assert comparison.setting_columns == []
    assert row(comparison, tied=True)["num_pairs"] == 1


def test_an_unusual_key_keeps_its_dotted_name() -> None:
    records = both_arms([2.0], [2.0]) + both_arms([2.0], [2.0])
    for record in records[2:]:
        record.config["optimizer"] |= {"weight_decay": 0.0, "fused": True}
    comparison = compare(collected(*records))
    assert comparison.setting_columns == ["optimizer.weight_decay"]
    assert list(comparison.table["optimizer.weight_decay"]) == [0.0, 0.0, 0.1, 0.1]


def test_a_char_vocabulary_takes_its_size_from_the_data() -> None:
    records = both_arms([2.0], [2.0]) + both_arms([2.0], [2.0], vocab_size=512)
    for record in records[:2]:
        record.config["model"]["vocab_size"] = record.config["data"]["tokenizer"]["vocab_size"] = None
        record.data["vocab_size"] = 97
    failed = make_record(status="failed", data={}, config=make_config(tied=True, seed=0, vocab_size=None))
    comparison = compare(collected(*records, failed))
    assert list(comparison.table["vocab_size"]) == [97, 97, 512, 512]
    assert comparison.notes[0].startswith("run4 (vocab_size none, tied, seed 0): failed")


@pytest.mark.parametrize(("value", "text"), [("a\nb", '"a\\nb"'), (True, "true"), (["x"], '["x"]')])
def test_a_setting_value_that_is_no_word_or_number_is_shown_as_json(value: Any, text: str) -> None:
    records = both_arms([2.0], [2.0])
    for record in records:
        record.config["data"]["paths"] = value
    comparison = compare(collected(*records, *both_arms([2.0], [2.0])))
    assert set(comparison.table["data.paths"]) == {"[]", text}


def several_tokenizers() -> list[Record]:
    """The large vocabulary has the higher perplexity and the fewer bits per byte."""
    small = both_arms([2.2], [2.3], vocab_size=512, num_tokens=20_000)
    return both_arms([2.0], [1.9]) + small


def test_across_tokenizers_bits_per_byte_rank_and_perplexity_does_not() -> None:
    comparison = compare(collected(*several_tokenizers()))
    table = comparison.table
    assert list(table["vocab_size"]) == [512, 512, 4096, 4096]
    assert list(table["best_bits_per_byte"]) == [False, False, False, True]
    assert list(table["best_perplexity"]) == [True, False, False, True]
    assert table["perplexity"].iloc[0] < table["perplexity"].iloc[3]
    (note,) = [note for note in comparison.notes if note.startswith("several tokenizers")]
    assert note.endswith(
        "lowest bits per byte first: untied vocab_size 4096 (1.9000); tied vocab_size 4096 (2.0000); "
        "tied vocab_size 512 (2.2000); ..."
    )


def test_different_text_is_said_and_ranked_apart() -> None:
    other = both_arms([1.0], [1.1])
    for record in other:
        record.config["data"]["corpus"] = "code"
        record.data |= {"corpus_hash": "code"}
        assert record.validation
        record.validation["content_hash"] = "code"
    comparison = compare(collected(*both_arms([2.0], [1.9]), *other))
    assert any("the validation text differs" in note for note in comparison.notes)
    assert list(comparison.table["best_bits_per_byte"]) == [True, False, False, True]


def test_several_tokenizers_of_several_texts_are_not_ranked() -> None:
    records = several_tokenizers()
    for record in records[2:]:
        record.data |= {"corpus_hash": "code"}
    notes = compare(collected(*records)).notes
    assert not any("lowest bits per byte first" in note for note in notes)
    assert any("the validation text differs" in note for note in notes)


def test_same_text_is_not_said_to_differ() -> None:
    assert not any("text differs" in note for note in compare(collected(*several_tokenizers())).notes)


def test_cost_is_the_median_speed_and_the_highest_peak() -> None:
    records = both_arms([2.0, 2.0, 2.0], [2.0, 2.0, 2.0])
    for record, speed, peak in zip(records, (100.0, 300.0, 110.0), (7, 9, 8), strict=False):
        record.throughput, record.peak_memory_bytes = {"median": speed}, peak
    for record in records[3:]:
        record.throughput, record.peak_memory_bytes = None, None
    comparison = compare(collected(*records))
    tied, untied = row(comparison, tied=True), row(comparison, tied=False)
    assert (tied["tokens_per_second"], tied["peak_memory_bytes"]) == (110.0, 9)
    assert comparison.table[["tokens_per_second", "peak_memory_bytes"]].isna().to_numpy().tolist() == [
        [False, False],
        [True, True],
    ]
    assert untied["n"] == 3


def at_rate(rate: float, tied: float, untied: float) -> list[Record]:
    records = both_arms([tied], [untied])
    for record in records:
        record.config["optimizer"]["learning_rate"] = rate
    return records


def test_each_arm_is_also_compared_at_its_own_best_learning_rate() -> None:
    records = [*at_rate(0.001, 2.5, 2.0), *at_rate(0.003, 1.75, 2.25), *at_rate(0.01, 2.25, 2.75)]
    comparison = compare(collected(*records))
    assert comparison.setting_columns == ["learning_rate"]
    assert comparison.verdicts[3].startswith(
        "each arm at its own best learning rate (tied 0.003, untied 0.001, chosen on these same runs): "
        "tied \N{MINUS SIGN} untied = -0.2500 bits/byte"
    )
    assert comparison.verdicts[3].endswith("; the best untied rate is the lowest or highest one tried")
    assert not any("every run had learning rate" in note for note in comparison.notes)


@pytest.mark.parametrize("tied_rates", [(0.001, 0.003, 0.01), (0.003,)])
def test_arms_run_at_different_rates_have_no_p_at_their_best(tied_rates: tuple[float, ...]) -> None:
    records = []
    for _ in (0.001, 0.003):
        records += both_arms([1.9, 1.91, 1.92], [2.0, 2.01, 2.03])
    records += both_arms([1.9, 1.91, 1.92], [])
    rates = [rate for rate in (0.001, 0.003) for _ in range(6)] + [0.01] * 3
    for record, rate in zip(records, rates, strict=True):
        record.config["optimizer"]["learning_rate"] = rate
    kept = [r for r, rate in zip(records, rates, strict=True) if not r.tied or rate in tied_rates]
    verdict = compare(collected(*kept)).verdicts[-1]
    tried = ", ".join(map(str, tied_rates))
    assert verdict.endswith(
        f"(no claim: not run at the same learning rates, tied at {tried}, untied at 0.001, 0.003); "
        "the best tied and untied rate is the lowest or highest one tried"
    )
    assert "p =" not in verdict
    same = [r for r, rate in zip(records, rates, strict=True) if rate < 0.01]
    assert "tied better" in compare(collected(*same)).verdicts[-1]


def diverging(records: list[Record], *lost: tuple[bool, int]) -> list[Record]:
    """The records, those of the arms and seeds named with no number for a loss."""
    for record in records:
        if (record.tied, record.seed) in lost:
            record.status, record.validation = "failed", None
            record.error = {"type": "DivergedError", "message": "the validation loss is nan", "traceback": ""}
    return records


def test_a_rate_at_which_a_seed_diverged_is_not_the_best_of_a_sweep() -> None:
    records = []
    for rate, tied in ((0.001, [2.0, 2.0]), (0.002, [1.5, 1.5]), (0.004, [2.2, 2.2])):
        for record in both_arms(tied, [2.1, 2.1]):
            record.config["optimizer"]["learning_rate"] = rate
            records.append(record)
    assert "(tied 0.002, " in compare(collected(*records)).verdicts[-1]
    diverging(records[4:8], (True, 0))
    assert "(tied 0.001, " in compare(collected(*records)).verdicts[-1]
    diverging(records[4:8], (True, 1))  # no tied run is left there, and yet it was tried
    assert "not run at the same" not in compare(collected(*records)).verdicts[-1]


FIVE_BETTER = ([1.9, 1.91, 1.92, 1.9, 1.91], [2.0, 2.01, 2.03, 2.0, 2.0])


def test_the_survivors_of_an_arm_that_diverged_are_not_called_better() -> None:
    comparison = compare(collected(*diverging(both_arms(*FIVE_BETTER), (True, 3), (True, 4))))
    assert ": no claim: tied diverged on 2 of 5 seeds; tied saves" in comparison.verdicts[0]
    assert row(comparison, tied=True)["verdict"] == "no claim: tied diverged on 2 of 5 seeds"
    assert row(comparison, tied=True)["num_pairs"] == 3


def test_a_divergence_of_the_worse_arm_is_said_beside_the_claim() -> None:
    comparison = compare(collected(*diverging(both_arms(*FIVE_BETTER), (False, 0))))
    assert "tied better by 0.1000 bits/byte; untied diverged on 1 of 5 seeds" in comparison.verdicts[0]


def test_an_arm_of_which_all_runs_diverged_is_named() -> None:
    lost = diverging(both_arms(*FIVE_BETTER), *((True, seed) for seed in range(5)))
    assert compare(collected(*lost)).verdicts == [
        "no finished tied run, so no comparison",
        "tied diverged on 5 of 5 seeds",
    ]


def test_a_run_that_failed_or_was_repeated_did_not_diverge() -> None:
    records = diverging(both_arms(*FIVE_BETTER), (True, 3), (True, 4))
    records[3].error = {"type": "OSError", "message": "disk full"}
    records[4].error, records[4].status = None, "interrupted"
    assert "tied better" in compare(collected(*records)).verdicts[0]
    records = diverging(both_arms(*FIVE_BETTER), (True, 3))
    verdict = compare(collected(*records, make_record(seed=3, bits_per_byte=1.9))).verdicts[0]
    assert "tied better" in verdict
    assert "diverged" not in verdict


def test_what_is_detectable_and_equivalent_among_several_cells_is_corrected() -> None:
    # Differences of sd 0.001: standard error 0.001 / sqrt(3) = 0.00057735; t(2, 97.5 %) = 4.3026527.
    near = [-0.0003, 0.0, 0.0003]  # within the band of 0.0018 at 95 and at 97.5 %
    wide = [-0.0006, 0.0, 0.0006]  # at 95 % alone: 0.0014905, and 0.0021497 with t(2, 98.75 %) = 6.2053468
    for values, verdicts in ((near, ("equivalent", "equivalent")), (wide, ("equivalent", "no difference"))):
        cells = [
            both_arms([2.0 + d for d in values], [2.0] * 3, embed_dim=embed_dim) for embed_dim in (64, 128)
        ]
        alone, both = compare(collected(*cells[0])), compare(collected(*cells[0], *cells[1]))
        for comparison, verdict in zip((alone, both), verdicts, strict=True):
            assert f": {verdict}" in comparison.verdicts[0]
        single, several = (c.groups[0].differences["tied"].difference for c in (alone, both))
        assert single.minimum_detectable == pytest.approx(minimum_detectable(values))
        assert several.minimum_detectable == pytest.approx(minimum_detectable(values, 0.025))
    assert "bits/byte would have been detected with 80 % power at p < 0.05/2" in both.verdicts[0]
    assert "detectable: shown with 80 % power at p < 0.05/2" in to_plain(both)
    assert "detectable: shown with 80 % power\n" in to_plain(alone)


def test_a_single_learning_rate_is_said() -> None:
    notes = compare(collected(*both_arms([2.0], [2.0]))).notes
    assert notes == ["every run had learning rate 0.001: not shown to be the best one of either arm"]


def checks(differences: list[float]) -> list[str]:
    """The notes on a study with these differences, without the one on its learning rate."""
    comparison = compare(collected(*both_arms([2.0 + d for d in differences], [2.0] * len(differences))))
    return [note for note in comparison.notes if not note.startswith("every run had")]


def test_a_claim_of_few_seeds_is_said_to_rest_on_the_t_test() -> None:
    few = "a claim from fewer than 6 seeds rests on the t test alone"
    assert [note.split(":")[0] for note in checks([0.1, 0.11, 0.12])] == [few]
    assert checks([0.1, 0.11, 0.12, 0.13, 0.14, 0.15]) == []
    assert checks([0.1, -0.11, 0.12]) == []


def test_equal_differences_have_no_bootstrap_interval_and_that_is_said() -> None:
    assert checks([0.5] * 6) == ["no bootstrap interval as a check: the differences are equal"]


def test_several_cells_are_corrected_together_and_their_number_is_said() -> None:
    # Differences 0.1, 0.14, 0.18: mean 0.14, standard error 0.04 / sqrt(3), t = 6.0622, two degrees of
    # freedom: p = 1 - t / sqrt(2 + t^2) = 0.0261; twice that is no claim any more.
    cell = [0.1, 0.14, 0.18]
    records = [
        record
        for embed_dim in (64, 128)
        for record in both_arms([2.0 + d for d in cell], [2.0] * 3, embed_dim=embed_dim)
    ]
    alone = compare(collected(*records[:6]))
    assert "3 seeds, p = 0.026): untied better by 0.1400 bits/byte" in alone.verdicts[0]
    both = compare(collected(*records))
    assert [verdict.split("3 seeds, ")[1].split(";")[0] for verdict in both.verdicts] == 2 * [
        "p = 0.052 after Holm over 2 cells): no difference shown after Holm correction over 2 cells"
    ]
    assert list(both.table["holm_p"].dropna()) == pytest.approx([0.0522966, 0.0522966], abs=1e-6)
    assert list(both.table["p_value"].dropna()) == pytest.approx([0.0261483, 0.0261483], abs=1e-6)


def test_what_was_held_fixed() -> None:
    fixed = compare(collected(*both_arms([2.0], [2.0]), *both_arms([2.0], [2.0], embed_dim=64))).fixed
    assert (fixed["model.num_layers"], fixed["budget.tokens"]) == (4, 1_000_000)
    assert not {"model.tied", "model.embed_dim", "seed", "model.seed", "launch"} & set(fixed)


def test_a_reference_that_did_not_finish_is_named_in_its_setting() -> None:
    records = both_arms([2.0], [2.0]) + both_arms([2.0], [2.0], embed_dim=64)
    records += [make_record(embed_dim=64), make_record(tied=False, embed_dim=32)]
    records[4].config["model"]["head_map"] = "linear"
    del records[3]
    verdicts = compare(collected(*records)).verdicts
    assert verdicts[0] == "embed_dim 32: no finished other run, so no comparison"
    assert verdicts[1] == "embed_dim 64: tied: no finished untied run, so no comparison"
    assert verdicts[2] == "embed_dim 64: tied, head_map linear: no finished untied run, so no comparison"
