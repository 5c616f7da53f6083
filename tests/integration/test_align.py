"""``tielab align`` on trained runs: two runs, one run, a sweep; and what it refuses."""

import json
import shutil

import pytest
import torch

from running import ROOT
from tielab import launch
from tielab.alignment import measures


@pytest.fixture(scope="module")
def sweep(tmp_path_factory, tiny, cache_dir):
    """Jobs 0, 1: tied with seed 0, 1; jobs 2, 3: untied. Long enough to have learned something."""
    cwd = tmp_path_factory.mktemp("sweep")
    swept = ("model.tied=true,false", "seed=0,1", "budget.tokens=16384", "budget.num_validations=1")
    trained(cwd, "-m", *tiny, *swept)
    (folder,) = (cwd / "outputs" / "sweeps").iterdir()
    return folder


def trained(cwd, *arguments):
    """``train.py ARGUMENTS`` in this process: importing torch anew takes seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(cwd)
        patch.setenv("HYDRA_FULL_ERROR", "0")
        assert launch.main(ROOT / "conf", [*arguments, "launch=inline"]) == 0


@pytest.fixture(autouse=True)
def _fewer_row_pairs(monkeypatch):
    """Not the number itself is looked at here."""
    monkeypatch.setattr(measures, "NUM_ROW_PAIRS", 2000)


@pytest.fixture
def alone(sweep, tmp_path):
    """A copy of a job, with no other beside it."""

    def copy(job, name=None):
        folder = tmp_path / (f"alone{job}" if name is None else "several") / (name or "run")
        shutil.copytree(sweep / job, folder)
        return folder

    return copy


@pytest.fixture
def found(tielab):
    """The JSON that ``tielab align ARGUMENTS`` prints."""

    def run(*arguments):
        done = tielab("align", *arguments, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def rows(content, measure="linear_held_out"):
    return {
        (row["first"], row["second"], row["same_run"]): row
        for row in content["rows"]
        if row["measure"] == measure
    }


def test_two_runs_of_two_seeds(sweep, found):
    content = found(sweep / "2", sweep / "1")
    held_out = rows(content)
    assert list(held_out) == [("untied in", "tied", False), ("untied out", "tied", False)]
    assert held_out["untied out", "tied", False]["value"] > held_out["untied in", "tied", False]["value"]
    for row in held_out.values():
        assert row["chance"] == 0
        assert row["ceiling"] == (row["first_ceiling"] + row["second_ceiling"]) / 2
    assert content["warnings"] == []
    assert content["sentences"][0].startswith("tied resembles untied out: held-out linear ")
    assert content["notes"] == [
        "ceiling of untied: the same arm with another seed, 3 (seed 1)",
        "ceiling of tied: the same arm with another seed, 0 (seed 0)",
    ]


def test_what_began_alike_is_more_alike_and_there_is_a_warning(sweep, found):
    same, crossed = found(sweep / "2", sweep / "0"), found(sweep / "2", sweep / "1")
    pair = ("untied in", "tied", False)
    assert rows(same, "identity")[pair]["value"] > 0.4
    assert abs(rows(crossed, "identity")[pair]["value"]) < 0.3
    (warning,) = same["warnings"]
    assert "both runs have model.seed=0" in warning
    assert warning.endswith(f"tielab align {sweep / '2'} {(sweep / '1').resolve()}")


def test_the_ends_of_one_run(sweep, found):
    once, twice = found(sweep / "2"), found(sweep / "2", sweep / "2")
    assert once == twice
    assert list(rows(once)) == [("untied in", "untied out", True)]
    assert once["warnings"] == []
    assert len(once["runs"]) == 1


def test_two_runs_of_one_arm_are_told_apart_by_their_seeds(sweep, found):
    content = found(sweep / "2", sweep / "3")
    assert ("untied in (seed 0)", "untied out (seed 1)", False) in rows(content)
    assert len(rows(content)) == 4
    assert "no ceiling of untied (seed 0): give --ceiling RUN" in content["notes"][0]


def test_a_sweep_compares_all_pairs_of_seeds(sweep, found):
    content = found(sweep)
    held_out = rows(content)
    assert {key: row["num_pairs"] for key, row in held_out.items()} == {
        ("untied in", "untied out", True): 2,
        ("untied in", "untied out", False): 2,
        ("untied in", "tied", False): 2,
        ("untied out", "tied", False): 2,
    }
    pair = ("untied out", "tied", False)
    crossed = [rows(found(sweep / a, sweep / b))[pair] for a, b in ("21", "30")]
    assert sorted(held_out[pair]["values"]) == pytest.approx(sorted(row["value"] for row in crossed))
    assert held_out[pair]["sd"] > 0
    # A run with one of the other seed and the other way round: the fit is from the other side.
    assert held_out[pair]["ceiling"] == pytest.approx(crossed[0]["ceiling"], abs=0.05)
    assert "(the nearer one in 2 of 2 pairs of runs)" in content["sentences"][-1]


def test_a_ceiling_is_given_or_missing(alone, found, tielab):
    untied, tied, other_tied = alone("2"), alone("1"), alone("0")
    content = found(untied, tied)
    assert all(row["ceiling"] is None for row in content["rows"])
    advice = "give --ceiling RUN, a run of the same arm with another seed"
    assert content["notes"] == [f"no ceiling of untied: {advice}", f"no ceiling of tied: {advice}"]
    given = rows(found(untied, tied, "--ceiling", other_tied))["untied out", "tied", False]
    assert given["first_ceiling"] is None
    assert given["ceiling"] == given["second_ceiling"] > 0
    done = tielab("align", untied, tied, "--ceiling", untied)
    refused(done, "repeats none of the runs compared: it must differ from one of them in the seed alone")


def test_few_rows_and_no_text(sweep, found, tielab):
    assert found(sweep / "2", sweep / "1", "--min-count", 0)["num_rows"] == 64
    counted = found(sweep / "2", sweep / "1", "--min-count", 500)
    assert 42 <= counted["num_rows"] < 64
    done = tielab("align", sweep / "2", sweep / "1", "--min-count", 10**6)
    refused(done, "--min-count 1000000 leaves 0 rows, width 32 needs 42")


def test_rows_are_chosen_by_the_text_the_run_was_trained_on(alone, tielab):
    untied, tied = alone("2"), alone("1")
    record = json.loads((tied / "record.json").read_text())
    record["data"]["corpus_hash"] = "0" * 64
    (tied / "record.json").write_text(json.dumps(record))
    done = tielab("align", untied, tied)
    refused(done, "was trained on text with corpus_hash 0000")


def test_a_strangers_cache_is_not_written(alone, tielab, tmp_path):
    untied, tied = alone("2"), alone("1")
    text = (tied / "run.yaml").read_text()
    cache = next(line for line in text.splitlines() if "cache_dir:" in line)
    (tied / "run.yaml").write_text(text.replace(cache, f"  cache_dir: {tmp_path / 'elsewhere'}"))
    done = tielab("align", untied, tied)
    refused(done, "which is not in use here; set TIELAB_CACHE=")
    assert not (tmp_path / "elsewhere").exists()


def test_wrong_requests_are_one_line(sweep, alone, tielab, tmp_path):
    refused(tielab("align", sweep / "0"), "has one matrix at both ends")
    refused(tielab("align", sweep / "0", tmp_path), "no record.json there")
    refused(tielab("align", tmp_path), "no run there")
    refused(tielab("align", sweep / "0", sweep / "1", sweep / "2"), "one folder or two runs, found 3")
    refused(tielab("align", sweep, "--ceiling", sweep / "1"), "--ceiling is for two runs")
    refused(tielab("align", alone("0").parent), "no two matrices of runs with different seeds to compare")
    lost = alone("2")
    (lost / "checkpoints" / "last.ckpt").unlink()
    refused(tielab("align", lost, sweep / "1"), "has no last.ckpt; use the other one with --checkpoint best")


@pytest.mark.parametrize(
    ("status", "error", "message"),
    [
        (
            "failed",
            {"message": "the validation loss is nan"},
            "is failed: the validation loss is nan; finish",
        ),
        ("interrupted", None, "is interrupted; finish it with tielab resume"),
    ],
)
def test_an_unfinished_run_is_refused(status, error, message, alone, sweep, tielab):
    run = alone("2")
    record = json.loads((run / "record.json").read_text()) | {"status": status, "error": error}
    (run / "record.json").write_text(json.dumps(record))
    refused(tielab("align", run, sweep / "1"), message)
    refused(tielab("align", run.parent), "has no finished run")


def test_weights_that_are_no_numbers_are_refused(alone, sweep, tielab):
    run = alone("2")
    path = run / "checkpoints" / "last.ckpt"
    checkpoint = torch.load(path, weights_only=True)
    checkpoint["state_dict"]["model.lm_head.weight"][3, 3] = torch.nan
    torch.save(checkpoint, path)
    refused(tielab("align", run, sweep / "1"), "diverged: its out matrix holds values that are no numbers")


def test_another_tokenizer_is_refused(sweep, tiny, tielab, tmp_path):
    trained(tmp_path, *tiny, "vocab=byte", "budget.tokens=512", "budget.num_validations=1")
    (run,) = (tmp_path / "outputs" / "runs").iterdir()
    refused(tielab("align", sweep / "2", run), "their rows are other tokens; compare runs of one tokenizer")


def test_an_arm_of_several_settings_is_refused(alone, tielab):
    first, second = alone("0", "a"), alone("0", "b")
    record = json.loads((second / "record.json").read_text())
    record["config"]["model"]["num_layers"] = 7
    (second / "record.json").write_text(json.dumps(record))
    refused(tielab("align", first.parent), "its tied runs differ in num_layers, and one setting is compared")


def test_a_run_that_was_repeated_counts_once(alone, found, sweep):
    copies = alone("2", "a"), alone("3", "b"), alone("3", "c")
    content = found(copies[0].parent)
    assert rows(content)["untied in", "untied out", False]["num_pairs"] == 2
    assert any(note.startswith("1 of 3 runs left out: unfinished, repeated,") for note in content["notes"])


def test_csv_goes_to_a_file_or_to_standard_output(sweep, tielab, tmp_path):
    done = tielab("align", sweep / "2", "--min-count", 0, "--csv", tmp_path / "a.csv")
    assert "untied in  untied out, same run      1  identity" in done.stdout
    lines = (tmp_path / "a.csv").read_text().splitlines()
    assert lines[0].startswith("first,second,")
    assert len(lines) == 7
    assert tielab("align", sweep / "2", "--min-count", 0, "--csv", "-").stdout == "\n".join(lines) + "\n"


def refused(done, message):
    assert done.returncode == 2, done
    assert message in done.stderr
    assert done.stderr.startswith("error: ")
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""
