import re
import shlex
import subprocess
import sys

import click
import pytest

from tielab.cli import COMMANDS, STORY, main

CONTEXT = click.Context(main, info_name="tielab")


def help_of(name: str) -> str:
    command = main.get_command(CONTEXT, name)
    assert command is not None
    return command.get_help(click.Context(command, info_name=name, parent=CONTEXT))


def examples_of(command: click.Command | None) -> list[str]:
    """The command lines of ``tielab`` in the examples of a command's docstring."""
    assert command is not None
    assert command.help is not None
    _, _, block = command.help.partition("\b\n")
    return re.findall(r"tielab ([^|)\n]+)", block)


def parts_of(command: click.Command | None) -> list[click.Command | None]:
    """A command and those below it."""
    return [command, *(command.commands.values() if isinstance(command, click.Group) else ())]


def test_the_help_is_one_screen_and_names_every_command_once(invoke):
    result = invoke("--help")
    lines = result.stdout.splitlines()
    assert result.exit_code == 0
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    for name in COMMANDS:
        assert sum(f"  tielab {name} " in f"{line} " for line in lines) == 1, name
    assert "python train.py -m model.tied=true,false" in result.stdout
    assert invoke().output == result.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_examples_that_parse_and_says_what_it_does(name):
    command = main.get_command(CONTEXT, name)
    for part in parts_of(command):
        examples = examples_of(part)
        assert examples, part.name
        for example in examples:
            given, *arguments = shlex.split(example)
            assert given == name
            if isinstance(command, click.Group):
                given, *arguments = arguments
                part = command.commands[given]
            part.make_context(given, arguments, parent=CONTEXT)  # a wrong one raises UsageError
    assert max(map(len, help_of(name).splitlines())) <= 80


def test_every_command_of_the_story_is_one():
    assert (
        [name for commands in STORY.values() for name in commands]
        == list(COMMANDS)
        == main.list_commands(CONTEXT)
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("shwo",), "tielab has no command shwo; did you mean show?; see tielab --help"),
        (("nothing-like-it",), "tielab has no command nothing-like-it; see tielab --help"),
        (("--vers",), "tielab has no option --vers; did you mean --version?; see tielab --help"),
        (("ls", "--jsn"), "tielab ls has no option --jsn; did you mean --json?; see tielab ls --help"),
        (("report", "--csv"), "tielab report: option '--csv' requires an argument; see tielab report --help"),
        (("show",), "tielab show: missing argument 'RUN'; see tielab show --help"),
        (("show", "a", "b"), "tielab show: got unexpected extra argument (b); see tielab show --help"),
    ],
)  # fmt: skip
def test_a_wrong_command_line_is_one_line(invoke, arguments, message):
    result = invoke(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.splitlines() == [f"error: {message}"]


def test_the_version_is_told(invoke):
    assert re.fullmatch(r"tielab \d+\.\d+\.\d+\S*\n", invoke("--version").stdout)


def test_looking_imports_no_torch(outputs):
    """Help, lists, pages and completion answer at once."""
    run = next(outputs.glob("runs/2026*"))
    code = f"""
import sys
from click.testing import CliRunner
from tielab.cli import COMMANDS, main
for arguments in (["--help"], ["ls", {str(outputs)!r}], ["show", {str(run)!r}], ["completion", "zsh"]):
    assert CliRunner().invoke(main, arguments).exit_code == 0, arguments
for name in COMMANDS:
    assert CliRunner().invoke(main, [name, "--help"]).exit_code == 0, name
slow = {{"torch", "lightning", "pandas", "scipy", "wandb", "transformers"}} & set(sys.modules)
assert not slow, slow
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
