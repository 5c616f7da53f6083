"""A stand-in for the Hugging Face hub: one data set at one commit, served from a folder."""

import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

NAME, COMMIT = "someone/stories", "0123456789abcdef0123456789abcdef01234567"


class HubServer(ThreadingHTTPServer):
    """Answers what ``datasets`` and ``huggingface_hub`` ask in order to stream a public data set."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.folder = folder
        self.asked: list[str] = []
        self.num_bytes_sent = 0
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def entries(self) -> list[dict[str, Any]]:
        """Files and folders of the data set, as the hub describes them."""
        return [
            {
                "type": "directory" if path.is_dir() else "file",
                "path": str(path.relative_to(self.folder)),
                "size": 0 if path.is_dir() else path.stat().st_size,
                "oid": hashlib.sha1(str(path).encode()).hexdigest(),
            }
            for path in sorted(self.folder.rglob("*"))
        ]


class Handler(BaseHTTPRequestHandler):
    server: HubServer
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._file(with_body=False)

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        self.server.asked.append(f"GET {path}")
        api = f"/api/datasets/{NAME}"
        if path in (api, f"{api}/revision/{COMMIT}"):
            files = [{"rfilename": e["path"]} for e in self.server.entries() if e["type"] == "file"]
            self._json({"id": NAME, "sha": COMMIT, "private": False, "siblings": files})
        elif path.startswith(f"{api}/tree/{COMMIT}"):
            folder = path.removeprefix(f"{api}/tree/{COMMIT}").strip("/") or "."
            self._json([e for e in self.server.entries() if str(Path(e["path"]).parent) == folder])
        elif path.startswith(f"/datasets/{NAME}/resolve/{COMMIT}/"):
            self._file(with_body=True)
        else:
            self._missing("RepoNotFound" if NAME not in path else "RevisionNotFound")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.server.asked.append(f"POST {self.path}")
        wanted = json.loads(body)["paths"] if body.startswith("{") else []
        self._json([entry for entry in self.server.entries() if entry["path"] in wanted])

    def _json(self, value: Any) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _missing(self, code: str) -> None:
        self.send_response(404)
        self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _file(self, *, with_body: bool) -> None:
        name = self.path.partition("?")[0].removeprefix(f"/datasets/{NAME}/resolve/{COMMIT}/")
        path = self.server.folder / name
        if not path.is_file():
            self._missing("EntryNotFound")
            return
        content = path.read_bytes()
        size, first, last = len(content), 0, len(content) - 1
        asked = self.headers.get("Range")
        if asked:
            start, _, end = asked.removeprefix("bytes=").partition("-")
            first, last = int(start), min(int(end or last), last)
        part = content[first : last + 1]
        self.send_response(206 if asked else 200)
        self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("Accept-Ranges", "bytes")
        if asked:
            self.send_header("Content-Range", f"bytes {first}-{last}/{size}")
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        if with_body:
            self.wfile.write(part)
            self.server.num_bytes_sent += len(part)

    def log_message(self, *arguments: object) -> None:
        pass
