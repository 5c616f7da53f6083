import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from report_records import make_record
from tielab.cli import main

WriteRun = Callable[..., Path]


@pytest.fixture
def study(write_run: WriteRun, tmp_path: Path) -> Path:
    for tied in (True, False):
        for seed in range(3):
            record = make_record(tied=tied, seed=seed, bits_per_byte=2.0 + tied / 10 + seed * tied / 1000)
            write_run(f"sweep/{tied}-{seed}", record)
    return tmp_path / "sweep"


def report(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["report", *map(str, arguments)])


def test_a_baseline_turns_the_difference_round(study: Path) -> None:
    rows = json.loads(report(study, "--json", "--baseline", "tied").stdout)["rows"]
    assert [(row["arm"], row["reference"]) for row in rows] == [("tied", None), ("untied", "tied")]
    assert rows[1]["difference_bits_per_byte"] == pytest.approx(-0.101)
    assert rows[1]["verdict"] == "untied better"


def test_an_unknown_baseline_is_refused_in_one_line(study: Path) -> None:
    result = report(study, "--baseline", "tied, head_map linear")
    assert result.exit_code == 2
    assert result.stderr == (
        "error: --baseline 'tied, head_map linear' is no arm here, found: tied; untied; name one of them\n"
    )


def test_every_run_goes_into_a_file_beside_the_table(study: Path, tmp_path: Path) -> None:
    result = report(study, "--csv", tmp_path / "table.csv", "--runs-csv", tmp_path / "runs.csv")
    assert result.exit_code == 0
    assert "untied better by 0.1010 bits/byte" in result.stdout
    rows = list(csv.DictReader((tmp_path / "runs.csv").open()))
    assert [(row["arm"], row["seed"]) for row in rows] == [
        (arm, seed) for arm in ("tied", "untied") for seed in ("0", "1", "2")
    ]
    (tied, _) = csv.DictReader((tmp_path / "table.csv").open())
    mean = sum(float(row["bits_per_byte"]) for row in rows[:3]) / 3
    assert float(tied["bits_per_byte"]) == pytest.approx(mean, abs=1e-15)


def test_every_run_goes_to_standard_output(study: Path) -> None:
    lines = report(study, "--runs-csv", "-").stdout.splitlines()
    assert len(lines) == 7
    assert lines[0].startswith("arm,seed,phase,learning_rate,bits_per_byte")


@pytest.mark.parametrize("option", ["--csv", "--runs-csv"])
def test_a_file_that_cannot_be_written_is_refused(study: Path, tmp_path: Path, option: str) -> None:
    result = report(study, option, tmp_path / "none" / "runs.csv")
    assert result.exit_code == 2
    assert "cannot write" in result.stderr
