"""A file gives the same documents however it is packed and cut, and a damaged one is one line."""

import codecs
import gzip
import json
import re
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tielab.data import formats
from tielab.data.corpus import find_source
from tielab.data.formats import format_of, read_texts
from tielab.data.prepare import prepare
from tielab.errors import RequestError

MakeConfig = Callable[..., dict[str, Any]]
ROWS = ["one\n\nstill one", "zwei é", "東京 😀", "4"]
SPACED = st.text(st.sampled_from("ab\n\r\t \u00a0\u2028é"), max_size=60)


def texts_of(path: Path, document: str = "paragraph", text_key: str = "text") -> list[str]:
    return list(read_texts(path, document, text_key, lambda num_bytes: None))


def refusal(path: Path, document: str = "paragraph", text_key: str = "text") -> str:
    with pytest.raises(RequestError) as error:
        texts_of(path, document, text_key)
    assert "\n" not in str(error.value)
    assert str(error.value).startswith(str(path))
    return str(error.value)


def json_lines(rows: list[Any], key: str = "text") -> bytes:
    return "".join(json.dumps({"id": 1, key: row}) + "\n" for row in rows).encode()


def write_rows(path: Path, rows: list[str], key: str = "text") -> Path:
    if path.suffix == ".parquet":
        pq.write_table(pa.table({"id": range(len(rows)), key: rows}), path)
    else:
        path.write_bytes(packed(path.suffix, json_lines(rows, key)))
    return path


def packed(suffix: str, content: bytes) -> bytes:
    if suffix == ".zst":
        return zstandard.compress(content)
    return gzip.compress(content) if suffix == ".gz" else content


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("a.txt", "text"), ("a", "text"), ("a.jsonl", "jsonl"), ("a.JSONL.GZ", "jsonl.gz"),
        ("a.b.md", "text"), ("a.gz", "text.gz"), ("a.txt.zst", "text.zst"), ("a.jsonl.zst", "jsonl.zst"),
        ("a.parquet", "parquet"), ("a.json", "text"), ("a.jsonl.txt", "text"),
        ("a.ndjson", "jsonl"), ("a.ndjson.gz", "jsonl.gz"),
    ],
)  # fmt: skip
def test_the_suffix_decides(name: str, found: str) -> None:
    assert format_of(Path("x.gz") / name) == found


@given(SPACED, st.integers(1, 7))
@settings(deadline=None)
def test_paragraphs_are_those_of_the_whole_text_wherever_it_is_cut(text: str, size: int) -> None:
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    found = list(formats._paragraphs(Path("x"), pieces))
    assert [part for part in found if part.strip()] == [
        part for part in re.split(r"\n\s*\n", text) if part.strip()
    ]


@given(st.binary(max_size=12) | st.text(max_size=12).map(str.encode), st.integers(1, 5))
@settings(deadline=None)
def test_utf8_is_read_as_a_whole_would_be_wherever_it_is_cut(content: bytes, size: int) -> None:
    assume(not content.startswith(codecs.BOM_UTF8))
    pieces = [content[start : start + size] for start in range(0, len(content), size)]
    try:
        expected = content.decode("utf-8")
    except UnicodeDecodeError as error:
        with pytest.raises(
            RequestError, match=f"at byte offset {error.start} \\({content[error.start]:#04x}\\)"
        ):
            "".join(formats._decoded(Path("x"), pieces))
    else:
        assert "".join(formats._decoded(Path("x"), pieces)) == expected


@given(st.lists(st.sampled_from([b"a", b"bc", b"\r", b"\n"]), max_size=20).map(b"".join), st.integers(1, 7))
@settings(deadline=None)
def test_lines_are_those_of_the_whole_wherever_it_is_cut(content: bytes, size: int) -> None:
    pieces = [content[start : start + size] for start in range(0, len(content), size)]
    assert list(formats._lines(Path("x"), pieces)) == content.split(b"\n")


@pytest.mark.parametrize("size", [1, 2, 9])
def test_a_byte_order_mark_is_refused_at_the_beginning_alone(size: int) -> None:
    def decoded(content: bytes) -> str:
        pieces = [content[start : start + size] for start in range(0, len(content), size)]
        return "".join(formats._decoded(Path("x"), pieces))

    with pytest.raises(RequestError, match=r"x begins with a byte order mark .*; save it without"):
        decoded(codecs.BOM_UTF8 + b"text")
    assert decoded(b"a" + codecs.BOM_UTF8) == "a\ufeff"


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst", "a.parquet"])
def test_each_row_is_a_document(name: str, tmp_path: Path) -> None:
    path = write_rows(tmp_path / name, ROWS)
    assert texts_of(path) == texts_of(path, "file") == ROWS
    assert texts_of(write_rows(tmp_path / f"b{name}", ROWS, "content"), text_key="content") == ROWS
    many = [f"row {number}" for number in range(1000)]  # several batches of Parquet's
    assert texts_of(write_rows(path, many)) == many


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_packed_text_is_the_text(suffix: str, text_file: Path, tmp_path: Path) -> None:
    content = text_file.read_bytes()
    path = tmp_path / f"a{suffix}"
    half = len(content) // 2
    path.write_bytes(packed(suffix, content[:half]) + packed(suffix, content[half:]))  # as cat makes it
    assert texts_of(path) == texts_of(text_file)
    assert "".join(texts_of(path, "file")) == content.decode()


def test_the_same_text_has_one_content_in_every_container(
    text_file: Path, make_config: MakeConfig, tmp_path: Path
) -> None:
    paragraphs = [text.strip("\n") for text in texts_of(text_file)]
    files = [
        text_file,
        *(tmp_path / name for name in ("t.gz", "t.zst", "r.jsonl", "r.jsonl.zst", "r.parquet")),
    ]
    for path in files[1:3]:
        path.write_bytes(packed(path.suffix, text_file.read_bytes()))
    for path in files[3:]:
        write_rows(path, paragraphs)
    summaries = [prepare(make_config(path)).summary() for path in files]
    for name in ("train", "validation", "test"):
        assert len({json.dumps(summary[name]) for summary in summaries}) == 1
    assert len({summary["corpus_hash"] for summary in summaries}) == len(files)


def test_rows_and_texts_go_together(tmp_path: Path, make_config: MakeConfig) -> None:
    rows, text = write_rows(tmp_path / "a.jsonl", ["one", "", " \n", "two\n"]), tmp_path / "b.txt"
    text.write_text("three\n\nfour\n")
    source = find_source(make_config(rows, text))
    assert (source.document, list(source.documents())) == ("file", ["one", "two", "three\n\nfour"])
    source = find_source(make_config(rows, text, document="paragraph"))
    assert list(source.documents()) == ["one", "two", "three", "four"]
    assert source.num_bytes_read == rows.stat().st_size + text.stat().st_size
    assert find_source(make_config(rows)).document == "row"
    with pytest.raises(RequestError, match=r"data\.document=file is of plain text"):
        find_source(make_config(rows, document="file"))


def test_the_fingerprint_follows_the_key_and_the_format(tmp_path: Path, make_config: MakeConfig) -> None:
    path = write_rows(tmp_path / "a.jsonl", ROWS)
    as_rows, other_key = (find_source(make_config(path, text_key=k)).fingerprint() for k in ("text", "id"))
    renamed = path.rename(tmp_path / "a.txt")
    as_text = find_source(make_config(renamed, document="file")).fingerprint()
    assert len({as_rows, other_key, as_text}) == 3


LINES = {
    b'{"text": "a"}\n[1]\n': "has a list in line 2; every line must be an object",
    b'{"text": "a"}\n\n{"text": "b"': "has no JSON in line 3 (Expecting ',' delimiter)",
    b"hello\n": "has no JSON in line 1 (Expecting value)",
    b'{"text": "\xe9"}\n': "has no JSON in line 1 (",
    b"[" * 100_000: "has no JSON in line 1 (RecursionError)",
    b'{"body": "a", "id": 3}\n': "has no key text in line 1, found body, id; set data.text_key",
    b'{"text": "a", "text": "b"}\n': "has no JSON in line 1 (a key twice in one object)",
    b'{"text": null}\n': "has no text in line 1 under text, found NoneType",
    b'{"text": "\\ud800"}\n': "has half a surrogate pair in line 1",
}


@pytest.mark.parametrize("content", LINES)
def test_a_line_without_text_is_refused_by_its_number(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(content)
    assert LINES[content] in refusal(path)


@pytest.mark.parametrize("name", ["a.gz", "a.zst", "a.parquet", "a.jsonl.zst"])
def test_a_file_that_is_cut_off_or_altered_is_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    if "parquet" in name or "jsonl" in name:
        write_rows(path, ROWS * 100)
    else:
        path.write_bytes(packed(path.suffix, json_lines(ROWS * 100)))
    content = path.read_bytes()
    for length in (5, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:length])
        assert re.search("ends in the middle|is damaged", refusal(path))
    if "parquet" not in name:  # which has no check sums of its own
        path.write_bytes(content[:100] + b"\xff\x00\xff" * 5 + content[115:])
        refusal(path)


@pytest.mark.parametrize("name", ["a.gz", "a.zst", "a.parquet", "a.txt"])
def test_a_file_is_what_its_suffix_says(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    for kind, content in {
        "gzip": gzip.compress(b"text"), "zstd": zstandard.compress(b"text"), "text": b"some text",
        "Parquet": write_rows(tmp_path / "x.parquet", ROWS).read_bytes(),
    }.items():  # fmt: skip
        path.write_bytes(content)
        if (name, kind) in {("a.gz", "gzip"), ("a.zst", "zstd"), ("a.parquet", "Parquet"), ("a.txt", "text")}:
            assert texts_of(path) is not None
        elif (name, kind) == ("a.txt", "Parquet"):  # a text may begin with these letters
            assert "is not UTF-8" in refusal(path)
        elif kind == "text":
            assert "found something else (it begins with 73 6f 6d 65)" in refusal(path)
        else:
            assert f"found {kind}; give it a name in {formats.SUFFIXES[kind]}" in refusal(path)


def test_a_column_that_holds_no_text_is_refused(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "a.parquet", ROWS)
    assert "has no column body, found id, text; set data.text_key" in refusal(path, text_key="body")
    assert "has int64 in column id, not text" in refusal(path, text_key="id")
    pq.write_table(pa.table({"text": ["a", None]}), path)
    assert "has no text in row 2 under text" in refusal(path)
    for kind in (pa.large_string(), pa.dictionary(pa.int32(), pa.string())):
        pq.write_table(pa.table({"text": pa.array(ROWS, pa.string()).cast(kind)}), path)
        assert texts_of(path) == ROWS


def test_a_column_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table([["a"], ["b"]], names=["text", "text"]), path)
    assert "has 2 columns text; rename all but one" in refusal(path)


def test_parquets_check_sums_are_checked_where_there_are_any(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    rows = [f"row {number}" for number in range(2000)]
    pq.write_table(pa.table({"text": rows}), path, compression="none", write_page_checksum=True)
    assert texts_of(path) == rows
    path.write_bytes(path.read_bytes().replace(b"row 100", b"row 900", 1))
    assert re.search(r"is damaged behind row \d+ \(.*CRC checksum.*\); get it again", refusal(path))


def test_a_missing_package_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, package in (("a.jsonl.zst", "zstandard"), ("a.parquet", "pyarrow")):
        path = write_rows(tmp_path / name, ROWS)
        monkeypatch.setitem(__import__("sys").modules, package, None)
        monkeypatch.setitem(__import__("sys").modules, f"{package}.parquet", None)
        assert f"needs the package {package}; pip install 'tielab[hub]'" in refusal(path)


@pytest.fixture
def small_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "MAX_DOCUMENT_BYTES", 2 << 20)


@pytest.mark.parametrize(
    ("name", "document", "message"),
    [
        (
            "a.txt",
            "file",
            "as one document is larger than 2 MiB, the largest document; set data.document=",
        ),
        ("a.zst", "paragraph", "a paragraph is larger than 2 MiB"),
        ("a.gz", "paragraph", "a paragraph is larger than 2 MiB"),
        ("a.jsonl.zst", "file", "a line is larger than 2 MiB"),
        ("a.parquet", "file", "row 1 is larger than 2 MiB"),
    ],
)
@pytest.mark.usefixtures("small_documents")
def test_a_document_that_does_not_fit_into_memory_is_refused(
    name: str, document: str, message: str, tmp_path: Path
) -> None:
    """Also one that a few kilobytes unpack to, and before much of it is unpacked."""
    path = tmp_path / name
    if "parquet" in name:
        write_rows(path, ["a" * (3 << 20)])
    else:
        path.write_bytes(packed(path.suffix, b"a" * (128 << 20)))
    tracemalloc.start()
    assert message in refusal(path, document)
    assert tracemalloc.get_traced_memory()[1] < 100 << 20
    tracemalloc.stop()


def test_documents_come_before_the_file_is_read_to_its_end(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "a.jsonl", ["a" * 1000] * 5000)
    read = 0

    def count(num_bytes: int) -> None:
        nonlocal read
        read += num_bytes

    rows: Iterator[str] = read_texts(path, "file", "text", count)
    assert next(rows) == "a" * 1000
    assert 0 < read <= formats.CHUNK < path.stat().st_size
    assert len(list(rows)) == 4999
    assert read == path.stat().st_size


def test_a_file_that_changes_meanwhile_is_refused(text_file: Path, make_config: MakeConfig) -> None:
    source = find_source(make_config(text_file))
    source.fingerprint()
    text_file.write_text(text_file.read_text(encoding="utf-8") + "more", encoding="utf-8")
    with pytest.raises(RequestError, match="changed while it was read"):
        list(source.documents())
