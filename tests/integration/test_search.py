"""A search for the learning rate of each arm: resumable, and a diverged trial is a result."""

import math

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from tielab.record import read_record
from tielab.search import Interval, open_cells
from tielab.sweep import begin_sweep

RATE = "optimizer.learning_rate"
SEARCH = (
    "-m", "hydra/sweeper=optuna", "hydra.sweeper.seed=5", "model.tied=true,false",
    f"{RATE}=tag(log,interval(1e-3,1e12))", "optimizer.gradient_clip_norm=null",
)  # fmt: skip


def studies(sweep):
    """The trials of each study, in the order the studies were made."""
    storage = JournalStorage(JournalFileBackend(str(sweep / "study.jsonl")))
    names = [summary.study_name for summary in optuna.get_all_study_summaries(storage)]
    return [optuna.load_study(study_name=name, storage=storage).trials for name in names]


@pytest.mark.slow
def test_a_search_survives_resumes_and_grows(main, tielab, tiny, tmp_path, capfd):
    command = (*SEARCH, *tiny, "budget.tokens=1024", "resume=true")
    assert main(*command, "hydra.sweeper.num_trials=2", "on_failure=stop", **{"0": "kill"}) == 1
    out, _ = capfd.readouterr()
    (sweep,) = (tmp_path / "outputs" / "sweeps").iterdir()
    assert "2 jobs: 1 failed, 1 not begun" in out
    assert [[trial.state.name for trial in trials] for trials in studies(sweep)] == [["RUNNING"]] * 2

    assert main(*command, "hydra.sweeper.num_trials=2") == 0
    out, _ = capfd.readouterr()
    assert "resuming outputs/sweeps/" in out
    assert "job 1 of 2: " in out
    done = tielab("resume", sweep)
    assert done.returncode == 2
    assert "is a search; go on with it by its command: python train.py -m hydra/sweeper=optuna" in done.stderr

    before = {path: path.stat().st_mtime_ns for path in sweep.glob("*/record.json")}
    assert main(*command, "hydra.sweeper.num_trials=4") == 0
    out, _ = capfd.readouterr()
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert sorted(path.name for path in sweep.iterdir() if path.is_dir()) == list("01234567")
    records = [read_record(sweep / str(job)) for job in range(8)]
    assert [record.tied for record in records] == [True, False] * 4
    for tied, trials in zip((True, False), studies(sweep), strict=True):
        assert {trial.state.name for trial in trials} == {"COMPLETE"}
        values = {
            record.config["optimizer"]["learning_rate"]: record.validation["bits_per_byte"]
            if record.finished
            else math.inf
            for record in records
            if record.tied is tied
        }
        assert {trial.params[RATE]: trial.value for trial in trials} == values
        assert len(values) == 4
        assert math.inf in values.values()
        best = min(values, key=values.get)
        arm = f"model.tied={tied}"
        num_diverged = list(values.values()).count(math.inf)
        assert f"{arm}: best {RATE}={best:.4g} ({values[best]:.4f} bits/byte, 4 trials, " in out
        assert f"{num_diverged} diverged)" in out
    assert {record.error["type"] for record in records if record.error} == {"DivergedError"}


BAD_SEARCHES = [
    (["seed=0,1"], "nothing to search"),
    ([f"{RATE}=interval(-1,1)"], "optimizer.learning_rate=-1.0 is out of range"),
    ([f"{RATE}=interval(2,1)"], "is empty"),
    ([f"{RATE}=tag(log,interval(0,1))"], "a logarithmic scale begins above 0"),
    ([f"{RATE}=interval(0.1,1)", "hydra.sweeper.num_trials=0"], "num_trials=0 is out of range"),
    (["model.teid=interval(0.1,1)"], "unknown key model.teid"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD_SEARCHES)
def test_wrong_searches(arguments, message, main, tiny, tmp_path, capfd):
    assert main("-m", "hydra/sweeper=optuna", *tiny, *arguments) == 2
    _, err = capfd.readouterr()
    assert message in err
    assert [line for line in err.splitlines() if line.startswith("error: ")] == err.splitlines()[-1:]
    assert not list(tmp_path.glob("outputs/sweeps/*"))


def test_a_trial_that_was_torn_by_a_kill_is_neither_run_nor_counted(tmp_path):
    """Optuna stores one parameter after the other."""
    sweep = begin_sweep(tmp_path / "sweep", ["x"])
    intervals = [Interval("a", 0.0, 1.0, False), Interval("b", 0.0, 1.0, False)]
    (cell,) = open_cells(sweep, [["seed=0"]], intervals, seed=0)
    study = cell._study
    study.ask({"a": optuna.distributions.FloatDistribution(0.0, 1.0)})
    study.ask()
    asked = [cell.next_trials(2, 1), cell.next_trials(2, 1), cell.next_trials(2, 1)]
    assert [[number for number, _ in trials] for trials in asked] == [[2], [3], []]
    for (_, overrides), *_ in asked[:2]:
        assert [override.partition("=")[0] for override in overrides] == ["seed", "a", "b"]
    assert [trial.state.name for trial in study.trials] == ["FAIL", "FAIL", "RUNNING", "RUNNING"]
    assert not cell.has_value
