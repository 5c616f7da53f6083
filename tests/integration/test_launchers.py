"""A sweep, two jobs at a time, on every launcher: the records, bits and endings of the basic one."""

import os
import re
import signal
import subprocess
import sys
import time

import pytest

import fake_slurm
from running import ROOT
from tielab.record import read_record
from wandb_offline import read_offline_run, run_files

LAUNCHERS = ("joblib", "submitit_local", "submitit_slurm")
GRID = ("model.tied=true,false", "seed=0,1")
SHARE = max(1, len(os.sched_getaffinity(0)) // 2)
"""Threads of each of two jobs."""


@pytest.fixture(scope="module")
def of_rule(tiny):
    """A tiny run's overrides, but for the number of threads."""
    return [override for override in tiny if not override.startswith("trainer.num_threads")]


@pytest.fixture(scope="module")
def sweep_on(tmp_path_factory, of_rule, cache_dir):
    """By launcher: (working folder, folder of the sweep, what was printed); each is run once."""
    done = {}

    def run(launcher):
        if launcher == "ray":
            pytest.importorskip("ray")
        if launcher not in done:
            cwd = tmp_path_factory.mktemp(launcher)
            arguments = [f"hydra/launcher={launcher}", "parallel_jobs=2", *GRID, *of_rule]
            environment = dict(os.environ)
            if launcher == "submitit_slurm":
                arguments.remove("seed=0,1")
                environment["PATH"] = f"{fake_slurm.install(cwd / 'bin')}:{environment['PATH']}"
                arguments += [f"trainer.num_threads={SHARE}", "hydra.launcher.partition=short"]
            if launcher == "joblib":
                arguments += ["logger=wandb"]
            printed = subprocess.run(
                [sys.executable, str(ROOT / "train.py"), "-m", *arguments],
                cwd=cwd, env=environment, capture_output=True, text=True, timeout=170,
            )  # fmt: skip
            assert printed.returncode == 0, printed.stderr
            (folder,) = (cwd / "outputs" / "sweeps").iterdir()
            done[launcher] = cwd, folder, printed
        return done[launcher]

    return run


def jobs_of(folder):
    return sorted(path.parent for path in folder.glob("*/record.json"))


@pytest.mark.slow
@pytest.mark.parametrize("launcher", [*LAUNCHERS, "ray"])
def test_all_jobs_two_at_a_time(launcher, sweep_on):
    _, folder, printed = sweep_on(launcher)
    records = [read_record(job) for job in jobs_of(folder)]
    seeds = (0,) if launcher == "submitit_slurm" else (0, 1)
    expected = [(tied, seed) for tied in (True, False) for seed in seeds]
    assert [(r.tied, r.seed) for r in records] == expected
    assert {r.status for r in records} == {"finished"}
    assert {r.num_threads for r in records} == {SHARE}
    assert {r.sweep for r in records} == {folder.name}
    # A job writes its tokenizer when its turn begins.
    times = [
        ((j / "tokenizer.json").stat().st_mtime, (j / "record.json").stat().st_mtime) for j in jobs_of(folder)
    ]
    assert max(sum(begin <= at < end for begin, end in times) for at, _ in times) <= 2
    assert f"{len(expected)} jobs, at most 2 at a time" in printed.stdout
    assert f"{len(expected)} runs, all finished" in printed.stdout
    assert "Joblib" not in printed.stderr + printed.stdout
    said = printed.stdout + "".join(path.read_text() for path in folder.glob(".submitit/*/*_log.out"))
    announced = re.findall(r"^(?:\S*\(_run_job pid=\d+\)\S* )?job (\d) of (\d):", said, flags=re.MULTILINE)
    assert sorted(announced) == [(str(i + 1), str(len(expected))) for i in range(len(expected))]
    assert "auto-requeue" not in "".join((job / "run.log").read_text() for job in jobs_of(folder))


@pytest.mark.slow
def test_a_launcher_changes_no_bits(sweep_on, shell, of_rule, tmp_path):
    alone = shell(*of_rule, f"trainer.num_threads={SHARE}")
    assert alone.returncode == 0, alone.stderr
    (folder,) = (tmp_path / "outputs" / "runs").iterdir()
    expected = read_record(folder).weights_hash
    for launcher in LAUNCHERS:
        records = [read_record(job) for job in jobs_of(sweep_on(launcher)[1])]
        assert [r.weights_hash for r in records if r.tied and r.seed == 0] == [expected], launcher


@pytest.mark.slow
def test_ray_changes_no_bits(sweep_on):
    hashes = [
        [read_record(job).weights_hash for job in jobs_of(sweep_on(launcher)[1])]
        for launcher in ("ray", "joblib")
    ]
    assert hashes[0] == hashes[1]


@pytest.mark.slow
def test_parallel_jobs_are_a_wandb_run_each(sweep_on):
    cwd, folder, _ = sweep_on("joblib")
    runs = {run.run_id: run for run in map(read_offline_run, run_files(cwd / "outputs"))}
    records = [read_record(job) for job in jobs_of(folder)]
    assert set(runs) == {record.run_id for record in records}
    for record in records:
        run = runs[record.run_id]
        assert (run.exit_code, run.group) == (0, folder.name)
        assert (run.config["tied"], run.config["seed"]) == (record.tied, record.seed)
        last = [row for row in run.history if "val/bits_per_byte" in row][-1]
        assert last["val/bits_per_byte"] == record.validation["bits_per_byte"]


@pytest.mark.slow
def test_slurm_is_asked_for_the_resources_of_one_job(sweep_on):
    _, folder, _ = sweep_on("submitit_slurm")
    (submission,) = folder.glob(".submitit/*/*_submission.sh")
    lines = submission.read_text().splitlines()
    for line in (
        "#SBATCH --array=0-1%2", f"#SBATCH --cpus-per-task={SHARE}", "#SBATCH --ntasks-per-node=1",
        "#SBATCH --nodes=1", "#SBATCH --partition=short", "#SBATCH --time=240", "#SBATCH --signal=USR2@120",
        "export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK",
    ):  # fmt: skip
        assert line in lines, line
    assert "gpus" not in submission.read_text()


@pytest.fixture
def start(tmp_path):
    """``python train.py ARGUMENTS`` in a session of its own, as from a terminal, until the test ends."""
    started = []

    def run(*arguments):
        started.append(
            subprocess.Popen(
                [sys.executable, str(ROOT / "train.py"), *arguments],
                cwd=tmp_path, start_new_session=True,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )
        )  # fmt: skip
        return started[-1]

    yield run
    for process in started:
        for pid, _ in processes_of(process.pid):
            os.kill(int(pid), signal.SIGKILL)
        process.communicate()


def processes_of(session):
    """Command lines by (pid, ppid) of the living processes of a session."""
    listed = subprocess.run(
        ["ps", "-eww", "-o", "sid,pid,ppid,stat,args"], capture_output=True, text=True
    ).stdout
    rows = [line.split(None, 4) for line in listed.splitlines()[1:]]
    return {(row[1], row[2]): row[4] for row in rows if row[0] == str(session) and row[3][0] != "Z"}


def wait_until(condition, process, seconds=90):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError(f"{process.poll()} {processes_of(process.pid)}")


def training(tmp_path):
    return [
        path.parent
        for path in tmp_path.glob("outputs/*/**/metrics.csv")
        if len(path.read_text().splitlines()) > 3
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("launcher", "number"),
    [
        ("joblib", signal.SIGINT),
        ("submitit_local", signal.SIGINT),
        ("ray", signal.SIGINT),
        ("joblib", signal.SIGKILL),
    ],
)
def test_all_of_a_stopped_sweep_stops(launcher, number, start, tiny, tmp_path):
    """Ctrl-C in a terminal reaches every process at once; SIGKILL the sweep's own one alone."""
    if launcher == "ray":
        pytest.importorskip("ray")
    long = ("budget.tokens=6553600", "budget.num_validations=1")
    process = start("-m", f"hydra/launcher={launcher}", "parallel_jobs=2", *GRID, *tiny, *long)
    wait_until(lambda: len(training(tmp_path)) == 2, process)
    if number == signal.SIGINT:
        os.killpg(process.pid, number)
    else:
        os.kill(process.pid, number)
    out, err = process.communicate(timeout=60)  # the pipes are closed when nobody holds them any more
    wait_until(lambda: not processes_of(process.pid), process, seconds=20)
    assert process.returncode == (130 if number == signal.SIGINT else -9), err
    (folder,) = (tmp_path / "outputs" / "sweeps").iterdir()
    records = [read_record(job) for job in jobs_of(folder)]
    assert [record.status for record in records] == ["interrupted", "interrupted"]  # two never began
    assert all((job / "checkpoints" / "last.ckpt").is_file() for job in jobs_of(folder))
    assert sorted(path.name for path in folder.iterdir() if path.name.isdecimal()) == list("0123")
    if number == signal.SIGINT:
        assert "0 of 2 runs give numbers" in out
        assert "Traceback" not in err


@pytest.mark.slow
def test_a_parallel_sweep_stops_at_a_failure_and_goes_on(shell, tiny, tmp_path):
    """The failed job's neighbour is stopped as well, with a checkpoint, and nothing more is begun."""
    command = (
        "-m", "hydra/launcher=joblib", "parallel_jobs=2", "seed=0,1", *tiny, "budget.tokens=65536",
        "budget.num_validations=2", "+callbacks.stop._target_=lightning.pytorch.callbacks.EarlyStopping",
        "+callbacks.stop.monitor=nope,val/loss", "+callbacks.stop.patience=1000",
        "+callbacks.stop.check_on_train_epoch_end=false", "resume=true",
    )  # fmt: skip
    done = shell(*command, "on_failure=stop")
    assert done.returncode == 1, done.stderr
    (folder,) = (tmp_path / "outputs" / "sweeps").iterdir()
    first = {job.name: read_record(job) for job in jobs_of(folder)}
    assert {name: record.status for name, record in first.items()} == {"0": "failed", "1": "interrupted"}
    assert "4 jobs: 1 failed, 1 interrupted, 2 not begun" in done.stdout
    done = shell(*command)
    assert done.returncode == 1, done.stderr
    records = {job.name: read_record(job) for job in jobs_of(folder)}
    states = ["failed", "finished", "failed", "finished"]
    assert [records[name].status for name in "0123"] == states
    assert records["1"].resumed_at_step * 128 == first["1"].tokens_seen
    assert len(list((tmp_path / "outputs" / "sweeps").iterdir())) == 1


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGUSR2, signal.SIGTERM])
def test_a_signal_to_all_processes_of_a_run_stops_it_once(number, start, tiny, tmp_path):
    """As SLURM sends them: before a time limit, and to cancel."""
    process = start(*tiny, "budget.tokens=6553600", "budget.num_validations=1")
    wait_until(lambda: training(tmp_path), process)
    living = processes_of(process.pid)
    (server,) = (
        p for (p, parent), args in living.items() if parent == str(process.pid) and "forkserver" in args
    )
    os.kill(int(server), number)  # alone and first: without it the run seems to have ended
    time.sleep(0.5)
    os.killpg(process.pid, number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    (folder,) = tmp_path.glob("outputs/runs/*")
    record = read_record(folder)
    assert record.status == "interrupted"
    assert record.error["type"] == "RunInterruptedError"  # else nobody waited for its own last word
    assert (folder / "checkpoints" / "last.ckpt").is_file()


@pytest.mark.slow
def test_a_killed_process_fails_its_own_job_only(start, tiny, tmp_path):
    budgets = ("budget.tokens=6553600,4096", "budget.num_validations=1")
    process = start("-m", "hydra/launcher=joblib", "parallel_jobs=2", *tiny, *budgets)
    wait_until(lambda: [job for job in training(tmp_path) if job.name == "0"], process)
    (victim,) = tmp_path.glob("outputs/sweeps/*/0")
    launching = str(read_record(victim).process_id)
    living = processes_of(process.pid)
    servers = {pid for (pid, parent), args in living.items() if parent == launching and "forkserver" in args}
    (rank,) = (pid for pid, parent in living if parent in servers)
    os.kill(int(rank), signal.SIGKILL)
    _, err = process.communicate(timeout=90)
    records = {job.name: read_record(job) for job in jobs_of(victim.parent)}
    failed = records.pop(victim.name)
    assert (failed.status, "SIGKILL" in failed.error["message"]) == ("failed", True)
    assert [record.status for record in records.values()] == ["finished"], err


@pytest.mark.slow
def test_ray_does_not_begin_a_killed_job_again(start, tiny, tmp_path):
    pytest.importorskip("ray")
    budgets = ("budget.tokens=6553600,4096", "budget.num_validations=1")
    process = start("-m", "hydra/launcher=ray", "parallel_jobs=2", *tiny, *budgets)
    wait_until(lambda: [job for job in training(tmp_path) if job.name == "0"], process)
    (victim,) = tmp_path.glob("outputs/sweeps/*/0")
    killed = read_record(victim).process_id
    os.kill(killed, signal.SIGKILL)
    out, err = process.communicate(timeout=90)
    assert process.returncode == 1, err
    assert "2 jobs: 1 finished, 1 killed" in out
    records = [read_record(job) for job in jobs_of(victim.parent)]
    assert [record.status for record in records] == ["running", "finished"]
    assert (records[0].process_id, records[0].attempts) == (killed, [])


@pytest.mark.parametrize("option", ["remote.max_retries=3", "init.address=auto", "init.num_cpus=4"])
def test_ray_keeps_what_the_rules_need(option, shell, tiny, tmp_path):
    pytest.importorskip("ray")
    done = shell("-m", "hydra/launcher=ray", f"hydra.launcher.ray.{option}", "parallel_jobs=2", *GRID, *tiny)
    assert (done.returncode, f"hydra.launcher.ray.{option} cannot be asked for" in done.stderr) == (2, True)
    assert not list(tmp_path.glob("outputs/sweeps/*"))


REFUSED = [
    (["parallel_jobs=2"], "parallel_jobs=2 needs hydra/launcher=joblib, submitit_local or submitit_slurm"),
    (["parallel_jobs=0"], "parallel_jobs=0"),
    (["hydra/launcher=joblib", "parallel_jobs=0"], "parallel_jobs=0 is out of range"),
    (["hydra/launcher=joblib", "hydra.launcher.n_jobs=3"], "n_jobs=3 differs from parallel_jobs=1"),
    (["hydra/launcher=joblib", "parallel_jobs=1,2"], "parallel_jobs cannot be swept"),
    (["hydra/launcher=submitit_slurm"], "needs trainer.num_threads=N"),
    (["hydra/launcher=submitit_slurm", "trainer.num_threads=1", "trainer.num_nodes=2"], "on one node"),
    (["hydra/launcher=submitit_slurm", "trainer.num_threads=1", "PATH=none"], "found no sbatch"),
    (
        ["hydra/launcher=submitit_slurm", "trainer.num_threads=1", "trainer=ddp_cpu", "trainer.devices=1,2"],
        "trainer.devices cannot be swept",
    ),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSED, ids=[" ".join(a) for a, _ in REFUSED])
def test_refusals(arguments, message, shell, tiny, tmp_path):
    path = "" if "PATH=none" in arguments else f"{fake_slurm.install(tmp_path / 'bin')}:{os.environ['PATH']}"
    arguments = [argument for argument in arguments if argument != "PATH=none"]
    plain = [override for override in tiny if not override.startswith("trainer.num_threads")]
    done = shell("-m", *GRID, *plain, *arguments, env={"PATH": path})
    assert done.returncode == 2, done
    assert message in done.stderr
    errors = [line for line in done.stderr.splitlines() if not line.startswith("tokeniz")]
    assert len(errors) == 1, done.stderr
    assert not list(tmp_path.glob("outputs/sweeps/*"))


@pytest.mark.parametrize(
    ("launcher", "extra"),
    [("JoblibLauncher", "joblib"), ("RayLauncher", "ray"), ("SubmititSlurmLauncher", "slurm")],
)
def test_a_launcher_that_is_not_installed_names_its_extra(launcher, extra, monkeypatch):
    from omegaconf import OmegaConf

    from hydra_plugins import tielab_launcher
    from tielab.errors import RequestError

    kind = getattr(tielab_launcher, launcher)
    monkeypatch.setattr(kind, "PLUGIN", kind.PLUGIN.replace("hydra_plugins.", "hydra_plugins.not_"))
    config = OmegaConf.create({"hydra": {"runtime": {"choices": {"hydra/launcher": extra}}}})
    with pytest.raises(RequestError) as error:
        kind().setup(hydra_context=None, task_function=None, config=config)
    assert str(error.value) == f"hydra/launcher={extra} needs the extra: pip install 'tielab[{extra}]'"
