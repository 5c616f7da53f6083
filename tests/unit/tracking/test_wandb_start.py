"""That what wandb does in vain at a run's start is left out, and nothing else."""

import importlib.metadata
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import wandb.util
from wandb.sdk.lib.service import service_port_file
from wandb.sdk.lib.service.service_token import TCPServiceToken
from wandb_started import start

from tielab.tracking import wandb_start
from tielab.tracking.wandb import finish_wandb
from tielab.tracking.wandb_start import SECONDS_BETWEEN_LOOKS, look_sooner, remember_packages


def test_wandb_looks_for_its_service_sooner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    port_file, slept = tmp_path / "port.txt", []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            port_file.write_text("sock=1234\nEOF", encoding="utf-8")

    monkeypatch.setattr(service_port_file, "_SLEEP", service_port_file._SLEEP)
    look_sooner()
    monkeypatch.setattr(wandb_start, "time", SimpleNamespace(sleep=sleep))
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as service:
        token = service_port_file.poll_for_token(port_file, service, timeout=30)
        service.communicate(b"\n")
    assert isinstance(token, TCPServiceToken)
    assert slept == [SECONDS_BETWEEN_LOOKS] * 3


def test_no_limit_of_wandbs_own_is_exceeded(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(service_port_file, "_SLEEP", service_port_file._SLEEP)
    look_sooner()
    monkeypatch.setattr(wandb_start, "time", SimpleNamespace(sleep=slept.append))
    service_port_file._SLEEP(0.001)
    assert slept == [0.001]


@pytest.mark.usefixtures("wandb_environment")
def test_a_run_of_ours_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[float] = []
    monkeypatch.setattr(service_port_file, "_SLEEP", service_port_file._SLEEP)
    monkeypatch.setattr(
        wandb_start, "time", SimpleNamespace(sleep=lambda s: looked.append(s) or time.sleep(s))
    )
    finish_wandb(start(tmp_path), 0)
    assert looked
    assert max(looked) <= SECONDS_BETWEEN_LOOKS


def test_packages_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wandb.util, "working_set", wandb.util.working_set)
    before = list(wandb.util.working_set())
    assert any(package.key == "torch" for package in before)
    remember_packages()
    monkeypatch.setattr(importlib.metadata, "distributions", lambda: [])
    assert list(wandb.util.working_set()) == list(wandb.util.working_set()) == before


@pytest.mark.usefixtures("wandb_environment")
def test_a_run_of_the_fork_server_lists_the_packages_that_were_there_when_it_began(tmp_path: Path) -> None:
    script = (
        "import importlib.metadata, sys, wandb\n"
        "import tielab.preloaded\n"
        "importlib.metadata.distributions = lambda: []\n"
        "wandb.init(mode='offline', dir=sys.argv[1]).finish()\n"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True, timeout=120)
    (listed,) = tmp_path.glob("wandb/offline-run-*/files/requirements.txt")
    names = {line.partition("==")[0].lower() for line in listed.read_text(encoding="utf-8").splitlines()}
    assert {"torch", "lightning", "wandb"} <= names
