import csv
import io
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from report_records import collected, make_record, make_validation
from tielab.errors import RequestError
from tielab.record import Record
from tielab.report.columns import columns_of
from tielab.report.compare import Comparison, compare
from tielab.report.render import report, show, to_csv, to_json, to_markdown, to_plain, to_terminal
from tielab.report.table import QUANTITIES, TEXTS

WriteRun = Callable[..., Path]


def study(num_seeds: int) -> list[Record]:
    return [
        make_record(
            tied=tied,
            seed=seed,
            vocab_size=vocab_size,
            embed_dim=embed_dim,
            bits_per_byte=2.0 + seed / 100 + (0.0123 + seed / 1000 if tied else 0.0) + 64 / embed_dim / 10,
            num_tokens=10_000 if vocab_size == 50_257 else 16_000,
        )
        for vocab_size in (512, 50_257)
        for embed_dim in (128, 768)
        for seed in range(num_seeds)
        for tied in (True, False)
    ]


@pytest.fixture(params=[1, 3])
def comparison(request: pytest.FixtureRequest) -> Comparison:
    return compare(collected(*study(request.param)))


def terminal(comparison: Comparison, width: int) -> str:
    output = io.StringIO()
    to_terminal(comparison, Console(file=output, width=width))
    return output.getvalue()


def words(text: str) -> str:
    """The text with every run of blanks, bullets and breaks as one blank."""
    return " ".join(re.sub(r"[•*|\\]", " ", text.replace("\N{NO-BREAK SPACE}", " ")).split())


def test_csv_holds_the_numbers_of_the_records_exactly() -> None:
    tied = make_record(bits_per_byte=2.0123456789012345)
    untied = make_record(tied=False, bits_per_byte=1.1)
    text = to_csv(compare(collected(tied, untied)))
    first, second = csv.DictReader(io.StringIO(text))
    assert tuple(first) == QUANTITIES
    assert tied.validation
    assert tied.throughput
    assert float(first["perplexity"]) == tied.validation["perplexity"]
    assert float(first["bits_per_byte"]) == tied.validation["bits_per_byte"]
    assert int(first["parameters"]) == tied.parameters["total"]
    assert float(first["tokens_per_second"]) == tied.throughput["median"]
    assert int(first["peak_memory_bytes"]) == tied.peak_memory_bytes
    assert float(first["difference_bits_per_byte"]) == 2.0123456789012345 - 1.1
    assert (first["tied"], second["tied"]) == ("True", "False")
    assert (second["num_pairs"], second["difference_bits_per_byte"], first["perplexity_sd"]) == ("", "", "")


def test_csv_has_the_settings_before_the_quantities(comparison: Comparison) -> None:
    rows = list(csv.DictReader(io.StringIO(to_csv(comparison))))
    assert tuple(rows[0]) == ("vocab_size", "embed_dim", *QUANTITIES)
    assert [(r["vocab_size"], r["embed_dim"]) for r in rows[::2]] == [
        ("512", "128"), ("512", "768"), ("50257", "128"), ("50257", "768"),
    ]  # fmt: skip


def typed(name: str, text: str) -> object:
    """A value of the CSV as JSON has it."""
    if text == "" or name in TEXTS:
        return text or None
    return text == "True" if name == "tied" else float(text)


def test_json_and_csv_hold_the_same_numbers(comparison: Comparison) -> None:
    content = json.loads(to_json(comparison))
    rows = list(csv.DictReader(io.StringIO(to_csv(comparison))))
    assert content["verdicts"] == comparison.verdicts
    assert content["notes"] == comparison.notes
    for ours, theirs in zip(content["rows"], rows, strict=True):
        for name, text in theirs.items():
            assert ours[name] == typed(name, text)


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_every_human_format_shows_every_number_whole(comparison: Comparison, width: int) -> None:
    shown = [column for column in columns_of(comparison) if column.kind != "check"]
    cells = {cell for column in shown for cell in column.cells if cell}
    assert {"50257", "768", "163,037,184"} & cells
    for text in (terminal(comparison, width), to_plain(comparison), to_markdown(comparison)):
        for cell in cells:
            assert re.search(rf"(?<![\w.,]){re.escape(cell)}(?![\w.,]*\d)", text), (cell, text)
        for line in (*comparison.verdicts, *comparison.notes):
            assert words(line) in words(text)


@pytest.mark.parametrize("width", [80, 100, 120])
def test_the_terminal_keeps_within_its_width(comparison: Comparison, width: int) -> None:
    text = terminal(comparison, width)
    assert max(len(line) for line in text.splitlines()) <= width
    assert "…" not in text


def test_a_wide_terminal_has_one_table_and_a_narrow_one_several(comparison: Comparison) -> None:
    assert terminal(comparison, 200).count("parameters   ") == 1
    assert len(re.findall("───+", terminal(comparison, 200))) == 1
    assert len(re.findall("───+", terminal(comparison, 80))) > 1


def test_plain_has_no_escapes_and_no_boxes() -> None:
    records = study(1)
    records[0].status, records[0].error = "failed", {"type": "E", "message": "\x1b[31mred\x1b[0m [bold]x"}
    text = to_plain(compare(collected(*records)))
    assert "failed: red [bold]x" in text
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]|[─-╿]", text)


def test_square_brackets_reach_the_terminal() -> None:
    message = "shape [2, 3] [/red] [bold]x"
    failed = make_record(seed=9, status="failed", error={"type": "E", "message": message})
    assert message in words(terminal(compare(collected(*study(1), failed)), 200))


def test_marks_are_bold_or_starred() -> None:
    records = [make_record(bits_per_byte=2.0), make_record(tied=False, bits_per_byte=1.9)]
    comparison = compare(collected(*records))
    assert "1.9000*" in to_plain(comparison)
    assert "2.0000*" not in to_plain(comparison)
    assert "**1.9000**" in to_markdown(comparison)
    output = io.StringIO()
    to_terminal(comparison, Console(file=output, width=120, force_terminal=True, color_system="standard"))
    assert re.search(r"\x1b\[1;32m *1\.9000", output.getvalue())


def test_markdown_tables_survive_pipes_and_stars() -> None:
    records = study(1)
    records[0].status, records[0].error = "failed", {"type": "E", "message": "a|b *c* _d_ e_f"}
    text = to_markdown(compare(collected(*records)))
    assert r"a\|b \*c\* \_d\_ e_f" in text
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in table}) == 1


@pytest.mark.parametrize("write", [to_plain, to_markdown, lambda comparison: terminal(comparison, 80)])
def test_nothing_finished_still_prints_the_notes(write: Callable[[Comparison], str]) -> None:
    failed = make_record(status="failed", error={"type": "OSError", "message": "disk full"})
    text = write(compare(collected(failed)))
    assert "No finished run: nothing to compare." in text
    assert "failed: disk full" in text
    assert "perplexity" not in text


def test_nothing_finished_is_valid_csv_and_json() -> None:
    comparison = compare(collected(make_record(status="failed")))
    assert to_csv(comparison).strip() == ",".join(QUANTITIES)
    assert json.loads(to_json(comparison))["rows"] == []


def test_unknown_cost_is_blank_and_an_empty_column_is_left_out() -> None:
    records = study(1)
    for record in records:
        record.throughput = None
    records[0].peak_memory_bytes = None
    comparison = compare(collected(*records))
    headings = {column.heading: column.cells for column in columns_of(comparison)}
    assert "tokens/s" not in headings
    assert headings["memory MiB"][:2] == ["", "512"]
    assert json.loads(to_json(comparison))["rows"][0]["tokens_per_second"] is None


def test_large_and_small_numbers_stay_readable() -> None:
    validation = make_validation(2.0) | {"perplexity": 50_123.4}
    records = [
        make_record(validation=validation),
        make_record(tied=False, bits_per_byte=2.0 + 1e-7, peak_memory_bytes=3 * 1024**3),
    ]
    text = to_plain(compare(collected(*records)))
    assert "50,123 " in text
    assert "-0.00000010" in text
    assert "3,072" in text


def test_report_reads_folders(
    write_run: WriteRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for index, record in enumerate(study(2)):
        write_run(f"sweep/{index}", record)
    folders = [tmp_path / "sweep"]
    assert report(folders, "plain") == report(folders, "auto")
    assert (report(folders, "csv") or "").count("\n") == 9
    assert capsys.readouterr().out == ""
    assert report(folders, "table") is None
    assert "16 runs, all finished" in capsys.readouterr().out


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(RequestError, match="format html is unknown; choose one of auto, table, plain"):
        show(compare(collected(*study(1))), "html")


def test_importing_the_report_costs_no_heavy_library() -> None:
    code = (
        "import sys, tielab.report.render; "
        "print([m for m in ('torch', 'lightning', 'pandas', 'scipy', 'rich') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_tokenizers_are_described_where_they_differ() -> None:
    def record(tied: bool, vocab_size: int, num_tokens: int) -> Record:
        made = make_record(tied=tied, vocab_size=vocab_size, num_tokens=num_tokens)
        assert made.validation
        made.validation["num_words"] = 8_000
        made.data["train"] = {"unused_ids": vocab_size // 10}
        return made

    records = [record(tied, *sizes) for tied in (True, False) for sizes in ((512, 20_000), (4096, 10_000))]
    comparison = compare(collected(*records))
    cells = {column.heading: column.cells for column in columns_of(comparison)}
    # 2 bits per byte of 40,000 bytes are 10 bits per word, whatever the tokenizer.
    assert cells["word perplexity"] == ["1,024.0"] * 4
    assert cells["bytes/token"] == ["2.000", "2.000", "4.000", "4.000"]
    assert cells["unused ids"] == ["51", "51", "409", "409"]
    assert max(len(line) for line in terminal(comparison, 80).splitlines()) <= 80
    one = compare(collected(*records[::2]))
    assert "bytes/token" not in {column.heading for column in columns_of(one)}
    assert json.loads(to_json(one))["rows"][0]["bytes_per_token"] == 2.0


def test_long_arm_names_keep_within_a_narrow_terminal() -> None:
    records = study(3)
    for record in records:
        if record.config["model"]["embed_dim"] == 768:
            record.config["model"] |= {"embed_dim": 128, "num_heads": 4, "hidden_dim": 512}
            record.config["model"] |= {"head_map": "permutation", "embed_rank": 16}
    comparison = compare(collected(*records))
    assert len(comparison.groups[0].arms) == 4
    text = terminal(comparison, 80)
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "permutation" in text


def test_markdown_has_every_statistic() -> None:
    text = to_markdown(compare(collected(*study(3))))
    heading = next(line for line in text.splitlines() if line.startswith("|"))
    for name in ("p (Holm)", "detectable", "p unadjusted", "sign-flip p", "BCa bootstrap interval"):
        assert f"| {name} |" in heading
    assert "Holm-adjusted for 4 comparisons" in text


def test_a_setting_without_bounds_is_valid_json() -> None:
    records = study(1)
    for record in records:
        record.config["optimizer"]["gradient_clip_norm"] = float("inf")
    assert json.loads(to_json(compare(collected(*records))))["fixed"]["optimizer.gradient_clip_norm"] == "inf"
