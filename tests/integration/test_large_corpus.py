"""A corpus larger than memory is prepared and trained on in memory that does not grow with it.

TIELAB_LARGE=5 pytest -s tests/integration/test_large_corpus.py writes 5 GB of tokens, and half as much text,
below pytest's temporary folder and trains on them in 2 GB.
"""

import itertools
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from running import ROOT
from tielab.data.source import split_of
from tielab.record import read_record

MEGABYTE = 1 << 20
LARGE = float(os.environ.get("TIELAB_LARGE") or 0)

PREPARE = """
import json, resource, sys
import numpy, tokenizers
from tielab.data.prepare import prepare

[used] = [int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("VmData")]
limit = used + int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
print(json.dumps(prepare(json.loads(sys.argv[1])).summary()))
"""


def write_text(path: Path, size: int) -> None:
    """At least ``size`` bytes of paragraphs of random words, few of them in validation or test."""
    draw = random.Random(0)
    words = ["".join(draw.choices("etaoinshrdlu", k=draw.randint(2, 9))) for _ in range(5000)]
    texts = [" ".join(draw.choices(words, k=draw.randint(20, 120))) for _ in range(6000)]
    held_out = [[text for text in texts if split_of(text) == name][:10] for name in ("validation", "test")]
    train = [text for text in texts if split_of(text) == "train"]
    pool = [text.encode() + b"\n\n" for text in itertools.chain(*held_out, train)]
    with path.open("wb") as file:
        while file.tell() < size:
            file.write(b"".join(draw.choices(pool, k=5000)))


def test_a_text_is_prepared_in_less_memory_than_it_takes(tmp_path):
    """32 MB of text, 64 MB of tokens, in 96 MB beside what the interpreter and the libraries take."""
    path = tmp_path / "text.txt"
    write_text(path, 32 * MEGABYTE)
    config = {
        "corpus": "text", "paths": [str(path)], "document": None, "text_key": "text", "url": None,
        "cache_dir": str(tmp_path / "cache"),
        "tokenizer": {"kind": "byte", "vocab_size": 256, "path": None, "byte_fallback": False},
    }  # fmt: skip
    command = [sys.executable, "-c", PREPARE, json.dumps(config), str(96 * MEGABYTE)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["train"]["num_bytes"] > 31 * MEGABYTE
    whole = subprocess.run([*command[:-1], str(MEGABYTE)], capture_output=True, text=True)
    assert "MemoryError" in whole.stderr or "allocate" in whole.stderr, "the limit is none"


@pytest.mark.slow
@pytest.mark.large
@pytest.mark.skipif(not LARGE, reason="TIELAB_LARGE=GIGABYTES of tokens")
@pytest.mark.timeout(7200)
def test_training_on_more_tokens_than_memory(tmp_path):
    path = tmp_path / "text.txt"
    write_text(path, int(LARGE * 1e9 / 2 / 0.99))  # two bytes a token
    request = (
        "data=text", f"data.paths=[{path}]", f"data.cache_dir={tmp_path / 'cache'}", "vocab=byte",
        "model=nano",
        "data.block_size=128", "data.eval_stride=128", "data.batch_size=32", "data.eval_batch_size=256",
        "data.train_tokens=null", "budget.tokens=409600", "budget.num_validations=1", "trainer=cpu",
        "logger=none", "~callbacks.best", "launch=inline",
    )  # fmt: skip
    command = f'ulimit -d 2000000; exec {sys.executable} {ROOT / "train.py"} "$@"'
    started = time.monotonic()
    subprocess.run(["bash", "-c", command, "bash", *request], cwd=tmp_path, check=True)
    (run,) = (tmp_path / "outputs" / "runs").iterdir()
    record = read_record(run)
    tokens = record.data["train"]["num_tokens"]
    print(f"{tokens:,} training tokens, {time.monotonic() - started:.0f} s in all")
    assert tokens * 2 >= 0.95 * LARGE * 1e9
    assert record.finished
