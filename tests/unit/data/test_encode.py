"""Token files are written and read some tokens at a time."""

from pathlib import Path

import numpy as np
import pytest

from tielab.data import encode
from tielab.data.budget import count_tokens
from tielab.data.build_tokenizer import build_tokenizer
from tielab.data.encode import describe, write_splits
from tielab.data.tokenizer import CharTokenizer

DOCUMENTS = [(("train", "validation", "test")[i % 3], f"row {i} of the cafés\n\n") for i in range(60)]


@pytest.mark.parametrize("characters", [1, 50, 10**6])
@pytest.mark.parametrize("kind", ["byte", "bpe"])
def test_batches_and_chunks_change_nothing(
    characters: int, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer_config = {"kind": kind, "vocab_size": 270, "path": None, "byte_fallback": True}
    tokenizer = build_tokenizer(tokenizer_config, [text for _, text in DOCUMENTS])
    monkeypatch.setattr(encode, "BATCH_CHARACTERS", characters)
    monkeypatch.setattr(encode, "CHUNK_TOKENS", 7)
    splits = write_splits(tmp_path, DOCUMENTS, tokenizer, "<u2")
    for name, summary in splits.items():
        texts = [text for split, text in DOCUMENTS if split == name]
        tokens = np.concatenate([tokenizer.encode(text) for text in texts])
        assert np.fromfile(tmp_path / f"{name}.bin", "<u2").tolist() == tokens.tolist()
        monkeypatch.setattr(encode, "CHUNK_TOKENS", 10**6)
        first = len(tokenizer.pieces[tokens[0]])
        words = len("".join(texts).encode()[first:].decode().split())
        assert summary == {"num_documents": 20, "num_scored_words": words, **describe(tokenizer, tokens)}
        monkeypatch.setattr(encode, "CHUNK_TOKENS", 7)


def resident_file_kilobytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssFile"))


def test_a_mapped_file_does_not_stay_in_memory(tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(bytes(64 << 20))
    tokens = np.memmap(tmp_path / "x.bin", dtype="<u2", mode="r")
    before = resident_file_kilobytes()
    assert count_tokens(tokens, 256)[0] == describe(CharTokenizer("", True), tokens)["num_tokens"] == 32 << 20
    assert resident_file_kilobytes() - before < 8 << 10
