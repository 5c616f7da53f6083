import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from running import ROOT
from tielab.doctor import folders, machine, packages
from tielab.doctor.findings import FAIL, OK, WARN, Finding, examine, is_healthy, to_text
from tielab.slots import try_lock


def only(findings, name):
    (found,) = [finding for finding in findings if finding.name == name]
    return found


def test_the_whole_check_is_json_and_its_status_says_whether_all_is_well(invoke, tmp_path, monkeypatch):
    monkeypatch.setenv("TIELAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("WANDB_MODE", "offline")
    content = json.loads(invoke("doctor", "--json").stdout)
    names = {check["name"] for check in content["checks"]}
    assert names >= {
        "python", "packages", "extras", "torch", "cores", "checkout", "git", "outputs", "cache", "W&B",
    }  # fmt: skip
    assert all(check["remedy"] for check in content["checks"] if check["level"] != OK)
    failed = [check for check in content["checks"] if check["level"] == FAIL]
    assert content["ok"] is (not failed)
    monkeypatch.setattr(folders, "CHECKOUT", tmp_path)
    result = invoke("doctor")
    assert result.exit_code == 1
    assert "lacks train.py, conf/config.yaml" in result.stdout


def test_a_check_that_breaks_keeps_no_other_back():
    def broken():
        yield Finding("first", OK, "fine")
        raise OSError("libtorch\nis gone")

    found = examine({"a": broken, "b": lambda: [Finding("b", OK, "fine")]})
    assert [(finding.name, finding.level) for finding in found] == [("first", OK), ("a", FAIL), ("b", OK)]
    assert found[1].found == "cannot be checked: OSError: libtorch is gone"
    assert not is_healthy(found)


def test_torch_that_cannot_be_imported_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    (found,) = machine.check_torch()
    assert (found.level, found.name) == (FAIL, "torch")
    assert "cannot be imported" in found.found


def test_a_broken_torch_is_one_finding(tmp_path, monkeypatch):
    """In a process that has not imported it yet: everything beside it is still looked at."""
    (tmp_path / "torch.py").write_text("raise ImportError('libtorch is gone')\n")
    path = f"{tmp_path}:{ROOT / 'src'}"
    done = subprocess.run(
        [sys.executable, "-m", "tielab.cli", "doctor", "--json"],
        env={**os.environ, "PYTHONPATH": path, "WANDB_MODE": ""}, capture_output=True, text=True,
    )  # fmt: skip
    checks = json.loads(done.stdout)["checks"]
    assert [check["name"] for check in checks if check["level"] == FAIL] == ["torch"]
    assert done.returncode == 1


def test_packages_are_held_against_what_is_required(monkeypatch):
    real = metadata.version
    assert only(packages.check_packages(), "packages").level == OK
    assert only(packages.check_python(), "python").level == OK
    monkeypatch.setattr(metadata, "version", lambda name: "1.0" if name == "lightning" else real(name))
    found = only(packages.check_packages(), "packages")
    assert found.level == FAIL
    assert "lightning is 1.0, wanted <2.7,>=2.6.4" in found.found
    assert found.remedy.startswith("pip install 'lightning")


def test_extras_that_are_absent_are_no_fault(monkeypatch):
    real = metadata.version

    def version(name):
        if name == "optuna":
            raise metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(metadata, "version", version)
    found = only(packages.check_packages(), "extras")
    assert found.level == OK
    assert "optuna" in found.found.partition("not installed: ")[2]
    assert "pip install 'tielab[NAME]'" in found.found


def test_a_cache_that_cannot_be_written_is_repaired_by_another(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("TIELAB_CACHE", str(tmp_path / "file" / "cache"))
    found = only(folders.check_cache(), "cache")
    assert found.level == FAIL
    assert found.remedy.startswith("export TIELAB_CACHE=FOLDER")


def test_what_killed_builds_left_in_the_cache_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("TIELAB_CACHE", str(tmp_path))
    for name in ("wiki-bpe-1", ".wiki-bpe-2.left", ".wiki-bpe-3.built"):
        (tmp_path / name).mkdir()
    (tmp_path / "wiki-bpe-1" / "meta.json").write_text("x" * 1500)
    lock = try_lock(tmp_path / "wiki-bpe-3.lock")
    found = only(folders.check_cache(), "cache entries")
    os.close(lock)
    assert found.level == WARN
    assert found.found == "1 tokenized texts, 1.5 kB; 1 left by builds that were killed"
    assert found.remedy == f"rm -r {tmp_path / '.wiki-bpe-2.left'}"


@pytest.mark.parametrize(("free", "level"), [(1e12, OK), (1e9, WARN), (1e8, FAIL)])
def test_a_full_disk_is_told_before_the_run_finds_it(monkeypatch, tmp_path, free, level):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(folders.shutil, "disk_usage", lambda path: type("Usage", (), {"free": free}))
    (found,) = folders.check_outputs()
    assert found.level == level
    assert not Path("outputs").exists()


@pytest.mark.parametrize(
    ("quota", "load", "level", "remedy"),
    [
        ("max 100000", 0.0, OK, ""),
        ("50000 100000", 0.0, WARN, "trainer.num_threads=1, or start with taskset -c"),
        ("max 100000", 9999.0, WARN, "export OMP_WAIT_POLICY=PASSIVE"),
    ],
)
def test_cores_that_others_have_are_told(monkeypatch, tmp_path, quota, load, level, remedy):
    (tmp_path / "cpu.max").write_text(quota)
    monkeypatch.setattr(machine, "CPU_QUOTA", tmp_path / "cpu.max")
    monkeypatch.setattr(os, "getloadavg", lambda: (load, load, load))
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    (found,) = machine.check_cores()
    assert (found.level, found.remedy) == (level, remedy)


def test_wandb_is_asked_for_its_mode_and_its_key_is_kept_secret(monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_API_KEY", "s" * 40)
    (found,) = machine.check_wandb()
    assert found.level == OK
    assert found.found.startswith("offline, as WANDB_MODE says")
    assert "WANDB_API_KEY=***" in found.found
    assert "sss" not in found.found
    monkeypatch.setenv("WANDB_MODE", "sometimes")
    (found,) = machine.check_wandb()
    assert (found.level, found.remedy) == (FAIL, "repair that, or train with logger=csv")


def test_a_terminal_is_not_overrun():
    finding = Finding("torch", WARN, "word " * 40, "do " * 40)
    lines = to_text([finding], 80).replace("\x1b[33m\x1b[1mwarn\x1b[0m", "warn").splitlines()
    assert max(map(len, lines)) <= 80
    assert " ".join(lines).split().count("word") == 40
    assert to_text([finding], None).startswith("warn  torch  word word")
