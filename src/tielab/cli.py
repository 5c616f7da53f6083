"""The ``tielab`` command: everything beside the training.

A command lives in ``tielab/commands`` and is imported when it is asked for, so that none pays for another.
"""

from importlib import import_module
from keyword import iskeyword
from typing import Any

import click

from tielab.errors import RequestError

STORY = {
    "Look at what came out": {
        "ls": ("[FOLDER...]", "sweeps and runs: status, arm, seed, result"),
        "show": ("RUN", "one run as a page"),
        "report": ("[FOLDER...]", "tied against untied: table, tests, page, figures"),
    },
    "Go on, repeat": {
        "resume": ("FOLDER", "finish a run or a sweep where it stopped"),
        "rerun": ("RUN", "repeat a run and say what differs"),
    },
    "Use a model": {
        "sample": ("RUN", 'text from it: --prompt "The city"'),
        "align": ("FOLDER", "is a tied matrix like an input or an output one"),
        "export": ("RUN", "a folder that transformers loads"),
        "import": ("FOLDER", "start a run from such a folder, tied or not"),
        "inspect": ("PATH", "is a model tied, in the file and in its config"),
    },
    "Text and dashboards": {
        "data": ("[NAME]", "a corpus: splits, hashes, lines, bytes per token"),
        "dashboard": ("COMMAND", "the W&B dashboard, as code"),
        "publish": ("FOLDER STUDY", "a study's evidence, copied beside its question"),
    },
    "This machine": {
        "doctor": ("", "what is missing or wrong here, and what to do"),
        "completion": ("SHELL", "make TAB complete tielab and train.py"),
    },
}
"""Every command in the order of ``tielab --help``: its arguments and what it does, by what one wants."""

COMMANDS = {name: f"{name}_" if iskeyword(name) else name for commands in STORY.values() for name in commands}
"""Each command with its module in ``tielab.commands``, whose ``command`` it is."""

TRAINING = (
    ("python train.py", "one run"),
    ("python train.py -m model.tied=true,false", "both arms, and their table"),
    ("python train.py --help", "what can be set and swept"),
)


class WrongUsage(click.ClickException):
    """A command line that is not one; shown as one line, like every other error."""

    exit_code = 2

    def show(self, file: Any = None) -> None:
        click.echo(f"error: {self.message}", err=True)


class Commands(click.Group):
    """The commands by name; a wrong request is answered with one line and status 2."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = import_module(f"tielab.commands.{COMMANDS[cmd_name]}").command
        assert isinstance(command, click.Command)
        return command

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The story on one screen; each command's own help has its options and examples."""
        lines = [str(self.help), "", "Train", *(f"  {how:<42}{what}" for how, what in TRAINING)]
        for heading, commands in STORY.items():
            lines += ["", heading]
            lines += [
                f"  {f'tielab {name} {arguments}':<30}{what}" for name, (arguments, what) in commands.items()
            ]
        lines += ["", "tielab COMMAND --help shows options and examples; tielab --version the version."]
        formatter.write("\n".join(lines) + "\n")

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        try:
            return super().make_context(*args, **kwargs)
        except click.UsageError as error:
            raise in_one_line(error) from None

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except RequestError as error:
            click.echo(f"error: {error}", err=True)
            ctx.exit(2)
        except click.UsageError as error:
            raise in_one_line(error, f"{ctx.command_path} {ctx.invoked_subcommand}") from None


def in_one_line(error: click.UsageError, asked: str = "tielab") -> click.ClickException:
    """A wrong command line in our words; help that was asked for by giving nothing stays help.

    Args:
        asked: the command, where the error does not know it.
    """
    from click.exceptions import NoArgsIsHelpError, NoSuchOption

    if isinstance(error, NoArgsIsHelpError):
        return error
    path = error.ctx.command_path if error.ctx is not None else asked
    if isinstance(error, NoSuchOption):
        assert error.ctx is not None
        known = [name for param in error.ctx.command.get_params(error.ctx) for name in param.opts]
        return WrongUsage(
            f"{path} has no option {error.option_name}{_close(error.option_name, known)}; see {path} --help"
        )
    unknown = error.message.removeprefix("No such command ").partition("'")[2].partition("'")[0]
    if error.message.startswith("No such command "):
        return WrongUsage(f"{path} has no command {unknown}{_close(unknown, COMMANDS)}; see {path} --help")
    message = " ".join(error.format_message().split()).rstrip(".")
    return WrongUsage(f"{path}: {message[:1].lower()}{message[1:]}; see {path} --help")


def _close(name: str, known: Any) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="tielab", message="tielab %(version)s")
def main() -> None:
    """Tied or untied? What to do with the runs that train.py writes."""


if __name__ == "__main__":
    main(prog_name="tielab")
