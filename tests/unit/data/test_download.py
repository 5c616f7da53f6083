"""A file from the web is the pinned one or refused in one line; a stranger's config fetches nothing."""

import gzip
import hashlib
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tielab.data import download
from tielab.data.corpus import find_source
from tielab.data.describe import describe_corpus
from tielab.data.prepare import prepare
from tielab.errors import RequestError
from tielab.trust import check_address

MakeConfig = Callable[..., dict[str, Any]]


class Web:
    """A server on this machine: what it serves, and how often it was asked."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.num_requests = 0
        web = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                web.num_requests += 1
                web.answer(self)

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def address(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server.server_port}{path}"

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        name = request.path.rpartition("/")[2]
        if name == "missing.txt":
            request.send_error(404)
            return
        if name == "moved.txt" or name == "away.txt":
            request.send_response(302)
            request.send_header("Location", "/there.txt" if name == "moved.txt" else "ftp://127.0.0.1/x")
            request.end_headers()
            return
        request.send_response(200)
        request.send_header("Content-Length", str(len(self.content)))
        request.end_headers()
        if name == "silent.txt":
            time.sleep(0.5)
        request.wfile.write(self.content[:100] if name == "broken.txt" else self.content)


@pytest.fixture
def web(text_file: Path) -> Iterator[Web]:
    served = Web(text_file.read_bytes())
    yield served
    served.server.shutdown()
    served.server.server_close()


def config_for(make_config: MakeConfig, address: str, content: bytes | None) -> dict[str, Any]:
    sha256 = None if content is None else hashlib.sha256(content).hexdigest()
    return make_config(corpus="url", url={"address": address, "sha256": sha256})


def refusal(config: dict[str, Any]) -> str:
    with pytest.raises(RequestError) as error:
        prepare(config)
    assert "\n" not in str(error.value)
    kept = Path(config["cache_dir"], "downloads")
    assert not kept.exists() or all(path.suffix == ".lock" for path in kept.iterdir())
    return str(error.value)


def test_a_pinned_file_is_downloaded_once(web: Web, text_file: Path, make_config: MakeConfig) -> None:
    config = config_for(make_config, web.address("/a/text.txt?x=1"), web.content)
    summary, local = prepare(config).summary(), prepare(make_config(text_file)).summary()
    assert summary["validation"] == local["validation"]
    assert (summary["corpus"], web.num_requests) == ("url", 1)
    prepare(config)
    prepare(config | {"tokenizer": config["tokenizer"] | {"kind": "bpe", "vocab_size": 300}})
    assert web.num_requests == 1


def test_the_suffix_of_the_address_decides(web: Web, text_file: Path, make_config: MakeConfig) -> None:
    web.content = gzip.compress(web.content)
    source = find_source(config_for(make_config, web.address("/text.txt.gz"), web.content))
    assert list(source.documents()) == list(find_source(make_config(text_file)).documents())
    web.content = b'{"text": "one"}\n{"text": "two"}\n'
    source = find_source(config_for(make_config, web.address("/rows.jsonl"), web.content))
    assert (source.document, list(source.documents())) == ("row", ["one", "two"])


def test_a_file_without_a_hash_is_refused_with_the_one_found(web: Web, make_config: MakeConfig) -> None:
    found = hashlib.sha256(web.content).hexdigest()
    message = refusal(config_for(make_config, web.address("/text.txt"), None))
    assert f"{len(web.content)} bytes with sha256 {found}" in message
    assert f"add data.url.sha256={found}" in message


def test_another_file_is_refused_with_both_hashes(web: Web, make_config: MakeConfig) -> None:
    message = refusal(config_for(make_config, web.address("/text.txt"), b"another"))
    assert f"data.url.sha256={hashlib.sha256(b'another').hexdigest()} but" in message
    assert f"has sha256 {hashlib.sha256(web.content).hexdigest()}" in message


def test_a_file_altered_after_its_download_is_downloaded_anew(web: Web, make_config: MakeConfig) -> None:
    config = config_for(make_config, web.address("/text.txt"), web.content)
    source = find_source(config)
    documents = list(source.documents())
    (kept,) = Path(config["cache_dir"], "downloads").glob("*.text")
    kept.write_bytes(b"altered")
    (kept.parent / f".{kept.name}.killed").touch()
    assert list(find_source(config).documents()) == documents
    assert web.num_requests == 2
    assert sorted(path.name for path in kept.parent.iterdir()) == [kept.name, f"{kept.name}.lock"]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/missing.txt", "answered 404 Not Found; check the address"),
        ("/broken.txt", "ended after 100 of"),
        ("/silent.txt", "sent nothing for 0.1 seconds; try again"),
        ("/away.txt", "cannot be reached (unknown url type: ftp)"),
        ("/a b.txt", "cannot be asked for (URL can't contain control characters"),
    ],
)
def test_what_cannot_be_had_is_one_line(
    path: str, message: str, web: Web, make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "TIMEOUT_SECONDS", 0.1 if "silent" in path else 5.0)
    assert message in refusal(config_for(make_config, web.address(path), web.content))


def test_a_server_that_is_not_there_is_one_line(web: Web, make_config: MakeConfig) -> None:
    config = config_for(make_config, web.address("/text.txt"), web.content)
    web.server.shutdown()
    web.server.server_close()
    assert "cannot be reached ([Errno 111] Connection refused)" in refusal(config)


def test_a_description_that_cannot_keep_the_file_is_one_line(
    web: Web, text_file: Path, make_config: MakeConfig
) -> None:
    config = config_for(make_config, web.address("/text.txt"), web.content)
    with pytest.raises(RequestError, match=r"data\.cache_dir=.*: cannot write the cache \(Not a directory\)"):
        describe_corpus(config | {"cache_dir": str(text_file / "cache")})


def test_a_redirect_is_followed(web: Web, make_config: MakeConfig) -> None:
    source = find_source(config_for(make_config, web.address("/moved.txt"), web.content))
    assert len(list(source.documents())) == 300
    assert web.num_requests == 2


def test_a_strangers_address_is_not_asked_unless_it_was_before(web: Web, make_config: MakeConfig) -> None:
    config = config_for(make_config, web.address("/text.txt"), web.content)
    unpinned = config | {"url": config["url"] | {"sha256": None}}
    for refused in (config, unpinned):
        with pytest.raises(RequestError, match=r"run\.yaml would download data\.url\.address=http"):
            check_address(refused, Path("run.yaml"))
    assert web.num_requests == 0
    prepare(config)
    check_address(config, Path("run.yaml"))
    check_address(make_config(), Path("run.yaml"))
