"""Whatever becomes of one job, the others run, and everybody is told."""

import pytest

from tielab.record import read_record

KINDS = {
    1: ("raise", "ValueError: broken on purpose"),
    2: ("exit", "SystemExit: 3"),
    3: ("kill", "ProcessDied: a process was killed by SIGKILL (out of memory?)"),
    4: ("out of memory", "RuntimeError: "),
    5: ("exit as if all were well", "SystemExit: 0"),
    6: ("vanish", "ProcessDied: a process ended with status 0"),
    7: ("segfault", "ProcessDied: a process was killed by SIGSEGV"),
}


@pytest.mark.slow
def test_every_kind_of_failure_is_survived_and_told(main, tiny, tmp_path, capfd):
    seeds = [0, *KINDS, 8]
    committed = {str(seed): fault for seed, (fault, _) in KINDS.items()}
    status = main("-m", f"seed={','.join(map(str, seeds))}", *tiny, **committed)
    out, err = capfd.readouterr()
    assert status == 1, err
    (sweep,) = (tmp_path / "outputs" / "sweeps").iterdir()
    records = {seed: read_record(sweep / str(index)) for index, seed in enumerate(seeds)}
    assert [seed for seed, record in records.items() if record.finished] == [0, 8]
    assert f"9 jobs: 2 finished, {len(KINDS)} failed" in out
    for seed, (_, reason) in KINDS.items():
        record = records[seed]
        assert record.status == "failed"
        assert record.validation is None
        assert f"{record.error['type']}: {record.error['message']}".startswith(reason), reason
        place = f"outputs/sweeps/{sweep.name}/{seed}"
        assert f"FAILED {place}: {reason}" in err  # when it happened
        assert f"  failed {place}: {reason}" in out  # at the end
    for seed in (1, 2, 4, 5):  # those that could still say something have said it in their own folders
        assert "Traceback" in records[seed].error["traceback"]
        assert "Traceback" in (sweep / str(seed) / "run.log").read_text()
        assert str(sweep / str(seed)) not in records[seed + 1].error["traceback"]
    # Each was printed before the next job began.
    told = [err.index(f"/{seed}: {reason}") for seed, (_, reason) in KINDS.items()]
    assert told == sorted(told)


def test_a_failure_stops_the_sweep_if_asked_and_it_goes_on_later(main, tiny, tmp_path, capfd):
    command = ("-m", "seed=0,1,2", *tiny, "budget.tokens=1024", "resume=true")
    assert main(*command, "on_failure=stop", **{"1": "raise"}) == 1
    out, err = capfd.readouterr()
    (sweep,) = (tmp_path / "outputs" / "sweeps").iterdir()
    assert "the sweep stops: on_failure=stop" in err
    assert "3 jobs: 1 finished, 1 failed, 1 not begun" in out
    assert sorted(path.name for path in (sweep / "2").iterdir()) == ["run.yaml"]
    first = (sweep / "0" / "record.json").stat().st_mtime_ns

    assert main(*command) == 0
    records = [read_record(sweep / job) for job in "012"]
    assert all(record.finished for record in records)
    assert (sweep / "0" / "record.json").stat().st_mtime_ns == first
    assert [len(record.attempts) for record in records] == [0, 1, 0]
    assert records[1].attempts[0]["error"]["message"] == "broken on purpose"
    assert len(list((tmp_path / "outputs" / "sweeps").iterdir())) == 1


def test_a_signal_to_one_job_stops_that_job_alone(main, tiny, tmp_path, capfd):
    assert main("-m", "seed=0,1", *tiny, "budget.tokens=1024", **{"0": "terminate"}) == 130
    out, _ = capfd.readouterr()
    (sweep,) = (tmp_path / "outputs" / "sweeps").iterdir()
    assert [read_record(sweep / job).status for job in "01"] == ["interrupted", "finished"]
    assert "2 jobs: 1 finished, 1 interrupted" in out
    assert (sweep / "0" / "checkpoints" / "last.ckpt").is_file()


def test_what_hydras_sweeper_takes_and_what_not(main, tiny, tmp_path, capfd):
    few = (*tiny, "budget.tokens=256", "budget.num_validations=1")
    assert main("-m", *few, "hydra.sweeper.params={seed:'5,6'}") == 0
    (sweep,) = (tmp_path / "outputs" / "sweeps").iterdir()
    assert [read_record(sweep / job).seed for job in "01"] == [5, 6]
    for override in ("hydra.sweeper.max_batch_size=1", "hydra.sweep.subdir=x"):
        capfd.readouterr()
        assert main("-m", "seed=0,1", *few, override) == 2
        assert f"{override.partition('=')[0]} is not taken" in capfd.readouterr().err
