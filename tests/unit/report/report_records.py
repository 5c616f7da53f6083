"""Hand-made records of a small study."""

import copy
import math
from pathlib import Path
from typing import Any

from tielab.record import Record
from tielab.report.collect import Collected, CollectedRun

NUM_TOKENS, NUM_BYTES = 10_000, 40_000


def make_config(
    *, tied: bool, seed: int, vocab_size: int | None = 4096, embed_dim: int = 128
) -> dict[str, Any]:
    """A resolved config in the shape of ``tielab.config.Config``."""
    return {
        "model": {
            "_target_": "tielab.models.minigpt.MiniGPT",
            "vocab_size": vocab_size, "block_size": 128, "embed_dim": embed_dim, "num_layers": 4,
            "num_heads": embed_dim // 32, "hidden_dim": 4 * embed_dim, "dropout": 0.0, "tied": tied,
            "output_bias": False, "embed_scale": 1.0, "init_std": None, "seed": seed,
        },
        "data": {
            "corpus": "wiki", "paths": [], "document": None,
            "tokenizer": {"kind": "bpe", "vocab_size": vocab_size, "path": None, "byte_fallback": True},
            "block_size": 128, "stride": 128, "eval_stride": 64, "batch_size": 32, "eval_batch_size": 32,
            "num_workers": 0, "seed": seed, "cache_dir": "cache",
        },
        "optimizer": {"learning_rate": 0.001, "weight_decay": 0.1, "fused": False},
        "schedule": {"warmup_fraction": 0.1, "final_fraction": 0.1},
        "budget": {"tokens": 1_000_000, "num_validations": 4},
        "trainer": {
            "accelerator": "cpu", "strategy": "auto", "devices": 1, "num_nodes": 1, "precision": "32-true",
            "num_threads": 2, "accumulate_grad_batches": 1,
        },
        "callbacks": {"progress": {"_target_": "lightning.pytorch.callbacks.TQDMProgressBar"}},
        "logger": {},
        "seed": seed,
        "resume_from": None,
        "launch": "forkserver",
    }  # fmt: skip


def make_validation(bits_per_byte: float, *, num_tokens: int = NUM_TOKENS) -> dict[str, Any]:
    nats = bits_per_byte * math.log(2) * NUM_BYTES
    return {
        "nats": nats,
        "num_tokens": num_tokens,
        "num_bytes": NUM_BYTES,
        "perplexity": math.exp(nats / num_tokens),
        "bits_per_byte": bits_per_byte,
        "content_hash": f"text-of-{num_tokens}-tokens",
        "tokens_seen": 1_000_000,
    }


def make_record(
    *,
    tied: bool = True,
    seed: int = 0,
    bits_per_byte: float = 2.0,
    vocab_size: int = 4096,
    embed_dim: int = 128,
    num_tokens: int = NUM_TOKENS,
    **changes: Any,
) -> Record:
    """A finished run as it would be on disk; ``changes`` replace whole fields."""
    embedding, body = vocab_size * embed_dim, 12 * 4 * embed_dim**2
    record = Record(
        run_id=f"{vocab_size}-{embed_dim}-{tied}-{seed}",
        status="finished",
        config=make_config(tied=tied, seed=seed, vocab_size=vocab_size, embed_dim=embed_dim),
        config_hash="0123456789abcdef",
        tied=tied,
        seed=seed,
        started_at=f"2026-01-01T00:{seed:02d}:{int(tied):02d}+00:00",
        commit="a" * 40,
        dirty=False,
        device="cpu",
        num_processes=1,
        tie_observed=tied,
        parameters={
            "token_embedding": embedding,
            "blocks": body,
            "head": 0 if tied else embedding,
            "total": body + embedding * (1 if tied else 2),
        },
        data={"corpus_hash": "wiki", "tokenizer_hash": f"bpe-{vocab_size}", "vocab_size": vocab_size},
        body_hash=f"body-{seed}",
        batch_hash=f"batch-{seed}",
        validation=make_validation(bits_per_byte, num_tokens=num_tokens),
        throughput={"median": 12_345.6, "q1": 12_000.0, "q3": 12_600.0, "per_device": 12_345.6},
        peak_memory_bytes=512 * 1024 * 1024,
        tokens_seen=1_000_000,
    )
    for name, value in copy.deepcopy(changes).items():
        setattr(record, name, value)
    return record


def collected(*records: Record) -> Collected:
    """The records as if they had been found in folders run0, run1, ..."""
    return Collected([CollectedRun(Path(f"run{i}"), record) for i, record in enumerate(records)], [])
