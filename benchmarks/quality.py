"""Wall time to nanoGPT's loss: its Shakespeare recipe for the CPU and ``recipe=shakespeare_char``, in turn.

Both are whole commands in processes of their own, and both finished models are scored here in one way: on the
last 10 % of the characters, all of them but the first, in windows of 64 that see nothing before them.

nanoGPT (https://github.com/karpathy/nanoGPT) is a folder given with ``--nanogpt``; a copy of its files is run
unchanged. Preparing the text counts as time of ours, and not of nanoGPT's.
"""

import argparse
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import Tensor

from benchmarks.measure import command_line, quartiles, ratios, watched, write
from tielab.data.windows import EvaluationOrder, Indices, cut
from tielab.errors import RequestError
from tielab.sample import load_run

ROOT = Path(__file__).parents[1]
CONTEXT = 64
"""Window in which both are scored; the context length of nanoGPT's recipe."""
TRAIN_SHARE = 0.9
RECIPE = (
    "config/train_shakespeare_char.py",
    *("--device=cpu", "--compile=False", "--dtype=float32", "--eval_iters=20", "--log_interval=1"),
    *("--block_size=64", "--batch_size=12", "--n_layer=4", "--n_head=4", "--n_embd=128"),
    *("--max_iters=2000", "--lr_decay_iters=2000", "--dropout=0.0"),
)
"""As its README has it, and float32: its choice of float16 is for GPUs."""
QUICK = ("budget.tokens=2048", "data.batch_size=4")
"""Overrides of ours for a look at whether it runs."""
QUICK_RECIPE = ("--max_iters=4", "--eval_interval=2", "--eval_iters=1", "--always_save_checkpoint=True")
Nats = Callable[[Tensor, Tensor], Tensor]
"""Ids (B, T) and targets (B, T) to the negative log-likelihood of each target (B, T)."""


@dataclass(frozen=True)
class Trained:
    """One training, from the start of its process to the end."""

    wall_seconds: float
    loop_seconds: float
    """Training steps with the validations between them."""
    loss: float
    """Nats per character over the whole validation split, as ``score`` has it."""
    own_loss: float
    """What the program itself says of its validation."""


def held_out(text: str) -> str:
    """The last 10 % of the characters, cut where nanoGPT cuts."""
    return text[int(len(text) * TRAIN_SHARE) :]


@torch.no_grad()
def score(nats: Nats, ids: Indices, context: int = CONTEXT, batch_size: int = 64) -> float:
    """Mean nats over ids 1 to n-1, each once, in windows of ``context`` that see nothing before them."""
    order = EvaluationOrder(len(ids), context, context)
    starts, first_scored = order.windows(np.arange(order.num_windows))
    total = 0.0
    for first in range(0, len(starts), batch_size):
        chosen = slice(first, first + batch_size)
        input_ids, targets = cut(ids, starts[chosen], context)
        scored = np.arange(context) >= first_scored[chosen, None]
        found = nats(torch.from_numpy(input_ids), torch.from_numpy(targets)).double().numpy()
        total += float(found[scored].sum())
    return total / (len(ids) - 1)


def timed(command: Sequence[str], folder: Path, environment: dict[str, str]) -> tuple[float, str]:
    """Wall time of a command in a folder, and its standard output.

    Raises:
        RequestError: it failed.
    """
    started = time.perf_counter()
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    duration = time.perf_counter() - started
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
        raise RequestError(f"{' '.join(command[:3])} ... failed with status {done.returncode}: {last}")
    return duration, done.stdout


def train_ours(text: Path, seed: int, overrides: Sequence[str] = ()) -> Trained:
    """Run the recipe on a text, nothing of it prepared, and score what it has trained."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = [sys.executable, str(ROOT / "train.py"), "recipe=shakespeare_char", "data=text"]
        command += [f"data.paths=[{text}]", f"output_dir={folder / 'outputs'}", f"seed={seed}", *overrides]
        duration, _ = timed(command, ROOT, {"TIELAB_CACHE": str(folder / "cache")})
        (run,) = (folder / "outputs" / "runs").iterdir()
        record = json.loads((run / "record.json").read_text(encoding="utf-8"))
        model, tokenizer = load_run(run, "last")
        ids = tokenizer.encode(held_out(text.read_text(encoding="utf-8")))
        phases, validation = record["seconds_by_phase"], record["validation"]
        return Trained(
            wall_seconds=duration,
            loop_seconds=phases["train"] + phases["validation"],
            loss=score(model.token_nats, ids),
            own_loss=validation["nats"] / validation["num_tokens"],
        )


def train_nanogpt(source: Path, python: Path, text: Path, options: Sequence[str] = ()) -> Trained:
    """Run nanoGPT's recipe on a text in a copy of its files, and score its checkpoint."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "nanoGPT"
        data = folder / "data" / "shakespeare_char"
        shutil.copytree(source, folder, ignore=shutil.ignore_patterns(".git", "*.bin", "out*"))
        shutil.copyfile(text, data / "input.txt")
        # Its script imports a package to download the text, which is there.
        (data / "requests.py").touch()
        timed([str(python), str(data / "prepare.py")], folder, {})
        duration, output = timed([str(python), "train.py", *RECIPE, *options], folder, {})
        steps, estimates = (
            [float(found) for found in re.findall(pattern, output, re.MULTILINE)]
            for pattern in (r"^iter \d+: .* time ([\d.]+)ms", r"^step \d+: .* val loss ([\d.]+)")
        )
        ids = np.fromfile(data / "val.bin", dtype=np.uint16).astype(np.int64)
        return Trained(duration, sum(steps) / 1e3, score(nanogpt_nats(folder), ids), min(estimates))


def nanogpt_nats(folder: Path) -> Nats:
    """What nanoGPT's own network gives with the weights it has kept, those of its best estimate."""
    spec = importlib.util.spec_from_file_location("nanogpt_model", folder / "model.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclass looks its module up
    spec.loader.exec_module(module)
    checkpoint = torch.load(folder / "out-shakespeare-char" / "ckpt.pt", weights_only=True)
    model = module.GPT(module.GPTConfig(**checkpoint["model_args"]))
    model.load_state_dict(checkpoint["model"])
    model.eval()

    def nats(input_ids: Tensor, targets: Tensor) -> Tensor:
        logits, _ = model(input_ids, targets)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none").view_as(targets)

    return nats


def row(arm: str, trained: Sequence[Trained]) -> dict[str, Any]:
    """Times and losses of an arm's trainings."""
    losses = [one.loss for one in trained]
    return {
        "arm": arm,
        "wall_seconds": quartiles([one.wall_seconds for one in trained]),
        "loop_seconds": quartiles([one.loop_seconds for one in trained]),
        "loss_mean": float(np.mean(losses)),
        "loss_sd": float(np.std(losses, ddof=1)) if len(losses) > 1 else None,
        "loss_worst": max(losses),
        "losses": losses,
        "own_losses": [one.own_loss for one in trained],
    }


def compare(ours: Sequence[Trained], theirs: Sequence[Trained]) -> list[dict[str, Any]]:
    """A row for each arm; ours with the ratios of the rounds and how many of its seeds reach nanoGPT's loss.

    That loss is the lower of two: nanoGPT's own best estimate, and ours of its checkpoint.
    """
    rows = [row("tielab", ours)]
    if theirs:
        target = min(loss for one in theirs for loss in (one.loss, one.own_loss))
        rounds = ours[: len(theirs)]
        for key in ("wall_seconds", "loop_seconds"):
            values = [[float(getattr(one, key)) for one in arm] for arm in (rounds, theirs)]
            rows[0][f"{key}_ratio"] = ratios(*values)
        rows[0] |= {"target": target, "reached": sum(one.loss <= target for one in ours), "seeds": len(ours)}
        rows.append(row("nanoGPT", theirs))
    return rows


def show(rows: Sequence[dict[str, Any]]) -> None:
    """Print the rows as a table."""
    table = Table("arm", "n", "wall, s", "loop, s", "nats per character", "worst", "wall / nanoGPT's")
    for found in rows:
        ratio = found.get("wall_seconds_ratio")
        spread = "" if found["loss_sd"] is None else f" ± {found['loss_sd']:.4f}"
        table.add_row(
            found["arm"],
            str(len(found["losses"])),
            f"{found['wall_seconds']['median']:.1f}",
            f"{found['loop_seconds']['median']:.1f}",
            f"{found['loss_mean']:.4f}{spread}",
            f"{found['loss_worst']:.4f}",
            "" if ratio is None else f"{ratio['median']:.3f}",
        )
    Console().print(table)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = command_line(__doc__, quick="a few steps, to see that it runs")
    parser.add_argument("--text", type=Path, required=True, help="file with the tiny Shakespeare text")
    parser.add_argument(
        "--nanogpt", type=Path, help="folder with nanoGPT's files; without it ours runs alone"
    )
    parser.add_argument(
        "--peer-python", type=Path, default=Path(sys.executable), help="Python that nanoGPT is run with"
    )
    parser.add_argument("--rounds", type=int, default=1, help="trainings of each, in turn")
    parser.add_argument("--seeds", type=int, default=0, help="seeds of ours, at least the rounds")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> Path:
    """Measure, print a table, write ``quality.json`` and return its path."""
    asked = parse(arguments)
    text = asked.text.resolve()
    ours: list[Trained] = []
    theirs: list[Trained] = []
    with watched() as seen:
        for seed in range(max(asked.rounds, asked.seeds)):
            ours.append(train_ours(text, seed, QUICK if asked.quick else ()))
            if asked.nanogpt is not None and seed < asked.rounds:
                options = QUICK_RECIPE if asked.quick else ()
                theirs.append(
                    train_nanogpt(asked.nanogpt.resolve(), asked.peer_python.absolute(), text, options)
                )
    rows = compare(ours, theirs)
    show(rows)
    conditions = {
        "quick": asked.quick,
        "context": CONTEXT,
        "scored_characters": len(held_out(text.read_text(encoding="utf-8"))) - 1,
        "rounds": asked.rounds,
        "nanogpt_options": " ".join(RECIPE),
    }
    return write("quality", rows, seen, conditions, asked.out)


if __name__ == "__main__":
    main()
