"""What ``train.py`` does before Hydra is imported, and what a job's process need not do any more."""

import json
import os
import subprocess
import sys
import time

import pytest
from hydra._internal.hydra import Hydra

from running import ROOT, TINY, call_main, config_of
from tielab.folder import reserve
from tielab.help import asks_for_help, help_text
from tielab.launch import may_set_mode
from tielab.record import read_record, write_record
from tielab.run import first_record
from tielab.start import logs_to_wandb, will_fork

CALLED = (
    "import runpy, sys; sys.argv = ['train.py', *sys.argv[1:]]\n"
    f"try: runpy.run_path({str(ROOT / 'train.py')!r}, run_name='__main__')\n"
    "except SystemExit: print('loaded', *sorted(sys.modules))"
)


def test_help_imports_no_hydra():
    found = subprocess.run([sys.executable, "-c", CALLED, "--help"], capture_output=True, text=True)
    printed, _, loaded = found.stdout.partition("loaded ")
    assert printed.startswith(help_text(ROOT / "conf"))
    assert "  width: d1024, d128" in printed
    assert not {"hydra", "omegaconf", "yaml", "numpy", "torch"} & {*loaded.split()}


def test_help_is_asked_for_by_its_flags_alone():
    assert asks_for_help(["-m", "seed=0,1", "-h"])
    assert not asks_for_help(["hydra.help.header=x"])


@pytest.mark.parametrize(
    ("arguments", "forks"),
    [
        ([], True),
        (["-m", "seed=0,1", "~callbacks.best"], True),
        (["--config-dir", "run", "--config-name=run"], True),
        (["--cfg", "job"], False),
        (["-sc", "query=tielab"], False),
        (["launch=inline"], False),
        (["-m", "hydra/launcher=joblib", "parallel_jobs=2"], False),
    ],
)
def test_torch_is_imported_early_only_for_what_trains_from_this_process(arguments, forks):
    assert will_fork(arguments) is forks


@pytest.mark.parametrize(
    ("arguments", "logs"),
    [([], True), (["logger=wandb"], True), (["logger=none"], False), (["~logger.wandb"], False)],
)
def test_wandb_is_imported_early_only_where_runs_log_to_it(arguments, logs):
    assert logs_to_wandb(arguments) is logs


def test_a_refused_command_leaves_no_server_behind(tmp_path):
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "train.py"), "model.teid=true"],
        cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    _, err = process.communicate(timeout=60)
    assert (process.returncode, "did you mean model.tied?" in err) == (2, True)
    deadline = time.monotonic() + 1  # its imports alone take longer
    while still_there(process.pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not still_there(process.pid)


@pytest.mark.parametrize(("arguments", "times"), [((), 1), (("hydra.mode=RUN",), 2)])
def test_a_command_is_composed_once_unless_it_could_set_the_mode(
    arguments, times, tmp_path, monkeypatch, capfd
):
    composed, whole = [], Hydra.compose_config
    monkeypatch.setattr(
        Hydra, "compose_config", lambda self, **asked: composed.append(asked) or whole(self, **asked)
    )
    assert call_main(["model.num_heads=5", *arguments], tmp_path, monkeypatch) == 2
    assert "cannot be split over model.num_heads=5" in capfd.readouterr().err
    assert len(composed) == times


def test_a_file_can_set_the_mode(tmp_path):
    assert not may_set_mode(ROOT / "conf", ["-m", "seed=0,1"])
    assert may_set_mode(ROOT / "conf", ["--config-dir=x"])
    (tmp_path / "mine.yaml").write_text("# @package _global_\nhydra:\n  mode: MULTIRUN\n")
    assert may_set_mode(tmp_path, [])


def still_there(group: int) -> list[str]:
    """The living processes of a group."""
    listed = subprocess.run(["ps", "-eo", "pgid=,stat=,args="], capture_output=True, text=True, check=True)
    rows = (line.split(maxsplit=2) for line in listed.stdout.splitlines())
    return [row[2] for row in rows if row[0] == str(group) and not row[1].startswith("Z")]


def test_a_preloaded_process_imports_next_to_nothing_for_its_run(tmp_path, corpus, cache_dir):
    config = config_of(*TINY, f"data.paths=[{corpus}]")
    folder = tmp_path / "run"
    reserve(config, folder)
    write_record(folder, first_record(config))
    script = (
        "import gc, json, pathlib, sys\n"
        "import tielab.preloaded\n"
        "before, frozen = set(sys.modules), gc.get_freeze_count()\n"
        "from tielab.experiment import run_rank\n"
        "status = run_rank(pathlib.Path(sys.argv[1]))\n"
        "print(json.dumps([status, gc.isenabled(), frozen, sorted(set(sys.modules) - before)]))"
    )
    found = subprocess.run(
        [sys.executable, "-c", script, str(folder)], capture_output=True, text=True, env={**os.environ}
    )
    status, collects, frozen, new = json.loads(found.stdout.splitlines()[-1])
    assert (status, read_record(folder).status) == (0, "finished")
    assert collects
    assert frozen > 100_000
    assert len(new) < 10, new
    assert not [name for name in new if name.startswith(("tielab", "lightning", "rich", "wandb"))]
