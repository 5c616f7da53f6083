import json

import pytest

from outcomes import put_run
from report_records import make_record, make_validation
from tielab.overview.curves import read_curve, sparkline
from tielab.overview.page import page, read_run, to_text
from tielab.record import METRICS_NAME


def lines_of(text):
    """The page as a mapping from heading and label to text."""
    found, heading = {}, ""
    for line in text.splitlines():
        if line.startswith("  "):
            found[heading, line[:22].strip()] = line[22:]
        elif line:
            heading = line
    return found


@pytest.fixture
def run(tmp_path):
    best = make_validation(1.75) | {"tokens_seen": 500_000}
    record = make_record(tied=False, bits_per_byte=2.0, best_validation=best, initial_loss=8.4, epochs=0.5)
    folder = put_run(tmp_path / "outputs" / "runs" / "a", record)
    rows = "step,tokens,train/loss,val/bits_per_byte\n1,100,4.0,\n2,200,,2.5\n3,300,3.0,\n4,400,nan,2.0\n"
    (folder / METRICS_NAME).write_text(rows)
    (folder / "checkpoints").mkdir()
    for name in ("checkpoints/best.ckpt", "tokenizer.json"):
        (folder / name).write_text("x" * 2000)
    return folder


def test_the_page_says_what_the_record_says(invoke, run):
    result = invoke("show", "outputs/runs/a")
    assert result.exit_code == 0, result.exception
    page = lines_of(result.stdout)
    assert page["", "status"].startswith("finished, begun ")
    assert page["What it is", "arm"] == "untied"
    assert page["What it is", "tie"] == "configured untied; observed two matrices at every check"
    assert page["What it is", "model"] == "4 layers, width 128, 4 heads, hidden 512, T 128"
    embedding, total = 4096 * 128, 2 * 4096 * 128 + 48 * 128**2
    assert page["Parameters", "total"] == f"{total:,}"
    assert page["Parameters", "LM head"] == f"{embedding:,} ({100 * embedding / total:.1f} %)"
    assert page["Validation", "bits per byte"] == "2.0000"
    assert page["Validation", "perplexity"] == "256.0"
    assert page["Validation", "best"] == "1.7500 bits/byte, perplexity 128.0, after 500,000 tokens"
    assert page["Validation", "initial loss"] == "8.4000 nats/token; ln V = 8.3178"
    assert page["Curves", "train loss"] == "█▁  4.0000 to 3.0000"
    assert page["Curves", "bits per byte"] == "█▁  2.5000 to 2.0000"
    assert page["Cost", "training tokens"] == "1,000,000, 0.5 epochs"
    assert page["Cost", "tokens/s"] == "12,346 (quartiles 12,000 to 12,600)"
    assert page["Cost", "peak memory"] == "512 MiB"
    assert "checkpoints/best.ckpt (2.0 kB)" in page["Files", ""]
    assert page["Next", "sample"] == 'tielab sample outputs/runs/a --prompt "The city"'
    assert page["Next", "to transformers"] == "tielab export outputs/runs/a"
    assert page["Next", "repeat"] == "tielab rerun outputs/runs/a"
    assert ("Next", "go on") not in page


def test_a_tie_that_was_not_as_configured_is_shouted(invoke, tmp_path):
    put_run(tmp_path / "a", make_record(tied=True, tie_observed=False))
    text = invoke("show", "a").stdout
    assert "observed two matrices at every check: NOT as configured" in text
    assert "gives no number: " in text


def test_what_tied_models_share_is_said(invoke, tmp_path):
    put_run(tmp_path / "a", make_record(tied=True))
    assert (
        lines_of(invoke("show", "a").stdout)["Parameters", "LM head"] == "shares the token embedding's matrix"
    )


def test_a_failed_job_shows_why_and_how_to_go_on(invoke, outputs):
    job = "outputs/sweeps/2026-01-01_00-00-00-aaaaaa/2"
    result = invoke("show", job)
    page = lines_of(result.stdout)
    assert page["", "why"] == "ValueError: no\\x1b[2Jsuch thing"
    assert "  line" in result.stdout
    assert page["Next", "go on"] == f"tielab resume {job}"
    assert page["Next", "its sweep"] == "tielab report outputs/sweeps/2026-01-01_00-00-00-aaaaaa"
    assert "\x1b" not in result.stdout


def test_a_run_under_way_shows_how_far_it_is(invoke, outputs):
    page = lines_of(invoke("show", "outputs/sweeps/2026-01-01_00-00-00-aaaaaa/4").stdout)
    assert page["", "progress"] == "250,000 of 1,000,000 (25 %) training tokens"
    assert page["Curves", "train loss"].endswith("4.0000 to 2.0000")


def test_json_holds_the_record(invoke, run):
    content = json.loads(invoke("show", "outputs/runs/a", "--json").stdout)
    assert (content["folder"], content["status"], content["arm"]) == ("outputs/runs/a", "finished", "untied")
    assert content["record"] == json.loads((run / "record.json").read_text())
    assert content["curves"]["val/bits_per_byte"] == [[200.0, 2.5], [400.0, 2.0]]


def test_json_of_a_diverged_run_is_json(invoke, tmp_path):
    put_run(
        tmp_path / "a", make_record(train_loss=float("nan"), best_validation={"perplexity": float("inf")})
    )
    content = json.loads(invoke("show", "a", "--json").stdout, parse_constant=pytest.fail)
    assert content["record"]["train_loss"] == "nan"
    assert content["record"]["best_validation"]["perplexity"] == "inf"


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_number_is_cut_on_a_terminal(run, width):
    plain = to_text(page(run, read_run(run), 20), None)
    shown = to_text(page(run, read_run(run), 20), width)
    assert "".join(shown.replace("\x1b[1m", "").replace("\x1b[0m", "").split()) == "".join(plain.split())
    too_long = [line for line in shown.splitlines() if len(line) > width and str(run) not in line]
    assert too_long == []


@pytest.mark.parametrize(
    "changes",
    [
        {"parameters": {"total": "x"}}, {"stride_validations": [1]}, {"throughput": "fast"},
        {"versions": None}, {"data": {"train": 3, "vocab_size": "V"}}, {"validation": [1]},
        {"attempts": "none"}, {"matching": "no"},
    ],
)  # fmt: skip
def test_a_strangers_record_is_shown_or_refused_in_one_line(invoke, tmp_path, changes):
    put_run(tmp_path / "a", make_record(**changes))
    result = invoke("show", "a")
    assert result.exit_code in (0, 2), result.exception
    assert result.exit_code == 0 or len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("folder", "message"),
    [
        ("outputs/sweeps/2026-01-01_00-00-00-aaaaaa", "is a sweep; its jobs: tielab ls outputs/sweeps/"),
        ("outputs/sweeps/2026-01-01_00-00-00-aaaaaa/5", "has not begun; begin it with tielab resume"),
        ("outputs", "no record.json there; give the folder of a run"),
        ("nowhere", "nowhere: no such folder; tielab ls lists the runs there are"),
        ("outputs/runs/2025-12-31_00-00-00-cccccc", "record.json is not JSON"),
    ],
)
def test_what_is_no_run_is_refused_with_the_way_on(invoke, outputs, folder, message):
    result = invoke("show", folder)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_record_that_is_a_folder_or_too_deep_is_refused_in_one_line(invoke, tmp_path):
    (tmp_path / "a" / "record.json").mkdir(parents=True)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "record.json").write_text("[" * 100_000)
    assert invoke("show", "a").stderr == "error: a/record.json cannot be read: Is a directory\n"
    assert invoke("show", "b").stderr.startswith("error: b/record.json is not JSON (maximum recursion")


def test_a_sparkline_spans_lowest_to_highest_over_tokens():
    assert sparkline([], 10) == ""
    assert sparkline([(1, 3.0)], 10) == "▁"
    assert sparkline([(i, float(i)) for i in range(1, 9)], 8) == "▁▂▃▄▅▆▇█"
    assert sparkline([(i, float(-i)) for i in range(1, 17)], 4) == "█▆▃▁"
    assert sparkline([(1, 0.0), (9, 1.0), (10, 2.0)], 3) == "▁ █"


def test_a_curve_leaves_out_what_is_no_number(tmp_path):
    (tmp_path / METRICS_NAME).write_text(
        "step,tokens,train/loss\n1,10,2.5\n2,20,inf\n3,30,\n4,x,1\n5,50,\x1b\n6,6"
    )
    assert read_curve(tmp_path, "train/loss") == [(10.0, 2.5)]
    assert read_curve(tmp_path, "absent") == []
    assert read_curve(tmp_path / "nowhere", "train/loss") == []
