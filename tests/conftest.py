"""What every test needs: a private cache, a tiny corpus, and ``train.py`` as a person would call it."""

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest
from click.testing import CliRunner

from running import ROOT, TINY, call_main

os.environ.update(
    WANDB_MODE="offline", WANDB_ERROR_REPORTING="false", WANDB_SILENT="true", OMP_WAIT_POLICY="PASSIVE"
)
# As in an activated environment: `make test` runs without one, and wandb's agent calls `python` by name.
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
signal.signal(signal.SIGINT, signal.default_int_handler)  # a script's `make test &` would have it ignored


@pytest.fixture(autouse=True)
def unchanged_environment():
    """What a test leaves in the environment, such as the W&B mode of a run in this process, ends with it."""
    with mock.patch.dict(os.environ):
        yield


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory):
    """The token cache shared by all tests of this process."""
    folder = tmp_path_factory.mktemp("cache")
    os.environ["TIELAB_CACHE"] = str(folder)
    return folder


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    """Text of 200 paragraphs over 64 characters, with some structure to learn."""
    draw = random.Random(0)
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"  # with space and newline: 64
    words = ["".join(draw.choices(letters, k=draw.randint(2, 7))) for _ in range(300)]
    paragraphs = [" ".join(draw.choices(words, k=60)) for _ in range(200)]
    path = tmp_path_factory.mktemp("corpus") / "tiny.txt"
    path.write_text("\n\n".join(paragraphs), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def tiny(corpus, cache_dir):
    """Overrides for a tiny run on the tiny corpus."""
    return (*TINY, f"data.paths=[{corpus}]")


@pytest.fixture
def shell(cache_dir, tmp_path):
    """``python train.py ARGUMENTS`` in an empty folder: exit status, standard output, standard error."""

    def run(*arguments, cwd=tmp_path, timeout=120, env=None):
        return subprocess.run(
            [sys.executable, str(ROOT / "train.py"), *map(str, arguments)],
            cwd=cwd, capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL,
            env={**os.environ, **(env or {})},
        )  # fmt: skip

    return run


@pytest.fixture
def train(cache_dir, tmp_path, monkeypatch, capfd):
    """The same from this process, whose fork server has torch already; what the runs print is lost."""

    def run(*arguments):
        capfd.readouterr()
        status = call_main(arguments, tmp_path, monkeypatch)
        return subprocess.CompletedProcess(arguments, status, *capfd.readouterr())

    return run


@pytest.fixture
def main(cache_dir, tmp_path, monkeypatch):
    """The exit status of the same, whose runs' processes commit the faults {seed: fault}."""
    import faults
    from tielab import fork_server

    def run(*arguments, **committed):
        monkeypatch.setattr(fork_server, "run_forked", faults.misbehave)
        monkeypatch.setenv(faults.FAULTS, json.dumps(committed))
        return call_main(arguments, tmp_path, monkeypatch)

    return run


@pytest.fixture
def tielab(cache_dir, tmp_path, monkeypatch):
    """``tielab ARGUMENTS`` in an empty folder, in this process: importing torch anew takes seconds."""

    def run(*arguments, cwd=tmp_path):
        from tielab.cli import main

        monkeypatch.chdir(cwd)
        done = CliRunner().invoke(main, [str(argument) for argument in arguments])
        return subprocess.CompletedProcess(arguments, done.exit_code, done.stdout, done.stderr)

    return run
