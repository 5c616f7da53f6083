"""Files to texts by their suffix, streamed: plain text, JSON Lines and Parquet, also gzip and zstd.

``.gz`` and ``.zst`` are decompressed, ``.jsonl`` or ``.ndjson`` below them or alone and ``.parquet`` hold
rows, any other file is plain text. Nothing larger than a document is ever in memory. Imports no torch.
"""

import codecs
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NoReturn

from tielab.data.paths import refuse_file
from tielab.errors import RequestError

MAX_DOCUMENT_BYTES = 1 << 26
"""64 MiB of UTF-8; tokenizing a document takes about 30 times its size in memory."""
CHUNK = 1 << 20
DECODED_AT_ONCE = 1 << 10
"""Compressed bytes; in the worst case zstd makes 32 MiB of them, gzip 1 MiB."""
ROWS_AT_ONCE = 256
BLANK_LINE = re.compile(r"\n\s*\n")
BYTE_ORDER_MARK = "\ufeff"
MAGIC = {"gzip": b"\x1f\x8b", "zstd": b"\x28\xb5\x2f\xfd", "Parquet": b"PAR1"}
"""The first bytes of a file of that kind."""
SUFFIXES = {"gzip": ".gz", "zstd": ".zst", "Parquet": ".parquet"}

Count = Callable[[int], None]
"""Told the raw bytes that were read, bit by bit."""


def format_of(path: Path) -> str:
    """What a file is read as: ``text``, ``jsonl`` or ``parquet``, and how it is compressed: ``jsonl.zst``."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    compression = suffixes.pop() if suffixes and suffixes[-1] in (".gz", ".zst") else ""
    kind = suffixes[-1] if suffixes else ""
    if kind == ".parquet" and not compression:
        return "parquet"
    return ("jsonl" if kind in (".jsonl", ".ndjson") else "text") + compression


def holds_rows(path: Path) -> bool:
    """Whether each row of a file is a document."""
    return not format_of(path).startswith("text")


def read_texts(path: Path, document: str, text_key: str, count: Count) -> Iterator[str]:
    """The documents of a file, some of them blank perhaps.

    Args:
        document: of a plain text: ``file`` or ``paragraph``.
        text_key: of rows: the key or column that holds the text.

    Raises:
        RequestError: the file cannot be read, is damaged, is not what its suffix says, not UTF-8, or
            has a document larger than 64 MiB.
    """
    try:
        _check_magic(path)
        kind = format_of(path).partition(".")[0]
        if kind == "parquet":
            yield from _parquet_rows(path, text_key, count)
        elif kind == "jsonl":
            yield from _json_rows(path, _content(path, count), text_key)
        elif document == "paragraph":
            yield from _paragraphs(path, _decoded(path, _content(path, count)))
        else:
            yield _whole(path, _decoded(path, _content(path, count)))
    except OSError as error:
        refuse_file(path, error)


def raw_chunks(path: Path, count: Count) -> Iterator[bytes]:
    """The bytes of a file as they are."""
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            count(len(chunk))
            yield chunk


def _check_magic(path: Path) -> None:
    with path.open("rb") as file:
        start = file.read(4)
    named = next((kind for kind, suffix in SUFFIXES.items() if path.suffix.lower() == suffix), None)
    found = next((kind for kind, magic in MAGIC.items() if start.startswith(magic)), None)
    # A text may begin with the letters PAR1.
    if named == found or (named is None and found == "Parquet"):
        return
    shown = found or f"something else (it begins with {start.hex(' ') or 'nothing'})"
    right = f"a name in {SUFFIXES[found]}" if found else f"a name without {path.suffix}"
    raise RequestError(f"{path} is {named or 'text'} by its name, found {shown}; give it {right}")


def _content(path: Path, count: Count) -> Iterator[bytes]:
    """The bytes of a file, decompressed if its suffix says so, in pieces of at least a chunk but the last."""
    chunks = raw_chunks(path, count)
    if path.suffix.lower() == ".gz":
        return _decompressed(path, chunks, lambda: zlib.decompressobj(wbits=31), zlib.error)
    if path.suffix.lower() == ".zst":
        zstandard = _import(path, "zstandard")
        context = zstandard.ZstdDecompressor()
        return _decompressed(path, chunks, context.decompressobj, zstandard.ZstdError)
    return chunks


def _import(path: Path, package: str) -> Any:
    import importlib

    try:
        return importlib.import_module(package)
    except ImportError:
        name = package.partition(".")[0]
        raise RequestError(f"{path} needs the package {name}; pip install 'tielab[hub]'") from None


def _decompressed(
    path: Path, chunks: Iterable[bytes], new_decoder: Callable[[], Any], error: type[Exception]
) -> Iterator[bytes]:
    """Several members or frames one after the other are one text, as for gunzip and unzstd."""
    decoder = new_decoder()
    gathered = bytearray()
    for chunk in chunks:
        for start in range(0, len(chunk), DECODED_AT_ONCE):
            rest = chunk[start : start + DECODED_AT_ONCE]
            while rest:
                decoder = new_decoder() if decoder.eof else decoder
                try:
                    gathered += decoder.decompress(rest)
                except error as reason:
                    _refuse(path, f"is damaged ({reason}); get it again")
                rest = decoder.unused_data if decoder.eof else b""
            if len(gathered) >= CHUNK:
                yield bytes(gathered)
                gathered.clear()
    if not decoder.eof:
        _refuse(path, "ends in the middle of its compressed data; get it again")
    yield bytes(gathered)


def _refuse(path: Path, what: str) -> NoReturn:
    raise RequestError(f"{path} {what}") from None


def _refuse_size(path: Path, what: str, remedy: str) -> NoReturn:
    _refuse(path, f"{what} is larger than {MAX_DOCUMENT_BYTES >> 20} MiB, the largest document; {remedy}")


def _decoded(path: Path, chunks: Iterable[bytes]) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")()
    offset = 0  # of the first byte that is not decoded yet
    for chunk, final in _with_end(chunks):
        pending = len(decoder.getstate()[0])
        try:
            text = decoder.decode(chunk, final)
        except UnicodeDecodeError as error:
            place, byte = offset + error.start, error.object[error.start]
            _refuse(path, f"is not UTF-8 at byte offset {place} ({byte:#04x}); convert it to UTF-8")
        if text.startswith(BYTE_ORDER_MARK) and not offset:
            _refuse(path, "begins with a byte order mark (ef bb bf), which is no text; save it without")
        offset += pending + len(chunk) - len(decoder.getstate()[0])
        yield text


def _with_end(chunks: Iterable[bytes]) -> Iterator[tuple[bytes, bool]]:
    for chunk in chunks:
        yield chunk, False
    yield b"", True


def _whole(path: Path, texts: Iterable[str]) -> str:
    parts: list[str] = []
    size = 0
    for text in texts:
        parts.append(text)
        size += len(text)
        if size > MAX_DOCUMENT_BYTES:
            _refuse_size(path, "as one document", "set data.document=paragraph")
    return "".join(parts)


def _paragraphs(path: Path, texts: Iterable[str]) -> Iterator[str]:
    """What blank lines separate: ``BLANK_LINE.split`` of the whole text, a piece at a time."""
    rest = ""
    for text in texts:
        rest += text
        # White space at the end may be the beginning of a longer blank line.
        end = len(rest.rstrip())
        done = 0
        for blank in BLANK_LINE.finditer(rest, 0, end):
            yield rest[done : blank.start()]
            done = blank.end()
        rest = rest[done:]
        if len(rest) > MAX_DOCUMENT_BYTES:
            _refuse_size(path, "a paragraph", "separate its documents by blank lines")
    yield from BLANK_LINE.split(rest)


def _json_rows(path: Path, chunks: Iterable[bytes], text_key: str) -> Iterator[str]:
    for number, line in enumerate(_lines(path, chunks), start=1):
        if line.strip():
            yield _text_of_row(path, f"line {number}", _parsed(path, number, line), text_key)


def _lines(path: Path, chunks: Iterable[bytes]) -> Iterator[bytes]:
    parts: list[bytes] = []
    for chunk in chunks:
        first, *others = chunk.split(b"\n")
        parts.append(first)
        if sum(map(len, parts)) > MAX_DOCUMENT_BYTES:
            _refuse_size(path, "a line", "split it into rows")
        for other in others:
            yield b"".join(parts)
            parts = [other]
    yield b"".join(parts)


def _parsed(path: Path, number: int, line: bytes) -> Any:
    try:
        return json.loads(line.decode("utf-8"), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        reason = getattr(error, "msg", None) or getattr(error, "reason", None) or type(error).__name__
        _refuse(path, f"has no JSON in line {number} ({reason}); every line must be an object")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) != len(pairs):
        raise json.JSONDecodeError("a key twice in one object", "", 0)
    return row


def _text_of_row(path: Path, place: str, row: Any, text_key: str) -> str:
    if not isinstance(row, dict):
        _refuse(path, f"has a {type(row).__name__} in {place}; every line must be an object")
    if text_key not in row:
        keys = ", ".join(sorted(row)[:10]) or "none"
        _refuse(path, f"has no key {text_key} in {place}, found {keys}; set data.text_key")
    return _checked_text(path, place, row[text_key], text_key)


def _checked_text(path: Path, place: str, text: Any, text_key: str) -> str:
    if not isinstance(text, str):
        _refuse(path, f"has no text in {place} under {text_key}, found {type(text).__name__}; drop that row")
    if len(text) > MAX_DOCUMENT_BYTES:
        _refuse_size(path, place, "split it into rows")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        _refuse(path, f"has half a surrogate pair in {place} under {text_key}; drop that row")
    return text


def _parquet_rows(path: Path, text_key: str, count: Count) -> Iterator[str]:
    parquet = _import(path, "pyarrow.parquet")
    arrow = _import(path, "pyarrow")
    size, number = path.stat().st_size, 0
    try:
        # Neither reads a column of a whole row group at once.
        options = {"buffer_size": CHUNK, "pre_buffer": False, "page_checksum_verification": True}
        with parquet.ParquetFile(path, **options) as file:
            _check_column(path, file.schema_arrow, arrow.types, text_key)
            for batch in file.iter_batches(ROWS_AT_ONCE, columns=[text_key]):
                for text in batch.column(0):
                    number += 1
                    yield _checked_text(path, f"row {number}", text.as_py(), text_key)
                count(size * len(batch) // file.metadata.num_rows)
    except (arrow.ArrowException, UnicodeDecodeError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        # Damage raises an OSError as well, without a number.
        reason = " ".join(str(error).split())[:200]
        _refuse(path, f"is damaged behind row {number} ({reason}); get it again")


def _check_column(path: Path, schema: Any, types: Any, text_key: str) -> None:
    if text_key not in schema.names:
        _refuse(path, f"has no column {text_key}, found {', '.join(schema.names[:10])}; set data.text_key")
    if schema.names.count(text_key) > 1:
        _refuse(path, f"has {schema.names.count(text_key)} columns {text_key}; rename all but one")
    kind = schema.field(text_key).type
    if types.is_dictionary(kind):
        kind = kind.value_type
    if not (types.is_string(kind) or types.is_large_string(kind)):
        _refuse(path, f"has {kind} in column {text_key}, not text; set data.text_key to another")
