"""How text becomes ids and back, without losing a byte.

V vocabulary (``vocab_size``). Every id stands for a fixed byte string, so decoding is joining
and the bytes of any set of tokens can be counted. Imports no torch.
"""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt
import tokenizers

from tielab.data.words import Ids, WordEncoder, encodes_by_word, gather
from tielab.errors import RequestError

NUM_BYTE_IDS = 256
NUM_CODE_POINTS = 0x110000
CHARACTERS = '{"characters": '
"""Begins the description of a ``CharTokenizer``, and of no other."""


class Tokenizer(ABC):
    """Ids for text and text for ids: ``decode(encode(text)) == text`` for every text it accepts."""

    @abstractmethod
    def encode(self, text: str) -> Ids:
        """The ids of a text, shape (n,).

        Raises:
            RequestError: a character has no id.
        """

    def encode_documents(self, texts: Sequence[str]) -> list[Ids]:
        """The ids of each text, as ``encode`` gives them."""
        return [self.encode(text) for text in texts]

    @cached_property
    @abstractmethod
    def pieces(self) -> list[bytes]:
        """The bytes each id stands for; V entries."""

    @abstractmethod
    def to_json(self) -> str:
        """Text from which ``from_json`` makes an equal tokenizer."""

    @staticmethod
    def from_json(text: str) -> "Tokenizer":
        """The tokenizer that ``to_json`` described."""
        if text.startswith(CHARACTERS):  # a library's may be megabytes, which it reads itself
            description = json.loads(text)
            return CharTokenizer(description["characters"], description["byte_fallback"])
        return LibraryTokenizer(tokenizers.Tokenizer.from_str(text))

    @property
    def vocab_size(self) -> int:
        return len(self.pieces)

    @cached_property
    def token_bytes(self) -> Ids:
        """UTF-8 bytes each id stands for, shape (V,)."""
        return np.array([len(piece) for piece in self.pieces], dtype=np.int64)

    @cached_property
    def _joined_pieces(self) -> tuple[npt.NDArray[np.uint8], Ids]:
        """The bytes of all ids one after the other, and where those of each begin, shape (V,)."""
        joined = np.frombuffer(b"".join(self.pieces), dtype=np.uint8)
        return joined, np.cumsum(self.token_bytes) - self.token_bytes

    @cached_property
    def hash(self) -> str:
        """Identity of the mapping: sha256 of its description."""
        return hashlib.sha256(self.to_json().encode("utf-8")).hexdigest()

    def decode_bytes(self, ids: npt.ArrayLike) -> bytes:
        """The bytes that ids stand for, joined."""
        chosen = np.asarray(ids, dtype=np.int64)
        joined, starts = self._joined_pieces
        return bytes(gather(joined, starts[chosen], self.token_bytes[chosen]))

    def decode(self, ids: npt.ArrayLike) -> str:
        """The text of ids; bytes that are no UTF-8 (a cut character) become U+FFFD."""
        return self.decode_bytes(ids).decode("utf-8", errors="replace")


class CharTokenizer(Tokenizer):
    """An id for each character of an alphabet; with ``byte_fallback`` 256 ids for the bytes come first.

    The byte ids spell characters outside the alphabet. An empty alphabet with byte fallback is
    the byte tokenizer: id = byte.
    """

    def __init__(self, characters: str, byte_fallback: bool) -> None:
        self.characters = characters
        self.byte_fallback = byte_fallback
        self._ids = np.full(NUM_CODE_POINTS, -1, dtype=np.int32)
        first = NUM_BYTE_IDS if byte_fallback else 0
        self._ids[_code_points(characters)] = np.arange(first, first + len(characters))

    def encode(self, text: str) -> Ids:
        if self.byte_fallback and not self.characters:
            return np.frombuffer(text.encode("utf-8"), dtype=np.uint8).astype(np.int64)
        points = _code_points(text)
        ids = self._ids[points].astype(np.int64)
        outside = ids < 0
        if not outside.any():
            return ids
        strangers = points[outside].tobytes().decode("utf-32-le")
        if not self.byte_fallback:
            raise RequestError(
                f"character {strangers[0]!r} (U+{ord(strangers[0]):04X}) has no id among "
                f"{self.vocab_size} characters of the training split; set data.tokenizer.byte_fallback=true"
            )
        lengths = np.where(outside, _utf8_lengths(points), 1)
        spelled = np.repeat(outside, lengths)
        result = np.empty(len(spelled), dtype=np.int64)
        result[~spelled] = ids[~outside]
        result[spelled] = np.frombuffer(strangers.encode("utf-8"), dtype=np.uint8)
        return result

    @cached_property
    def pieces(self) -> list[bytes]:
        byte_pieces = [bytes([value]) for value in range(NUM_BYTE_IDS)] if self.byte_fallback else []
        return byte_pieces + [character.encode("utf-8") for character in self.characters]

    def to_json(self) -> str:
        return json.dumps({"characters": self.characters, "byte_fallback": self.byte_fallback})


def _code_points(text: str) -> npt.NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le"), dtype="<u4")


def _utf8_lengths(points: npt.NDArray[np.uint32]) -> Ids:
    """UTF-8 bytes of each code point: 1 to 4."""
    limits = np.array([0x80, 0x800, 0x10000])
    return 1 + np.searchsorted(limits, points, side="right")


class LibraryTokenizer(Tokenizer):
    """A byte-level tokenizer of the ``tokenizers`` library.

    Text that spells a special token (``<|endoftext|>``) is text like any other, and no token is
    added before or after a document.

    Raises:
        RequestError: the tokenizer is not byte-level, so its ids do not stand for bytes.
    """

    def __init__(self, library: tokenizers.Tokenizer) -> None:
        self._library = library
        self._words = WordEncoder(library) if encodes_by_word(library) else None
        library.encode_special_tokens = True
        library.no_truncation()
        library.no_padding()

    def encode(self, text: str) -> Ids:
        return np.array(self._library.encode(text, add_special_tokens=False).ids, dtype=np.int64)

    def encode_documents(self, texts: Sequence[str]) -> list[Ids]:
        if self._words is not None:
            return self._words.encode(texts)
        encodings = self._library.encode_batch_fast(list(texts), add_special_tokens=False)
        return [np.array(encoding.ids, dtype=np.int64) for encoding in encodings]

    @cached_property
    def pieces(self) -> list[bytes]:
        added = {i: token.content for i, token in self._library.get_added_tokens_decoder().items()}
        vocab = self._library.get_vocab(with_added_tokens=True)
        # An id without a token (a hole in the numbering) stands for nothing and is never produced.
        pieces = [b""] * (max(vocab.values()) + 1)
        for token, i in vocab.items():
            pieces[i] = added[i].encode("utf-8") if i in added else _spelled_bytes(token)
        return pieces

    def to_json(self) -> str:
        return str(self._library.to_str())


def _byte_alphabet() -> dict[str, int]:
    """The printable character by which byte-level tokenizers write each byte (GPT-2's table)."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    moved = [value for value in range(256) if value not in set(plain)]
    return {chr(v): v for v in plain} | {chr(256 + i): v for i, v in enumerate(moved)}


BYTE_OF_CHARACTER = _byte_alphabet()


UNUSED = "\u2060"
"""Begins the token of an id that encoding never gives, in a file whose tokens must differ: a byte that is a
character of the alphabet as well. It stands for no byte."""


def _spelled_bytes(token: str) -> bytes:
    try:
        return bytes([BYTE_OF_CHARACTER[character] for character in token.removeprefix(UNUSED)])
    except KeyError:
        raise RequestError(
            f"data.tokenizer.path: token {token!r} is not written in byte-level characters; "
            "choose a byte-level tokenizer such as GPT-2's"
        ) from None
