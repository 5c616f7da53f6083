"""Every command in the README and CONTRIBUTING is one that works."""

import re
import shlex
import subprocess

import click
import pytest

from running import ROOT, config_of
from tielab import cli
from tielab.checks import check_config
from tielab.data.budget import check_fits
from tielab.data.prepare import prepare

PAGES = ("README.md", "CONTRIBUTING.md", "docs/clusters.md")


def commands():
    """Command lines of fenced blocks and of code spans that begin like a command."""
    found = []
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        blocks = re.findall(r"^```(?:bash|sh)?\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
        spans = re.findall(r"`((?:python train\.py|tielab|make|pytest) [^`]+)`", text)
        lines = [line.split("#")[0].strip() for block in blocks for line in block.splitlines()] + spans
        found += [
            line for line in lines if re.match(r"(python train\.py|tielab|make|pytest|wandb|pip) ", line)
        ]
    return sorted(set(found))


def of(program):
    return [pytest.param(line, id=line) for line in commands() if line.startswith(program)]


def expanded(overrides):
    """One list of overrides per job of a sweep over comma-separated values, or the ends of intervals."""
    jobs = [[]]
    for override in overrides:
        key, _, value = override.partition("=")
        interval = re.search(r"interval\(([^,()]*),([^,()]*)\)", value)
        values = value.split(",") if not value.startswith(("[", "'")) else [value]
        values = list(interval.groups()) if interval else values
        jobs = [[*job, f"{key}={one}"] for job in jobs for one in values]
    return jobs


@pytest.mark.parametrize("line", of("python train.py"))
def test_train_commands_compose(line, monkeypatch, cache_dir):
    words = shlex.split(line)[2:]
    if "--help" in words or "--cfg" in words or "--config-dir" in words:
        return  # run by the tests of config and of rerun
    overrides = [word for word in words if word != "-m" and not word.startswith("hydra")]
    overrides = [word.replace("NAME", "x") for word in overrides]
    jobs = expanded(overrides)
    assert len(jobs) == 1 or "-m" in words, line
    for job in jobs:
        if any(word.startswith("experiments=") for word in job):
            continue
        config = config_of(*job)
        check_config(config)
        if config["data"]["corpus"] == "text":
            monkeypatch.chdir(ROOT)
            check_fits(prepare(config["data"]), config["data"])


@pytest.mark.parametrize("line", of("tielab"))
def test_tielab_commands_parse(line):
    name, *arguments = shlex.split(line)[1:]
    command = cli.main.get_command(click.Context(cli.main), name)
    assert isinstance(command, click.Command)
    command.make_context(name, arguments)


@pytest.mark.parametrize("line", of("make"))
def test_make_targets_exist(line):
    target = line.split()[1]
    done = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_there_are_commands_of_every_kind():
    for program in (
        "python train.py",
        "tielab report",
        "tielab rerun",
        "tielab resume",
        "tielab sample",
        "make train",
        "make test",
    ):
        assert any(line.startswith(program) for line in commands()), program


def test_files_and_folders_that_the_readme_names_exist():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for name in re.findall(r"`((?:src|conf|tests|docs|experiments)/[\w/.]*)`", text):
        assert (ROOT / name).exists(), name
    for link in re.findall(r"\]\(([^)#]+)\)", text):
        assert link.startswith("http") or (ROOT / link).exists(), link
