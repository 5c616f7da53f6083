"""A local stand-in for the W&B server: what runs without artifacts and saved views ask of it, in memory.

Made from the calls that wandb 0.31 and wandb-workspaces 0.4 send. It shows that the harness sends the
right things, not that the real server accepts them. ``trouble`` makes it a bad server; a good one is
stopped only after ``wandb.finish()`` and ``wandb.teardown()``, which would wait for its answers.
"""

import contextlib
import gzip
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

ENTITY = "local"
VIEWER = {
    "id": "u1", "entity": ENTITY, "username": ENTITY, "flags": "{}",
    "teams": {"edges": [{"node": {"name": ENTITY}}]},
}  # fmt: skip


@dataclass(frozen=True)
class Trouble:
    """How a server answers that does not do its work."""

    delay: float = 0.0
    """Seconds before each answer."""
    status: int | None = None
    """Instead of the answer."""
    dropped: bool = False
    """Each connection is closed without one."""
    silent: bool = False
    """Each connection is kept open without one, until the server stops."""


@dataclass
class OnlineRun:
    """What arrived for one run id."""

    variables: dict[str, Any] = field(default_factory=dict)
    """Of the ``UpsertBucket`` calls, merged: groupName, jobType, displayName, tags, ..."""
    lines: dict[str, dict[int, str]] = field(default_factory=dict)
    """Streamed files: name to offset to line."""
    files: dict[str, bytes] = field(default_factory=dict)
    """Uploaded whole, by name."""
    exit_code: int | None = None

    @property
    def config(self) -> dict[str, Any]:
        entries = json.loads(self.variables.get("config") or "{}")
        return {key: entry["value"] for key, entry in entries.items() if key != "_wandb"}

    @property
    def history(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._file("wandb-history.jsonl")]

    @property
    def summary(self) -> dict[str, Any]:
        lines = self._file("wandb-summary.json")
        return dict(json.loads(lines[-1])) if lines else {}

    def _file(self, name: str) -> list[str]:
        return [line for _, line in sorted(self.lines.get(name, {}).items())]


@dataclass
class View:
    """A saved view of a project: what ``tielab dashboard publish`` leaves there."""

    variables: dict[str, Any]
    """Of the last ``UpsertView2`` call: entityName, projectName, name, displayName, ..."""

    @property
    def spec(self) -> dict[str, Any]:
        return dict(json.loads(self.variables["spec"]))


class StandIn:
    """The server's memory: runs and views by id, and every call that it had no answer for.

    A subclass knows more calls: a method ``on_OPERATION`` from variables to the ``data`` of the answer.
    """

    def __init__(self) -> None:
        self.url = ""
        self.runs: dict[str, OnlineRun] = {}
        self.views: dict[str, View] = {}
        self.calls: list[str] = []
        """The path of every request."""
        self.unknown_calls: list[str] = []
        self.trouble: Trouble | None = None
        self.stopped = threading.Event()
        self._lock = threading.Lock()

    def answer(self, operation: str, variables: dict[str, Any]) -> dict[str, Any] | None:
        """The ``data`` of one GraphQL call; None if it is not known."""
        method = getattr(self, f"on_{operation}", None)
        if method is None:
            return None
        with self._lock:
            return dict(method(variables))

    def on_Viewer(self, variables: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        return {"viewer": VIEWER}

    def on_ServerFeaturesQuery(self, variables: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        return {"serverInfo": {"features": []}}

    def on_OrganizationCoreWeaveOrganizationID(self, variables: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        return {"entity": {"organization": {"coreWeaveOrganizationId": None}}}

    def on_UpsertBucket(self, variables: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        # The first call names the run, later ones give the id they were answered with: the name again.
        run_id = variables.get("name") or variables["id"]
        is_new = run_id not in self.runs
        run = self.runs.setdefault(run_id, OnlineRun())
        run.variables |= {key: value for key, value in variables.items() if value is not None}
        project = _project(run.variables["project"])
        bucket = {"id": run_id, "name": run_id, "displayName": run_id, "project": project}
        return {"upsertBucket": {"bucket": bucket, "inserted": is_new}}

    def on_RunResumeStatus(self, variables: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        return {"model": {**_project(variables["project"]), "bucket": self._known(variables["name"])}}

    def on_CreateRunFiles(self, variables: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        run_id = variables["run"]
        files = [{"name": n, "uploadUrl": f"{self.url}/upload/{run_id}/{n}"} for n in variables["files"]]
        return {"createRunFiles": {"runID": run_id, "uploadHeaders": [], "files": files}}

    def on_UpsertView2(self, variables: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        known = variables.get("id")
        view_id = known or f"view-{len(self.views)}"
        self.views[view_id] = View(variables)
        return {"upsertView": {"view": {"id": view_id, "name": variables["name"]}, "inserted": not known}}

    def on_View(self, variables: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        """The saved view of that name in that project."""
        place = (variables["entityName"], variables["projectName"], variables["viewName"])
        nodes = [
            {"id": view_id, "displayName": saved["displayName"], "spec": saved["spec"]}
            for view_id, saved in ((view_id, view.variables) for view_id, view in self.views.items())
            if (saved["entityName"], saved["projectName"], saved["name"]) == place
        ]
        return {"project": {"allViews": {"edges": [{"node": node} for node in nodes]}}}

    def stream(self, run_id: str, body: dict[str, Any]) -> None:
        """Take in one ``file_stream`` request."""
        with self._lock:
            run = self.runs[run_id]
            for name, chunk in (body.get("files") or {}).items():
                numbered = enumerate(chunk["content"], start=chunk["offset"])
                run.lines.setdefault(name, {}).update(numbered)
            if body.get("complete"):
                run.exit_code = body["exitcode"]

    def upload(self, run_id: str, name: str, content: bytes) -> None:
        """Take in one whole file of a run."""
        with self._lock:
            self.runs[run_id].files[name] = content

    def _known(self, run_id: str) -> dict[str, Any] | None:
        if run_id not in self.runs:
            return None
        run = self.runs[run_id]
        return {
            "id": run_id, "name": run_id, "config": run.variables.get("config") or "{}",
            "summaryMetrics": json.dumps(run.summary), "wandbConfig": '{"t": 1}', "tags": [],
            "historyTail": json.dumps([json.dumps(row) for row in run.history[-1:]]), "eventsTail": "[]",
            "historyLineCount": len(run.history), "eventsLineCount": 0, "logLineCount": 0,
        }  # fmt: skip


def _project(name: str) -> dict[str, Any]:
    return {"id": f"project-{name}", "name": name, "entity": {"id": "e1", "name": ENTITY}}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    stand_in: StandIn

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.stand_in.calls.append(self.path)
        trouble = self.stand_in.trouble
        if trouble is not None and self._troubled(trouble):
            return
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        path = self.path.partition("?")[0]
        if path == "/graphql":
            self._graphql(json.loads(body))
        elif match := re.fullmatch(r"/files/.+/([^/]+)/file_stream", path):
            self.stand_in.stream(match[1], json.loads(body))
            self._reply(200, {"exitcode": None, "limits": {}})
        elif match := re.fullmatch(r"/upload/([^/]+)/(.+)", path):
            self.stand_in.upload(match[1], unquote(match[2]), body)
            self._reply(200, {})
        elif path.startswith("/sdk/otel"):
            self._reply(200, {})
        else:
            self._unknown(f"{self.command} {path}")

    do_GET = do_POST = do_PUT = _handle  # noqa: N815

    def _troubled(self, trouble: Trouble) -> bool:
        """Whether that was all of the answer."""
        self.stand_in.stopped.wait(None if trouble.silent else trouble.delay)
        if trouble.status is not None:
            self._reply(trouble.status, {"errors": [{"message": "stand-in: in trouble"}]})
            return True
        self.close_connection = trouble.silent or trouble.dropped
        return self.close_connection

    def _graphql(self, call: dict[str, Any]) -> None:
        match = re.search(r"(?:query|mutation)\s+(\w+)", call["query"])
        operation = call.get("operationName") or (match[1] if match else call["query"])
        try:
            data = self.stand_in.answer(operation, call.get("variables") or {})
        except Exception as error:
            self._unknown(f"{operation}: {error!r}")
            return
        if data is None:
            self._unknown(operation)
        else:
            self._reply(200, {"data": data})

    def _unknown(self, call: str) -> None:
        self.stand_in.unknown_calls.append(call)
        # wandb repeats a request for minutes after a 5xx or a lost connection, not after a 400.
        self._reply(400, {"errors": [{"message": f"stand-in: unknown call {call}"}]})

    def _reply(self, status: int, body: dict[str, Any]) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Keep the test output quiet."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore idle connections that a client resets."""


@contextlib.contextmanager
def serve(stand_in: StandIn | None = None) -> Iterator[StandIn]:
    """A running stand-in, a new one or the one given, on a free port of 127.0.0.1."""
    stand_in = stand_in or StandIn()
    server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"stand_in": stand_in}))
    stand_in.url = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield stand_in
    finally:
        stand_in.stopped.set()
        server.shutdown()
        server.server_close()
