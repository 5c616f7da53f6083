"""Jobs keep their folders, whatever is asked of a sweep, and in whatever order."""

import json
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from running import ROOT
from tielab import folder as run_folder
from tielab import sweep as sweeps
from tielab.config import config_hash
from tielab.errors import RequestError
from tielab.folder import read_run_config
from tielab.jobs import assign_jobs
from tielab.record import RECORD_NAME, write_record
from tielab.run import first_record
from tielab.sweep import MANIFEST_NAME, begin_sweep, code_drift, exit_status, find_sweep, read_sweep, summary


def config(seed, **keys):
    model = {"tied": True, "vocab_size": 64, "embed_dim": 32}
    return {"seed": seed, "model": model, "data": {"seed": seed}, "matching": {"requested": None}, **keys}


def asked(*seeds):
    return [([f"seed={seed}"], config(seed)) for seed in seeds]


@settings(max_examples=40, deadline=None)
@given(requests=st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=6), min_size=1, max_size=4))
def test_a_job_keeps_its_folder(requests, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sweep")
    begin_sweep(folder, [])
    known = {}
    for seeds in requests:
        wanted = [*seeds, *(seed for seed, _ in known if seed not in seeds)]  # at least one is there already
        jobs = assign_jobs(read_sweep(folder), asked(*wanted))
        assert len({job.name for job in jobs}) == len(jobs)
        seen = {}
        for seed, job in zip(wanted, jobs, strict=True):
            key = (seed, seen.get(seed, 0))  # a seed asked for twice is two jobs
            seen[seed] = key[1] + 1
            assert known.setdefault(key, job.name) == job.name
            assert read_run_config(folder / job.name)["seed"] == seed
    assert sorted(known.values(), key=int) == [str(number) for number in range(len(known))]
    assert [job.name for job in read_sweep(folder).jobs] == [str(number) for number in range(len(known))]


def test_a_config_that_changed_under_the_same_request_is_refused(tmp_path):
    sweep = begin_sweep(tmp_path / "sweep", ["seed=0,1"])
    assign_jobs(sweep, asked(0, 1))
    drifted = [(["seed=0"], config(0)), (["seed=1"], config(1, optimizer={"learning_rate": 0.1}))]
    with pytest.raises(
        RequestError, match=r"sweep/1 was begun: optimizer.learning_rate was null, is now 0.1"
    ):
        assign_jobs(read_sweep(sweep.folder), drifted)
    with pytest.raises(RequestError, match="holds another sweep"):
        assign_jobs(read_sweep(sweep.folder), asked(7))
    with pytest.raises(RequestError, match="holds a sweep already"):
        begin_sweep(sweep.folder, ["seed=0,1"])
    assert len(read_sweep(sweep.folder).jobs) == 2


def test_run_only_keys_are_those_of_the_new_request(tmp_path):
    sweep = begin_sweep(tmp_path / "sweep", [])
    (job,) = assign_jobs(sweep, [(["seed=0"], config(0, launch="forkserver"))])
    (again,) = assign_jobs(
        read_sweep(sweep.folder),
        [(["seed=0", "launch=spawn", "hydra/launcher=joblib"], config(0, launch="spawn"))],
    )
    assert again.name == job.name
    assert read_run_config(sweep.path(job))["launch"] == "spawn"


def test_a_line_torn_by_a_kill_is_as_if_it_were_not(tmp_path):
    sweep = begin_sweep(tmp_path / "sweep", ["seed=0,1"])
    assign_jobs(sweep, asked(0))
    with (sweep.folder / MANIFEST_NAME).open("a") as file:
        file.write('{"name": "1", "overri')
    assert [job.name for job in read_sweep(sweep.folder).jobs] == ["0"]
    assign_jobs(read_sweep(sweep.folder), asked(0, 1))
    assert [job.name for job in read_sweep(sweep.folder).jobs] == ["0", "1"]
    (sweep.folder / MANIFEST_NAME).write_text("hello\n")
    with pytest.raises(RequestError, match="is not the list of a sweep"):
        read_sweep(sweep.folder)


def test_folders_of_a_killed_start_are_taken_again(tmp_path):
    sweep = begin_sweep(tmp_path / "sweep", ["seed=0,1"])
    assign_jobs(sweep, asked(0))
    for name in ("1", "2"):  # made, and killed before they were listed
        (sweep.folder / name).mkdir()
        (sweep.folder / name / "run.yaml").write_text("half")
    assert [job.name for job in read_sweep(sweep.folder).jobs] == ["0"]
    assert [job.name for job in assign_jobs(read_sweep(sweep.folder), asked(0, 1, 2))] == ["0", "1", "2"]
    assert read_run_config(sweep.folder / "2")["seed"] == 2
    (sweep.folder / "3").mkdir()
    (sweep.folder / "3" / "mine.txt").touch()
    with pytest.raises(RequestError, match="is not empty"):
        assign_jobs(read_sweep(sweep.folder), asked(0, 3))


def test_the_same_request_is_found_whatever_its_run_only_keys(tmp_path):
    first = begin_sweep(tmp_path / "1", ["seed=0,1", "logger=csv"])
    begin_sweep(tmp_path / "2", ["seed=0,1", "model.tied=true,false"])
    (tmp_path / "3").mkdir()
    found = find_sweep(
        tmp_path, ["logger.wandb.mode=offline", "resume=true", "seed=0,1", "~logger", "launch=spawn"]
    )
    assert found == first.folder
    assert find_sweep(tmp_path, ["seed=0,2"]) is None
    assign_jobs(first, asked(0, 1))
    hashes = [config_hash(config(seed)) for seed in range(3)]
    assert find_sweep(tmp_path, ["seed=0,1,2"], hashes) == first.folder  # which only grows by it
    assert find_sweep(tmp_path, ["seed=1,2"], hashes[1:]) is None
    (tmp_path / "9").mkdir()
    (tmp_path / "9" / "sweep.jsonl").write_text("not a list\n")
    assert find_sweep(tmp_path, ["seed=0,1,2"], hashes) == first.folder


def test_a_list_that_has_lost_lines_is_refused(tmp_path):
    sweep = begin_sweep(tmp_path / "sweep", ["seed=0,1"])
    for job in assign_jobs(sweep, asked(0, 1)):
        write_record(sweep.path(job), first_record(config(0)))
    lines = (sweep.folder / MANIFEST_NAME).read_text().splitlines(keepends=True)
    (sweep.folder / MANIFEST_NAME).write_text("".join(lines[:2]))
    with pytest.raises(RequestError, match=r"is damaged: it does not list .*sweep/1"):
        read_sweep(sweep.folder)
    (sweep.folder / MANIFEST_NAME).write_text("")
    with pytest.raises(RequestError, match="names no request"):
        read_sweep(sweep.folder)


def test_how_a_sweep_stands(tmp_path, monkeypatch):
    sweep = begin_sweep(tmp_path / "sweep", [])
    jobs = assign_jobs(sweep, asked(*range(5)))
    refused = {"type": "RequestError", "message": "no such\nfile", "traceback": ""}
    states = [
        ("finished", None),
        ("failed", {**refused, "type": "ValueError"}),
        ("failed", refused),
        ("running", None),
    ]
    for job, (status, error) in zip(jobs[:4], states, strict=True):
        record = first_record(read_run_config(sweep.path(job)))
        record.status, record.error = status, error
        write_record(sweep.path(job), record)
    lines = summary(sweep, jobs)
    assert lines[0] == "5 jobs: 1 finished, 2 failed, 1 killed, 1 not begun"
    ends = ["1: ValueError: no such file", "2: no such file", "3", "4"]
    assert [line.endswith(end) for line, end in zip(lines[1:], ends, strict=True)] == [True] * 4, lines
    cases = [(jobs[:1], 0), (jobs[:2], 1), ([jobs[0], jobs[2]], 1), ([jobs[4]], 2), (jobs, 1)]
    for chosen, status in cases:
        assert exit_status([sweep.state(job) for job in chosen]) == status
    record.status, record.error = "failed", {**refused, "type": "DivergedError"}
    write_record(sweep.path(jobs[3]), record)
    diverged = sweep.state(jobs[3])
    assert (diverged.status, diverged.settled, exit_status([diverged])) == ("diverged", True, 1)
    assert code_drift(sweep, jobs) is None
    monkeypatch.setattr(sweeps, "code_hash", lambda: "another")
    monkeypatch.setattr(run_folder, "code_hash", lambda: "another")
    assert not diverged.settled  # other code may do better
    assert "since job 0 finished (now another)" in code_drift(sweep, jobs)
    assert json.loads((sweep.path(jobs[0]) / RECORD_NAME).read_text())["config_hash"] == config_hash(
        config(0)
    )


@pytest.mark.slow
def test_twenty_launches_in_a_second_are_twenty_folders(tiny, tmp_path):
    """Everything but the training is real: what is tested is whose folder is whose."""
    script = (
        "import sys; from pathlib import Path; from tielab import launch, processes, run\n"
        "run.start_and_wait = lambda config, folder: processes.Ending(0)\n"
        f"sys.exit(launch.main(Path({str(ROOT / 'conf')!r}), sys.argv[1:]))"
    )
    sweeping = ["-m", "model.tied=true,false"]
    launched = [
        subprocess.Popen(
            [sys.executable, "-c", script, *multirun, *tiny],
            cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        for multirun in [sweeping, []] * 10
    ]  # fmt: skip
    for process in launched:
        process.wait()
    runs, swept = (list((tmp_path / "outputs" / kind).iterdir()) for kind in ("runs", "sweeps"))
    assert (len(runs), len(swept)) == (10, 10)
    for job in [*runs, *(folder / name for folder in swept for name in "01")]:
        assert (job / "run.yaml").is_file()
        assert (job / "record.json").is_file()
