"""What it gains to train several small models on one GPU at the same time: ``jobs_per_gpu``."""

import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import measure
from tielab.errors import RequestError

ROOT = Path(__file__).parents[1]
NUM_JOBS = 4
AT_A_TIME = (1, 2, 4)
TOKENS, TOKENS_REHEARSED = 4_194_304, 2_048


def rows(device: str, rehearsed: bool) -> list[dict[str, Any]]:
    """A row for each number of jobs at a time: wall time of one sweep, start-up included."""
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "words.txt").write_text(_text(200 if rehearsed else 20_000))
        if not rehearsed:
            _sweep(folder, device, rehearsed, 1, 1)  # the tokenizer and the token files are made
        num_jobs, numbers = (2, (2,)) if rehearsed else (NUM_JOBS, AT_A_TIME)
        for at_a_time in numbers:

            def run(at_a_time: int = at_a_time) -> None:
                _sweep(folder, device, rehearsed, num_jobs, at_a_time)

            seconds = measure.seconds(run)
            found.append(
                {
                    "jobs_at_a_time": at_a_time,
                    "jobs": num_jobs,
                    "seconds": seconds,
                    "jobs_per_hour": 3600 * num_jobs / seconds,
                    "speedup": found[0]["seconds"] / seconds if found else 1.0,
                }
            )
    return found


def _text(num_paragraphs: int) -> str:
    draw = random.Random(0)
    words = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(2, 8))) for _ in range(2000)]
    return "\n\n".join(" ".join(draw.choices(words, k=60)) for _ in range(num_paragraphs))


def _sweep(folder: Path, device: str, rehearsed: bool, num_jobs: int, at_a_time: int) -> None:
    """Train ``num_jobs`` seeds of a small model, so many at a time.

    Raises:
        RequestError: one of them failed.
    """
    overrides = [
        "data=text", f"data.paths=[{folder / 'words.txt'}]", "logger=none", "callbacks=none",
        "budget.num_validations=1", f"budget.tokens={TOKENS_REHEARSED if rehearsed else TOKENS}",
        f"seed={','.join(map(str, range(num_jobs)))}", f"parallel_jobs={at_a_time}",
        f"output_dir={tempfile.mkdtemp(dir=folder)}",
    ]  # fmt: skip
    if rehearsed:
        overrides += ["model=nano", "vocab=byte", "data.block_size=16", "data.batch_size=8"]
    if at_a_time > 1:
        overrides.append("hydra/launcher=joblib")
    if device == "cuda":
        overrides += ["trainer=gpu", "trainer.precision=bf16-mixed", f"jobs_per_gpu={at_a_time}"]
    done = subprocess.run(
        [sys.executable, str(ROOT / "train.py"), "-m", *overrides],
        cwd=folder,
        env={**os.environ, "TIELAB_CACHE": str(folder / "cache")},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        last = json.dumps(done.stderr.strip().splitlines()[-1:])
        raise RequestError(f"{at_a_time} jobs at a time ended with status {done.returncode}: {last}")
