"""A study with something for every figure: three arms, vocabularies, widths, tuning, diagnostics."""

import itertools
import random
from pathlib import Path
from typing import Any

from report_records import make_record
from tielab.record import METRICS_NAME, Record
from tielab.report.collect import Collected, CollectedRun
from tielab.report.compare import Comparison, compare

ARMS: dict[str, dict[str, Any]] = {
    "tied": {"tied": True},
    "untied": {"tied": False},
    "tied, head_map permutation": {"tied": True, "head_map": "permutation"},
}
NUM_STEPS, TOKENS_PER_STEP = 100, 10_000


def noise(*keys: int) -> float:
    """Between -1 and 1, without order but the same in every run."""
    return random.Random(str(keys)).uniform(-1, 1)


def study_run(arm: str, seed: int, vocab_size: int, embed_dim: int, rate: float | None = None) -> Record:
    """A run whose result depends on all of these; with a rate it is one that tunes."""
    scheme = ARMS[arm]
    gains = {"tied": 0.02 if embed_dim < 128 else -0.02, "untied": 0.0}
    bits = 2.6 - 0.0002 * vocab_size**0.8 - 0.0015 * embed_dim + gains.get(arm, 0.05)
    bits += 0.01 * noise(seed) + 0.004 * noise(seed, vocab_size, embed_dim, len(arm))
    if rate is not None:
        bits += 0.02 * abs(rate - 0.002) * 1000
    record = make_record(
        tied=scheme["tied"], seed=seed, bits_per_byte=bits, vocab_size=vocab_size, embed_dim=embed_dim
    )
    record.config["model"]["head_map"] = scheme.get("head_map", "none")
    record.config["study"] = {"tune": "lr", "phase": "report" if rate is None else "tune"}
    record.config["optimizer"]["learning_rate"] = 0.002 if rate is None else rate
    record.run_id = f"{arm}-{vocab_size}-{embed_dim}-{seed}-{rate}"
    record.weights_hash = f"{hash_of(record.run_id):016x}"
    record.flops_per_token = {
        "forward": 2 * record.parameters["total"],
        "train": 6 * record.parameters["total"],
    }
    record.throughput = {"median": 3e9 / record.parameters["total"] * (1 + 0.1 * noise(seed, embed_dim))}
    record.peak_memory_bytes = (300 + record.parameters["total"] // 20_000) * 2**20
    vars(record)["diagnostics"] = {
        "path_gradients": {
            "share_l2": {"first": 0.7, "last": 0.6 + 0.01 * noise(seed)},
            "by_decile": [0.1 * i + 0.02 * noise(seed, i) for i in range(10)],
            "by_decile_unused": [None, 0.5, None],
        },
        "alignment": {"procrustes": 0.3 + 0.01 * noise(seed), "note": "words are not averaged"},
    }
    return record


def hash_of(text: str) -> int:
    return sum(ord(letter) * 31**i for i, letter in enumerate(text)) % 2**64


def write_metrics(folder: Path, record: Record) -> None:
    """A falling loss that ends where the record's validation does."""
    assert record.validation
    end = record.validation["nats"] / record.validation["num_tokens"]
    lines = ["step,tokens,train/loss,val/loss,val/bits_per_byte"]
    for step in range(1, NUM_STEPS + 1):
        loss = end + 2 / step + 0.05 * noise(record.seed, step)
        lines.append(f"{step},{step * TOKENS_PER_STEP},{loss},,")
        if step % 25 == 0:
            lines.append(f"{step},{step * TOKENS_PER_STEP},,{end + 2 / step - 2 / NUM_STEPS},")
    folder.mkdir(parents=True)
    (folder / METRICS_NAME).write_text("\n".join(lines) + "\n")


def study_runs(
    folder: Path,
    vocab_sizes: tuple[int, ...] = (512, 2048),
    embed_dims: tuple[int, ...] = (64, 128),
    seeds: tuple[int, ...] = (0, 1, 2),
    arms: tuple[str, ...] = tuple(ARMS),
    rates: tuple[float, ...] = (0.001, 0.002, 0.004),
) -> Collected:
    """The runs of the study; metrics.csv lies in their folders, the records only in memory."""
    records = [study_run(*values) for values in itertools.product(arms, seeds, vocab_sizes, embed_dims)]
    records += [
        study_run(arm, seed, vocab_size, embed_dim, rate)
        for arm, seed, vocab_size, embed_dim, rate in itertools.product(
            arms, (100, 101), vocab_sizes[:2], embed_dims[:1], rates
        )
    ]
    runs = [CollectedRun(folder / f"{i}", record) for i, record in enumerate(records)]
    for run in runs:
        write_metrics(run.folder, run.record)
    return Collected(runs, [])


def study(folder: Path, **axes: Any) -> Comparison:
    """The comparison of ``study_runs``."""
    return compare(study_runs(folder, **axes))
