"""How the training loop of tielab and those of its peers are started on one shape, and their steps read."""

import csv
import hashlib
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.turns import Turns
from tielab.composition import composed
from tielab.data.prepare import prepare

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = Path(__file__).with_name("peers_scripts")
NUM_THREADS = 2
KEEP_FREED = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(2**31 - 1),
    "MALLOC_TOP_PAD_": str(2**26),
}
"""glibc's allocator keeps freed memory, as a run of tielab asks it to."""
EAGER, COMPILED = "eager", "compiled"


@dataclass(frozen=True)
class Shape:
    """A GPT-2-shaped model and its batch."""

    name: str
    vocab: str
    vocab_size: int
    embed_dim: int
    num_layers: int
    num_heads: int
    block_size: int
    batch_size: int

    @property
    def tokens_per_step(self) -> int:
        return self.block_size * self.batch_size


SHAPES = {
    shape.name: shape
    for shape in (
        Shape("tiny", "byte", 256, 32, 2, 2, 32, 4),
        Shape("small", "bpe4096", 4096, 128, 4, 4, 128, 16),
        Shape("medium", "bpe8192", 8192, 256, 6, 4, 256, 8),
        Shape("wide", "bpe16384", 16384, 512, 6, 4, 256, 4),
    )
}


@dataclass(frozen=True)
class Tools:
    """Where the peers are."""

    python: Path
    nanogpt: Path | None
    dnnlpy: Path | None


@dataclass(frozen=True)
class Arm:
    """One tool in one mode."""

    tool: str
    mode: str
    extra: tuple[str, ...] = ()
    keeps_freed: bool = False

    @property
    def name(self) -> str:
        return f"{self.tool}, {self.mode}"


def tielab_overrides(shape: Shape) -> list[str]:
    """A run of a shape whose end is never reached; whatever is not named is the default."""
    return [
        "data=wiki",
        f"vocab={shape.vocab}",
        f"data.block_size={shape.block_size}",
        f"data.batch_size={shape.batch_size}",
        f"model.embed_dim={shape.embed_dim}",
        f"model.num_layers={shape.num_layers}",
        f"model.num_heads={shape.num_heads}",
        f"model.hidden_dim={4 * shape.embed_dim}",
        "optimizer.learning_rate=0.001",
        f"trainer.num_threads={NUM_THREADS}",
        f"budget.tokens={100_000 * shape.tokens_per_step}",
        "budget.num_validations=1",
        "trainer.log_every_n_steps=1",
    ]


def write_tokens(shape: Shape, folder: Path) -> None:
    """Write the tokens that tielab trains on as nanoGPT's files: train.bin, val.bin, meta.pkl."""
    prepared = prepare(composed(tielab_overrides(shape), {})["data"])
    folder.mkdir(parents=True)
    for name, split in (("train", prepared.train), ("val", prepared.validation)):
        np.asarray(split.tokens, dtype=np.uint16).tofile(folder / f"{name}.bin")
    (folder / "meta.pkl").write_bytes(pickle.dumps({"vocab_size": prepared.tokenizer.vocab_size}))


def start(arm: Arm, shape: Shape, tools: Tools, tokens: Path, folder: Path, inductor: Path) -> Turns:
    """Start an arm in an empty folder of its own."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "PYTHON"))
    }
    environment |= {
        "OMP_NUM_THREADS": str(NUM_THREADS),
        "PYTHONUNBUFFERED": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
        "TORCHINDUCTOR_CACHE_DIR": str(inductor),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",  # no pool of processes beside each arm
        "WANDB_MODE": "offline",
        **(KEEP_FREED if arm.keeps_freed else {}),
    }
    folder.mkdir(parents=True)
    if arm.tool.startswith("tielab"):
        environment["PYTHONPATH"] = str(ROOT / "src")
        return Turns(_tielab(arm, shape), environment, folder, read_metrics)
    if arm.tool.startswith("nanoGPT"):
        assert tools.nanogpt is not None
        shutil.copytree(tools.nanogpt, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".git"))
        shutil.copytree(tokens, folder / "data" / "benchmark")
        return Turns(_nanogpt(arm, shape, tools.python), environment, folder, read_nanogpt)
    python = tools.dnnlpy if arm.tool == "dnnlpy" else tools.python
    return Turns(_script(arm, shape, str(python), tokens), environment, folder, read_stamps)


def _tielab(arm: Arm, shape: Shape) -> list[str]:
    compiled = ["compile=true"] if arm.mode == COMPILED else []
    return [sys.executable, str(ROOT / "train.py"), *tielab_overrides(shape), *arm.extra, *compiled]


def _nanogpt(arm: Arm, shape: Shape, python: Path) -> list[str]:
    settings: dict[str, Any] = {
        "device": "cpu",
        "dtype": "float32",
        "compile": arm.mode == COMPILED,
        "dataset": "benchmark",
        "gradient_accumulation_steps": 1,
        "batch_size": shape.batch_size,
        "block_size": shape.block_size,
        "n_layer": shape.num_layers,
        "n_head": shape.num_heads,
        "n_embd": shape.embed_dim,
        "bias": True,
        "learning_rate": 1e-3,
        "eval_interval": 1_000_000_000,
        "eval_iters": 1,
        "log_interval": 1,
    }
    return [str(python), "train.py", *(f"--{name}={value}" for name, value in settings.items())]


def _script(arm: Arm, shape: Shape, python: str, tokens: Path) -> list[str]:
    names = ("vocab_size", "embed_dim", "num_layers", "num_heads", "block_size", "batch_size")
    sizes = [f"--{name.replace('_', '-')}={getattr(shape, name)}" for name in names]
    script = str(SCRIPTS / f"{arm.tool}_loop.py")
    compiled = ["--compile"] if arm.mode == COMPILED else []
    return [python, script, *sizes, f"--tokens={tokens / 'train.bin'}", *compiled]


def read_metrics(folder: Path) -> list[float]:
    """Seconds of each step but the first, from the metric file of the only run in a folder."""
    seconds: list[float] = []
    for path in folder.glob("outputs/runs/*/metrics.csv"):
        whole, _, _ = path.read_text(encoding="utf-8").rpartition("\n")
        rows = csv.DictReader(whole.splitlines())
        seconds = [float(row["seconds"]) for row in rows if row["train/loss"]]
    return [after - before for before, after in pairwise(seconds)]


def read_nanogpt(folder: Path) -> list[float]:
    """Seconds of each step, as nanoGPT prints them."""
    found = re.findall(r"^iter \d+: .* time ([\d.]+)ms.*\n", _output(folder), re.MULTILINE)
    return [float(milliseconds) / 1000 for milliseconds in found]


def read_stamps(folder: Path) -> list[float]:
    """Seconds of each step but the first, from the lines of ``common.stamp``."""
    ends = [float(end) for end in re.findall(r"^step \d+ ([\d.]+)\n", _output(folder), re.MULTILINE)]
    return [after - before for before, after in pairwise(ends)]


def _output(folder: Path) -> str:
    return (folder / "output.txt").read_text(encoding="utf-8", errors="replace")


def found_versions(python: Path) -> dict[str, str]:
    """Versions of Python and of the peers' packages under another Python; empty where that is none."""
    code = (
        "import importlib.metadata as m, json, platform\n"
        "found = {d.metadata['Name'].lower(): d.version for d in m.distributions()}\n"
        "names = ['torch', 'transformers', 'accelerate', 'litgpt', 'lightning', 'dnnlpy']\n"
        "kept = {n: found[n] for n in names if n in found}\n"
        "print(json.dumps({'python': platform.python_version(), **kept}))"
    )
    done = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=False)
    return dict(json.loads(done.stdout)) if done.returncode == 0 else {}


def nanogpt_version(folder: Path) -> str:
    """What identifies a nanoGPT, which has no versions: the sha256 of its two files."""
    content = b"".join((folder / name).read_bytes() for name in ("train.py", "model.py"))
    return f"sha256 {hashlib.sha256(content).hexdigest()[:12]}"
