import csv
import io

import pytest

from report_records import collected, make_record, make_validation
from tielab.record import Record
from tielab.report.compare import compare
from tielab.report.render import to_runs_csv
from tielab.report.runs import COLUMNS, runs_table


def study() -> list[Record]:
    return [
        make_record(tied=tied, seed=seed, embed_dim=embed_dim, flops_per_token={"train": 1_000})
        for embed_dim in (128, 64)
        for tied in (False, True)
        for seed in (1, 0)
    ]


def test_every_run_that_gives_a_number_is_a_row_in_the_order_of_the_table() -> None:
    records = [*study(), make_record(seed=5, status="failed")]
    table = runs_table(compare(collected(*records)))
    assert tuple(table.columns) == ("embed_dim", *COLUMNS)
    assert table[["embed_dim", "arm", "seed"]].to_numpy().tolist() == [
        [embed_dim, arm, seed] for embed_dim in (64, 128) for arm in ("tied", "untied") for seed in ("0", "1")
    ]


def test_a_row_holds_what_the_record_says() -> None:
    validation = make_validation(2.0) | {"num_words": 8_000}
    record = make_record(
        validation=validation, flops_per_token={"train": 1_000}, train_loss=5.5, initial_loss=8.3,
        seconds=12.5, weights_hash="abc", code_hash="def",
    )  # fmt: skip
    (row,) = csv.DictReader(io.StringIO(to_runs_csv(compare(collected(record)))))
    # 2 bits per byte over 40,000 bytes: 80,000 bits, 10 per word: a word perplexity of 2^10.
    assert float(row["word_perplexity"]) == pytest.approx(1024)
    assert {name: row[name] for name in ("arm", "seed", "phase", "folder", "run_id")} == {
        "arm": "tied", "seed": "0", "phase": "", "folder": "run0", "run_id": record.run_id,
    }  # fmt: skip
    assert int(row["train_flops"]) == 1_000 * 1_000_000
    assert (float(row["train_loss"]), float(row["initial_loss"])) == (5.5, 8.3)
    assert (row["weights_hash"], row["code_hash"], row["commit"]) == ("abc", "def", "a" * 40)
    assert float(row["learning_rate"]) == 0.001


def test_the_learning_rate_has_one_column_whether_it_varies_or_not() -> None:
    records = [make_record(), make_record(seed=1)]
    records[1].config["optimizer"]["learning_rate"] = 0.1
    table = runs_table(compare(collected(*records)))
    assert list(table["learning_rate"]) == [0.001, 0.1]
    assert len(set(table.columns)) == len(table.columns)


def test_tuning_runs_come_last_with_their_phase() -> None:
    tuning = make_record(seed=100)
    tuning.config["study"] = {"tune": "lr", "phase": "tune"}
    chosen = make_record()
    chosen.config["study"] = {"tune": "lr", "phase": "report"}
    table = runs_table(compare(collected(tuning, chosen)))
    assert table[["seed", "phase"]].to_numpy().tolist() == [["0", "report"], ["100", "tune"]]


def test_what_a_record_does_not_say_is_missing() -> None:
    table = runs_table(compare(collected(make_record(throughput=None, tokens_seen=None))))
    assert table["tokens_per_second"].isna().all()
    assert table["train_flops"].isna().all()
    assert table["word_perplexity"].isna().all()


def test_text_without_words_has_no_word_perplexity() -> None:
    records = [make_record(validation=make_validation(2.0) | {"num_words": words}) for words in (0, 1)]
    for record in records:
        assert runs_table(compare(collected(record)))["word_perplexity"].isna().all()


def test_nothing_finished_is_an_empty_table() -> None:
    assert to_runs_csv(compare(collected(make_record(status="failed")))).strip() == ",".join(COLUMNS)
