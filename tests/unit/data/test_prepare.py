"""A token cache that is built once, never used when damaged, and refused in one line."""

import json
import logging
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tielab.data import files
from tielab.data import prepare as prepare_module
from tielab.data.corpus import find_source
from tielab.data.files import ArticleSource
from tielab.data.formats import raw_chunks
from tielab.data.prepare import prepare
from tielab.data.source import SPLITS, split_documents
from tielab.data.tokenizer import Tokenizer
from tielab.errors import RequestError

MakeConfig = Callable[..., dict[str, Any]]
KINDS = [
    {"kind": "byte", "vocab_size": 256},
    {"kind": "char", "vocab_size": None, "byte_fallback": True},
    {"kind": "char", "vocab_size": 270, "byte_fallback": True},
    {"kind": "bpe", "vocab_size": 300},
]


def entry_of(config: dict[str, Any]) -> Path:
    """The only entry of a cache."""
    (meta,) = Path(config["cache_dir"]).glob("*/meta.json")
    return meta.parent


def texts_of(config: dict[str, Any]) -> dict[str, list[str]]:
    splits: dict[str, list[str]] = {name: [] for name in SPLITS}
    for name, text in split_documents(find_source(config)):
        splits[name].append(text)
    return splits


@pytest.mark.parametrize("tokenizer", KINDS, ids=lambda kind: f"{kind['kind']}-{kind['vocab_size']}")
def test_tokens_are_the_documents_each_ended_by_a_blank_line(
    tokenizer: dict[str, Any], text_file: Path, make_config: MakeConfig
) -> None:
    config = make_config(text_file, tokenizer=tokenizer)
    prepared = prepare(config)
    for name, documents in texts_of(config).items():
        split = getattr(prepared, name)
        text = "".join(documents)
        assert all(document.endswith("\n\n") for document in documents)
        assert prepared.tokenizer.decode(split.tokens) == text
        assert split.num_documents == len(documents)
        assert split.num_tokens == len(split.tokens)
        assert split.num_bytes == len(text.encode()) == prepared.tokenizer.token_bytes[split.tokens].sum()
        assert split.tokens.max() < prepared.tokenizer.vocab_size


def test_every_tokenizer_counts_the_same_bytes(text_file: Path, make_config: MakeConfig) -> None:
    summaries = [prepare(make_config(text_file, tokenizer=kind)).summary() for kind in KINDS]
    assert len({summary["corpus_hash"] for summary in summaries}) == 1
    assert len({summary["tokenizer_hash"] for summary in summaries}) == len(KINDS)
    for name in ("train", "validation", "test"):
        assert len({summary[name]["num_bytes"] for summary in summaries}) == 1
        assert len({summary[name]["content_hash"] for summary in summaries}) == len(KINDS)


def test_summary_is_plain_and_complete(text_file: Path, make_config: MakeConfig) -> None:
    summary = prepare(make_config(text_file)).summary()
    assert json.loads(json.dumps(summary)) == summary
    assert list(summary) == [
        "corpus",
        "corpus_hash",
        "tokenizer_hash",
        "vocab_size",
        "bytes_per_token",
        "train",
        "validation",
        "test",
    ]
    assert list(summary["train"]) == [
        "num_documents",
        "num_scored_words",
        "num_tokens",
        "num_bytes",
        "content_hash",
    ]
    assert (summary["corpus"], summary["vocab_size"], summary["bytes_per_token"]) == ("text", 256, 1.0)


def test_small_vocabularies_are_stored_in_two_bytes_large_ones_in_four(
    text_file: Path, make_config: MakeConfig, tmp_path: Path
) -> None:
    assert prepare(make_config(text_file)).train.tokens.dtype == np.dtype("<u2")
    small = json.loads(prepare(make_config(text_file, tokenizer=KINDS[3])).tokenizer.to_json())
    vocab = small["model"]["vocab"]
    frequent = "th" if "th" in vocab else next(token for token in vocab if len(token) == 2)
    vocab[frequent] = 70_000
    (tmp_path / "tokenizer.json").write_text(json.dumps(small))
    tokenizer = {"kind": "file", "vocab_size": 70_001, "path": str(tmp_path)}
    prepared = prepare(make_config(text_file, tokenizer=tokenizer))
    assert prepared.train.tokens.dtype == np.dtype("<u4")
    assert 70_000 in prepared.train.tokens


def test_the_tokenizer_is_trained_on_the_training_split_only(
    tmp_path: Path, text_file: Path, make_config: MakeConfig
) -> None:
    """A word that only validation has, however often, gets no token and no character."""
    path = tmp_path / "leak.txt"
    for attempt in range(200):
        intruder = "Ωxylophone " * (500 + attempt)
        path.write_text(text_file.read_text(encoding="utf-8") + f"\n\n{intruder}\n", encoding="utf-8")
        texts = texts_of(make_config(path))
        if any("xylophone" in text for text in texts["validation"]):
            break
    assert not any("xylophone" in text for text in texts["train"])
    bpe = prepare(make_config(path, tokenizer={"kind": "bpe", "vocab_size": 330})).tokenizer
    assert not any(b"xyl" in piece or b"phone" in piece for piece in bpe.pieces)
    char = prepare(
        make_config(path, tokenizer={"kind": "char", "vocab_size": None, "byte_fallback": True})
    ).tokenizer
    assert "Ω".encode() not in char.pieces
    with pytest.raises(RequestError, match=r"validation split: character 'Ω' \(U\+03A9\)") as error:
        prepare(make_config(path, tokenizer={"kind": "char", "vocab_size": None}))
    assert "\n" not in str(error.value)


def test_too_few_characters_without_fallback_are_refused_in_train(
    text_file: Path, make_config: MakeConfig
) -> None:
    with pytest.raises(RequestError, match="train split: character"):
        prepare(make_config(text_file, tokenizer={"kind": "char", "vocab_size": 5}))


def test_a_second_call_reads_the_cache(
    text_file: Path, make_config: MakeConfig, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tielab")
    config = make_config(text_file, tokenizer=KINDS[3])
    first = prepare(config)
    assert [record.getMessage() for record in caplog.records] == [
        "tokenizing text: bpe 300 ...",
        f"tokenized text: bpe 300: "
        f"{first.train.num_tokens + first.validation.num_tokens + first.test.num_tokens:,} tokens",
    ]
    caplog.clear()
    second = prepare(config | {"block_size": 4, "batch_size": 2, "seed": 9})
    assert not caplog.records
    assert second.summary() == first.summary()
    assert np.array_equal(second.train.tokens, first.train.tokens)
    assert isinstance(second.train.tokens, np.memmap)


def test_a_warm_call_reads_the_text_once_for_its_hash_and_tokenizes_nothing(
    text_file: Path, make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_config(text_file, tokenizer=KINDS[3])
    cold = prepare(config)
    num_read = 0

    def add(num_bytes: int) -> None:
        nonlocal num_read
        num_read += num_bytes

    monkeypatch.setattr(files, "raw_chunks", lambda path, **_: raw_chunks(path, add))
    for name in ("build_tokenizer", "split_documents", "write_splits"):
        monkeypatch.setattr(prepare_module, name, lambda *_: pytest.fail("the text is tokenized again"))
    assert prepare(config).summary() == cold.summary()
    assert num_read == text_file.stat().st_size


def test_changed_text_or_tokenizer_is_another_entry(
    text_file: Path, make_config: MakeConfig, tmp_path: Path
) -> None:
    first = prepare(make_config(text_file))
    text_file.write_text(text_file.read_text(encoding="utf-8") + "\n\none more", encoding="utf-8")
    second = prepare(make_config(text_file))
    assert first.corpus_hash != second.corpus_hash
    assert first.train.num_bytes + first.validation.num_bytes + first.test.num_bytes + 10 == (
        second.train.num_bytes + second.validation.num_bytes + second.test.num_bytes
    )
    file = tmp_path / "tokenizer.json"
    config = make_config(text_file, tokenizer={"kind": "file", "vocab_size": 300, "path": str(file)})
    hashes = []
    for kind in (KINDS[3], {"kind": "bpe", "vocab_size": 301}):
        tokenizer = prepare(make_config(text_file, tokenizer=kind)).tokenizer
        file.write_text(tokenizer.to_json())
        config["tokenizer"]["vocab_size"] = kind["vocab_size"]
        hashes.append(prepare(config).tokenizer_hash)
        assert hashes[-1] == tokenizer.hash
    assert hashes[0] != hashes[1]


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-2])


def alter(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def miscount(path: Path) -> None:
    path.write_text(path.read_text().replace('"num_bytes": ', '"num_bytes": 1'))


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("train.bin", truncate),
        ("validation.bin", alter),
        ("test.bin", Path.unlink),
        ("tokenizer.json", alter),
        ("meta.json", truncate),
        ("meta.json", miscount),
        ("meta.json", Path.unlink),
    ],
)
def test_a_damaged_entry_is_rebuilt(
    name: str, damage: Callable[[Path], object], text_file: Path, make_config: MakeConfig
) -> None:
    config = make_config(text_file, tokenizer=KINDS[3])
    sound = prepare(config)
    summary, tokens = sound.summary(), np.array(sound.train.tokens)
    path = entry_of(config) / name
    content = path.read_bytes()
    damage(path)
    rebuilt = prepare(config)
    assert rebuilt.summary() == summary
    assert np.array_equal(rebuilt.train.tokens, tokens)
    assert path.read_bytes() == content


def test_what_a_crashed_build_left_is_removed(text_file: Path, make_config: MakeConfig) -> None:
    config = make_config(text_file)
    prepare(config)
    entry = entry_of(config)
    leftover = entry.with_name(f".{entry.name}.crashed")
    entry.rename(leftover)
    (leftover / "meta.json").unlink()
    prepare(config)
    assert not leftover.exists()
    assert entry.is_dir()


PREPARE_PROGRAM = """
import json, logging, resource, sys
logging.basicConfig(level=logging.INFO)
from tielab.data.prepare import prepare
from tielab.errors import RequestError
config, limit = json.loads(sys.argv[1]), int(sys.argv[2])
if limit:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
try:
    print(json.dumps(prepare(config).summary()))
except RequestError as error:
    print("refused:", error)
assert "torch" not in sys.modules and "lightning" not in sys.modules
"""


def start(config: dict[str, Any], file_size_limit: int = 0) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", PREPARE_PROGRAM, json.dumps(config), str(file_size_limit)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_many_processes_at_once_build_one_entry(text_file: Path, make_config: MakeConfig) -> None:
    config = make_config(text_file, tokenizer=KINDS[3])
    results = [process.communicate() for process in [start(config) for _ in range(8)]]
    summaries = {output for output, _ in results}
    assert len(summaries) == 1, results
    assert json.loads(summaries.pop()) == prepare(config).summary()
    assert sum(log.count("tokenized text") for _, log in results) == 1
    kept = sorted(path.name for path in Path(config["cache_dir"]).iterdir() if path.is_dir())
    assert kept == [entry_of(config).name]


def test_a_full_disk_is_one_line_and_leaves_nothing(text_file: Path, make_config: MakeConfig) -> None:
    config = make_config(text_file)
    output, log = start(config, file_size_limit=1000).communicate()
    assert output.startswith(f"refused: data.cache_dir={config['cache_dir']}: cannot write"), log
    assert output.count("\n") == 1
    assert [path for path in Path(config["cache_dir"]).iterdir() if path.is_dir()] == []
    assert prepare(config).train.num_tokens > 0


def test_an_unwritable_cache_is_refused(text_file: Path, make_config: MakeConfig) -> None:
    config = make_config(text_file, cache_dir=str(text_file / "cache"))
    with pytest.raises(RequestError, match=r"data\.cache_dir=.*cannot write.*Not a directory") as error:
        prepare(config)
    assert "\n" not in str(error.value)


def test_a_warm_cache_may_be_read_only(
    text_file: Path, make_config: MakeConfig, ordinary_user: AbstractContextManager[None]
) -> None:
    config = make_config(text_file)
    summary = prepare(config).summary()
    Path(config["cache_dir"]).chmod(0o555)
    with ordinary_user:
        assert prepare(config).summary() == summary
        with pytest.raises(RequestError, match=r"cannot write the cache \(Permission denied\)"):
            prepare(config | {"document": "paragraph", "tokenizer": config["tokenizer"] | KINDS[3]})


def test_the_cached_tokenizer_is_a_file_of_its_own(text_file: Path, make_config: MakeConfig) -> None:
    config = make_config(text_file, tokenizer=KINDS[3])
    prepared = prepare(config)
    text = (entry_of(config) / "tokenizer.json").read_text(encoding="utf-8")
    assert Tokenizer.from_json(text).hash == prepared.tokenizer_hash == prepared.tokenizer.hash


@pytest.mark.slow
def test_a_warm_start_of_the_default_corpus_reads_no_text(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_config(corpus="wiki", tokenizer={"kind": "bpe", "vocab_size": 4096})
    cold = prepare(config).summary()
    monkeypatch.setattr(ArticleSource, "documents", lambda source: pytest.fail("the text is read again"))
    warm = prepare(config).summary()
    assert warm == cold
    assert warm["vocab_size"] == 4096
    assert warm["validation"]["num_bytes"] == 234_329
    assert (warm["train"]["num_documents"], warm["train"]["num_bytes"]) == (8795, 4_301_770)
    shutil.rmtree(config["cache_dir"])
