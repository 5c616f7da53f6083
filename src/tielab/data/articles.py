"""The articles of the default corpus, an encyclopedia, cleaned. Imports no torch."""

import hashlib
import json
import re
from pathlib import Path

SHORTEST_ARTICLE = 80
"""Characters; shorter articles are dropped."""
FORMULA_HOLE = re.compile(r"\w  \w| [.,;:](?:\s|$)")
"""What is left where the package dropped a formula: two spaces in a row, a space before a stop."""


def read_articles(path: Path) -> list[str]:
    """The articles without holes, stubs and duplicates, in the order of their hashes.

    So any prefix of a split is a random sample of it.
    """
    articles = json.loads(path.read_bytes())
    texts = [_without_odd_spaces(articles[title]["extract"]) for title in sorted(articles)]
    whole = [re.sub(" +", " ", text).strip() for text in texts if not FORMULA_HOLE.search(text)]
    kept = {text for text in whole if len(text) >= SHORTEST_ARTICLE}
    return sorted(kept, key=lambda text: hashlib.sha256(text.encode("utf-8")).digest())


def _without_odd_spaces(text: str) -> str:
    return text.replace("\u00a0", " ").replace("\u200b", "").replace("\u2060", "")
