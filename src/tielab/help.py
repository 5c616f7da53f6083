"""What ``python train.py --help`` prints: ways to call it, and the options of every group.

Imports no Hydra, whose own help composes every group first, in seconds.
"""

from collections.abc import Sequence
from pathlib import Path

HELP = """\
Train a MiniGPT with a tied or an untied LM head and write what came out.

  python train.py model.tied=false                       one run
  python train.py -m model.tied=true,false               both arms, one table
  python train.py -m model.tied=true,false seed=0,1,2    with seeds: intervals
  python train.py -m model.tied=true,false width=d64,d128 vocab=bpe1024,bpe4096
  python train.py -m model.tied=true,false matching=params  the arms with equally many parameters
  python train.py -m model.tied=true,false study.tune=lr seed=0,1,2  each arm at its own best rate
  python train.py --cfg job                              every key with its value
  python train.py --config-dir RUN --config-name run     repeat a run from its folder
  python train.py -m ... resume=true                     go on with this sweep where it stopped

Any key is set with key=value; a comma-separated list sweeps it (with -m).

Groups (group=option)
{groups}

What came out: tielab report [FOLDER...]; TAB for keys and options: tielab completion --help
"""


def asks_for_help(arguments: Sequence[str]) -> bool:
    return "--help" in arguments or "-h" in arguments


def help_text(config_dir: Path) -> str:
    """How to call ``train.py``.

    Args:
        config_dir: the folder of the config groups.
    """
    return HELP.format(groups=_list_groups(config_dir))


def _list_groups(config_dir: Path) -> str:
    """One line per config group with its options; parts that start with an underscore are not options."""
    lines = []
    for group in sorted(path for path in config_dir.rglob("*") if path.is_dir()):
        options = sorted(p.stem for p in group.glob("*.yaml") if not p.stem.startswith("_"))
        if options:
            lines.append(f"  {group.relative_to(config_dir)}: {', '.join(options)}")
    return "\n".join(lines)
