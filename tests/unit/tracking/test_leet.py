"""``wandb leet``, the viewer that comes with wandb: a real screen of a real offline run."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from pathlib import Path

import pytest
from test_wandb import start

from tielab.tracking.wandb import finish_wandb

SECONDS = 60
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
AWAITED = ["[2 items]", "val/bits", "[x: tokens]", "tied-1"]


def screen(command: list[str], awaited: list[str]) -> str:
    """All that a command writes to a terminal of 160 x 48 until it has shown every awaited text."""
    terminal, inside = pty.openpty()
    fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", 48, 160, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
    shown = ""
    process = subprocess.Popen(command, stdin=inside, stdout=inside, stderr=inside, env=environment)
    try:
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline and any(text not in shown for text in awaited):
            if select.select([terminal], [], [], 0.2)[0]:
                shown += re.sub(
                    r"\x1b\[[0-9;?]*[A-Za-z]", "", os.read(terminal, 65536).decode(errors="replace")
                )
    finally:
        process.kill()
        process.wait()
        os.close(inside)
        os.close(terminal)
    return shown


@pytest.mark.usefixtures("wandb_environment")
def test_leet_draws_the_curves_of_the_shared_folder_over_tokens(tmp_path: Path) -> None:
    for run_id in ("tied-1", "untied-1"):
        logger = start(tmp_path, run_id)
        for step in range(1, 20):
            logger.log_metrics({"val/bits_per_byte": 3 + 1 / step, "tokens": 512 * step}, step)
        finish_wandb(logger, 0)
    shown = screen(["wandb", "leet", str(tmp_path / "wandb")], AWAITED)
    assert [text for text in AWAITED if text not in shown] == []
