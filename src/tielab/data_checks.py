"""Texts, tokenizers and windows that cannot be had: each is refused in one line. Imports no torch."""

import re
from pathlib import Path
from typing import Any

from tielab.errors import RequestError


def check_data(data: dict[str, Any]) -> None:
    """Raise RequestError for the first key of ``data``, or combination of its keys, that cannot be had."""
    if data["corpus"] == "text" and not data["paths"]:
        raise RequestError("data=text needs files: add data.paths=[FILE,FOLDER,'GLOB',...]")
    if not data["text_key"]:
        raise RequestError("data.text_key is empty; name the key or column that holds the text of a row")
    if data["split"] == "order" and (data["corpus"] not in ("text", "url") or data["document"]):
        raise RequestError(
            "data.split=order cuts the one plain text of data=text or data=url and knows no documents, found "
            f"data.corpus={data['corpus']} and data.document={data['document']}; use data.split=hash"
        )
    if data["corpus"] != "text" and (data["paths"] or data["document"]):
        raise RequestError(
            f"data.paths and data.document belong to data=text, found corpus {data['corpus']}; "
            "add data=text or drop them"
        )
    _check_url(data)
    _check_hub(data)
    _check_tokenizer(data["tokenizer"])
    _check_strides(data)


def _check_url(data: dict[str, Any]) -> None:
    url = data["url"]
    if (data["corpus"] == "url") != (url is not None):
        raise RequestError(
            f"data.url belongs to data=url, found corpus {data['corpus']} and url {url}; ask with data=url"
        )
    if url is None:
        return
    if url["address"] is None:
        raise RequestError("data=url needs a file: add data.url.address=https://... and data.url.sha256=...")
    if not re.match(r"https?://[^\s/]+/\S", url["address"]):
        raise RequestError(f"data.url.address={url['address']} is no address of a file; give http(s)://...")
    if url["sha256"] is not None and not re.fullmatch("[0-9a-f]{64}", url["sha256"]):
        raise RequestError(f"data.url.sha256={url['sha256']} is no hash; give the 64 hex digits of sha256sum")


def _check_hub(data: dict[str, Any]) -> None:
    hub = data["hub"]
    if (data["corpus"] == "hub") != (hub is not None):
        raise RequestError(
            f"data.hub belongs to data=hub, found corpus {data['corpus']}; add data=hub or drop it"
        )
    if hub is None:
        return
    name, revision, max_bytes = hub["name"], hub["revision"], hub["max_bytes"]
    if max_bytes is not None and max_bytes <= 0:
        raise RequestError(f"data.hub.max_bytes={max_bytes} is out of range: it must be greater than 0")
    if name.startswith(("/", "./", "../", "~")):
        if revision is not None:
            raise RequestError(
                f"data.hub.name={name} is a folder, which has no commit; drop data.hub.revision"
            )
        if not Path(name).expanduser().is_dir():
            raise RequestError(f"data.hub.name={name}: no folder there; name one with a data set's files")
    elif not re.fullmatch(r"[A-Za-z0-9][\w.-]*/[\w.-]+", name) or Path(name).exists():
        raise RequestError(
            f"data.hub.name={name} must be OWNER/NAME of the hub, or a folder written as ./FOLDER or /FOLDER"
        )
    elif not re.fullmatch("[0-9a-f]{40}", revision or ""):
        raise RequestError(
            f"data.hub.revision={revision} is no commit, and the text of any other name may change; give the "
            f"40 hex digits of one of https://huggingface.co/datasets/{name}/commits/main"
        )


def _check_strides(data: dict[str, Any]) -> None:
    for key in ("stride", "eval_stride"):
        if data[key] > data["block_size"]:
            raise RequestError(
                f"data.{key}={data[key]} would skip tokens: it must not exceed "
                f"data.block_size={data['block_size']}"
            )
    strides, block_size, eval_stride = data["check_strides"], data["block_size"], data["eval_stride"]
    for stride in strides:
        asked = f"data.check_strides={strides} has {stride}"
        if not 1 <= stride <= block_size:
            raise RequestError(f"{asked}: a stride must lie between 1 and data.block_size={block_size}")
        if stride == eval_stride:
            raise RequestError(f"{asked}, which data.eval_stride evaluates already; drop it")
        if strides.count(stride) > 1:
            raise RequestError(f"{asked} twice; name it once")


def _check_tokenizer(tokenizer: dict[str, Any]) -> None:
    if tokenizer["kind"] == "file" and not tokenizer["path"]:
        raise RequestError(
            "data.tokenizer.kind=file needs data.tokenizer.path: a tokenizer.json or a folder "
            "with vocab.json and merges.txt"
        )
    if tokenizer["kind"] == "byte" and tokenizer["vocab_size"] != 256:
        raise RequestError(
            f"a byte tokenizer has exactly 256 ids, found vocab_size={tokenizer['vocab_size']}; "
            "use vocab=byte, or vocab=bpe for other sizes"
        )
    if tokenizer["kind"] in ("bpe", "file") and tokenizer["vocab_size"] is None:
        raise RequestError(f"data.tokenizer.vocab_size must be a number for kind {tokenizer['kind']}")
    if tokenizer["kind"] == "bpe" and tokenizer["vocab_size"] < 256:
        raise RequestError(
            f"a byte-level BPE starts from 256 bytes, found vocab_size={tokenizer['vocab_size']}; "
            "ask for at least 256"
        )
