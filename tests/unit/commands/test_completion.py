"""TAB in real shells: bash is everywhere, zsh and fish where they are installed."""

import contextlib
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from running import ROOT
from tielab.config import register

BASH = r"""
eval "$(tielab completion bash)"
tab() {
    COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}; COMP_WORDS=($COMP_LINE); COMPREPLY=()
    [[ $COMP_LINE == *' ' ]] && COMP_WORDS+=("")
    COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 ))
    local found=$(complete -p "${COMP_WORDS[0]}") ; found=${found##*-F }
    "${found%% *}" "${COMP_WORDS[0]}" "${COMP_WORDS[COMP_CWORD]}" ""
    echo "${COMPREPLY[*]}"
}
compopt() { :; }  # only while readline completes
"""


def environment(tmp_path):
    path = f"{tmp_path / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    return os.environ | {"PATH": path, "PYTHONPATH": str(ROOT / "src"), "HOME": str(tmp_path)}


@pytest.fixture
def bash(tmp_path, outputs):
    """The choices that TAB offers after each of some lines."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "tielab").write_text(f'#!/bin/sh\nexec {sys.executable} -m tielab.cli "$@"\n')
    (programs / "tielab").chmod(0o755)

    def tab(*lines):
        script = BASH + "\n".join(f"tab '{line}'" for line in lines)
        done = subprocess.run(
            ["bash", "--norc", "-c", script],
            cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True,
        )  # fmt: skip
        assert done.stderr == ""
        return [set(line.split()) for line in done.stdout.splitlines()]

    return tab


def test_bash_completes_commands_options_and_runs(bash):
    commands, options, runs, sweeps = bash(
        "tielab s", "tielab ls --", "tielab show outputs/runs/2026", "tielab ls outputs/s"
    )
    assert {"show", "sample"} <= commands
    assert options == {"--json", "--help"}
    assert runs == {"outputs/runs/2026-01-02_00-00-00-bbbbbb"}
    assert sweeps == {"outputs/sweeps/2026-01-01_00-00-00-aaaaaa"}


def test_bash_completes_overrides_of_our_train_py_alone(bash, tmp_path):
    (tmp_path / "train.py").write_text("print('model.ties_were_run')  # of somebody else\n")
    keys, values, foreign, other = bash(
        f"python {ROOT}/train.py -m model.ti", f"python {ROOT}/train.py tying=rot",
        "python train.py model.ti", "python other.py x",
    )  # fmt: skip
    assert keys == {"model.tied="}
    assert values == {"rotated"}  # what stands before the = is another word for readline
    assert foreign == other == set()


def choices(line, monkeypatch, capsys):
    from tielab import launch

    monkeypatch.setenv("COMP_LINE", line)
    monkeypatch.setattr("sys.argv", ["train.py"])
    register()
    assert launch.main(ROOT / "conf", ["-sc", "query=tielab"]) == 0
    return capsys.readouterr().out.split()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("python train.py model.head_map=", ["none", "linear", "permutation", "rotation"]),
        ("python train.py model.tied=", ["true", "false"]),
        ("python train.py -m model.tied=true,", ["true,false"]),
        ("python train.py data.document=p", ["paragraph"]),
        ("python train.py study.tune=", ["lr", "null"]),
        ("python train.py -m vocab=byte,bpe1", ["byte,bpe1024", "byte,bpe16384"]),
        ("python train.py seed=", ["0"]),
    ],
)
def test_values_are_what_a_key_can_have(line, expected, monkeypatch, capsys):
    key = line.split()[-1].partition("=")[0]
    assert choices(line, monkeypatch, capsys) == [f"{key}={value}" for value in expected]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("python train.py optimizer.learning_rate", ["optimizer.learning_rate="]),
        ("python train.py --config-n", ["--config-name"]),
        ("python train.py nonsense.", []),
    ],
)
def test_keys_groups_and_flags_are_completed(line, expected, monkeypatch, capsys):
    assert choices(line, monkeypatch, capsys) == expected


@pytest.mark.parametrize("quoted", ["'data.paths=[a b.txt]'", '"data.paths=[a b]"', r"data.paths=[a\ b]"])
def test_quoted_overrides_before_the_last_word_do_no_harm(quoted, monkeypatch, capsys):
    assert choices(f"python train.py data=text {quoted} model.ti", monkeypatch, capsys) == ["model.tied="]


def test_bash_escapes_a_run_whose_name_has_spaces(outputs, tmp_path):
    """On a terminal: only a real readline escapes."""
    (outputs / "runs" / "2026-01-02_00-00-00-bbbbbb").rename(outputs / "runs" / "my run")
    program = tmp_path / "bin" / "tielab"
    program.parent.mkdir()
    program.write_text(
        "#!/bin/bash\n[[ $_TIELAB_COMPLETE || $1 == completion ]] && "
        f'exec {sys.executable} -m tielab.cli "$@"\n'
        """printf '<%s>' "$@"\n"""
    )
    program.chmod(0o755)
    terminal, inside = pty.openpty()
    shell = subprocess.Popen(
        ["bash", "--norc", "-i"], cwd=tmp_path, env=environment(tmp_path) | {"TERM": "dumb"},
        stdin=inside, stdout=inside, stderr=inside, start_new_session=True,
    )  # fmt: skip
    os.close(inside)
    os.write(terminal, b'eval "$(tielab completion bash)"\ntielab show outputs/runs/my\t\nexit\n')
    said = b""
    with contextlib.suppress(OSError):  # how a terminal ends whose shell has gone
        while part := os.read(terminal, 1000):
            said += part
    os.close(terminal)
    shell.wait()
    assert b"<show><outputs/runs/my run/>" in said.replace(b"\r\n", b"")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_script_is_one_that_its_shell_can_read(invoke, tmp_path, shell):
    script = tmp_path / "script"
    script.write_text(invoke("completion", shell).stdout)
    assert "tielab" in script.read_text()
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell}")
    assert subprocess.run([shell, "-n", script], capture_output=True, text=True).stderr == ""


@pytest.mark.skipif(shutil.which("fish") is None, reason="no fish")
def test_fish_completes_both(bash, tmp_path, invoke):
    (tmp_path / "script.fish").write_text(invoke("completion", "fish").stdout)
    lines = ("tielab sho", f"python {ROOT}/train.py -m model.ti")
    tabs = "; ".join(f"complete -C '{line}'" for line in lines)
    done = subprocess.run(
        ["fish", "--no-config", "-c", f"source {tmp_path / 'script.fish'}; {tabs}"],
        env=environment(tmp_path), cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert [line.partition("\t")[0] for line in done.stdout.splitlines()] == ["show", "model.tied="]
