"""Every command in the README, CONTRIBUTING and the documentation is one that works."""

import functools
import re
import shlex
import subprocess
import tomllib

import click
import pytest

from running import ROOT, config_of
from tielab import cli
from tielab.checks import check_config
from tielab.data.budget import check_fits
from tielab.data.prepare import prepare

PAGES = ("README.md", "CONTRIBUTING.md", *sorted(str(p.relative_to(ROOT)) for p in ROOT.glob("docs/**/*.md")))
BLOCK = re.compile(r"^```([^\n]*)\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)
SHELL = ("", "bash", "sh", "console")
"""Languages of the blocks that hold commands."""
TESTED = ("python train.py", "tielab", "make", "pytest", "pip install", "python -m", "wandb")
ONLY_LOOK = (
    "source",
    "export",
    "cd",
    "ls",
    "python",
    "tmux",
    "tensorboard",
    "trackio",
    "docker",
    "git clone",
)
"""Programs that are not ours and change nothing of a run."""


def commands():
    """Command lines of shell blocks and code spans that begin like a command, each with its page."""
    found = []
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        for block in (body for language, body in BLOCK.findall(text) if language in SHELL):
            lines = block.replace("\\\n", " ").splitlines()
            prompted = [line for line in lines if line.startswith("$ ")]  # the other lines are output
            found += [(page, bare(line)) for line in prompted or lines]
        # Not `tielab NAME` alone, which names a command.
        spans = re.findall(r"`((?:python train\.py|tielab \w+|make|pytest) [^`]+)`", BLOCK.sub("", text))
        found += [(page, bare(span)) for span in spans]
    return sorted({(page, line) for page, line in found if line})


def bare(line):
    """A line without prompt, comment, pipe and settings of the environment."""
    line = re.split(r"(?:^|\s)#", line.removeprefix("$ "))[0].strip()
    line = re.split(r" (?:\||&&|&|>|2>) ?", line)[0] if "$(" not in line else line
    return re.sub(r"^(?:[A-Z_]+=\S+ )+", "", line).strip()


def of(program):
    lines = dict.fromkeys(line for _, line in commands() if line.startswith(f"{program} "))
    return [pytest.param(line, id=line) for line in lines]


def test_every_line_of_a_shell_block_is_a_command_that_is_tested():
    unknown = [
        (page, line)
        for page, line in commands()
        if not any(line == program or line.startswith(f"{program} ") for program in (*TESTED, *ONLY_LOOK))
    ]
    assert unknown == []


def expanded(overrides):
    """Jobs of a sweep in which every value of every key, or end of an interval, occurs once."""
    choices = []
    for override in overrides:
        key, _, value = override.partition("=")
        interval = re.search(r"interval\(([^,()]*),([^,()]*)\)", value)
        values = value.split(",") if not value.startswith(("[", "'")) else [value]
        choices.append([f"{key}={one}" for one in (interval.groups() if interval else values)])
    num_jobs = max(map(len, choices), default=1)
    return [tuple(values[job % len(values)] for values in choices) for job in range(num_jobs)]


composed = functools.cache(config_of)
"""Composing costs a quarter of a second, and the pages ask for the same things."""


@pytest.mark.parametrize("line", of("python train.py"))
def test_train_commands_compose(line, monkeypatch, cache_dir):
    words = shlex.split(line)[2:]
    if "--help" in words or "--cfg" in words or "--config-dir" in words:
        return  # run by the tests of config and of rerun
    # A model to start from is its reader's.
    overrides = [word for word in words if word != "-m" and not word.startswith(("hydra", "init_from="))]
    if any(word.partition("=")[0].isupper() for word in overrides) or overrides == ["..."]:
        return  # a pattern such as GROUP=OPTION
    overrides = [word.replace("NAME", "x").replace("COMMIT", 40 * "0") for word in overrides]
    jobs = expanded([word for word in overrides if not word.startswith("~")])
    assert len(jobs) == 1 or "-m" in words, line
    for job in jobs:
        if any(word.startswith("experiments=") for word in job):
            continue
        config = composed(*job, *(word for word in overrides if word.startswith("~")))
        check_config(config)
        if config["data"]["corpus"] == "text" and any("src/" in path for path in config["data"]["paths"]):
            monkeypatch.chdir(ROOT)
            check_fits(prepare(config["data"]), config["data"])


@pytest.mark.parametrize("line", of("tielab"))
def test_tielab_commands_parse(line, monkeypatch):
    # RUN, SWEEP and FOLDER stand for files that are not there.
    monkeypatch.setattr(click.Path, "convert", lambda self, value, param, ctx: self.coerce_path_result(value))
    name, *arguments = shlex.split(line)[1:]
    command = cli.main.get_command(click.Context(cli.main), name)
    assert isinstance(command, click.Command), name
    if not {"-h", "--help"} & {*arguments}:
        command.make_context(name, arguments)


@pytest.mark.parametrize("line", of("make"))
def test_make_targets_exist(line):
    target = line.split()[1]
    done = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("line", of("pip install"))
def test_extras_exist(line):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for extras in re.findall(r"tielab\[([\w,]+)\]", line):
        assert {*extras.split(",")} <= {*project["optional-dependencies"]}


@pytest.mark.parametrize("line", of("pytest"))
def test_tests_exist(line):
    for word in shlex.split(line)[1:]:
        assert not word.startswith("tests") or (ROOT / word.split("::")[0]).exists()


def test_there_are_commands_of_every_kind():
    lines = [line for _, line in commands()]
    for program in (
        "python train.py",
        "tielab report",
        "tielab rerun",
        "tielab resume",
        "tielab sample",
        "make train",
        "make test",
        "pip install",
        "pytest",
    ):
        assert any(line.startswith(program) for line in lines), program


@pytest.mark.parametrize("page", PAGES)
def test_files_and_folders_that_a_page_names_exist(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    named = re.findall(r"`((?:src|conf|tests|docs|experiments)/[\w/.]*)`", BLOCK.sub("", text))
    titles = set(re.findall(r'title="([^"]+)"', text))  # files that the page lets its reader make
    for name in named:
        assert (ROOT / name).exists() or name in titles or "NAME" in name, name
    for link in re.findall(r"\]\(([^)#\s]+)\)", BLOCK.sub("", text)):
        assert link.startswith("http") or ((ROOT / page).parent / link).exists(), link
