"""Where the project is, and the smallest run."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

TINY = (
    "model=nano", "vocab=char", "data.tokenizer.byte_fallback=false", "data=text", "data.block_size=16",
    "data.batch_size=8", "data.eval_batch_size=64", "trainer.num_threads=1", "logger=none",
    "budget.num_validations=2", "budget.tokens=4096",
)  # fmt: skip
"""Overrides for a run of 32 steps that takes a second."""
