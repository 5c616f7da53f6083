"""The W&B dashboard of the harness as code: what its panels show, how runs are grouped, where it is saved.

One definition, which ``tielab dashboard show`` prints and ``tielab dashboard publish`` saves. Its panels
draw the groups of the run table: a curve or a bar for each arm of each sweep on each device, the mean
over what else differs. wandb-workspaces is an extra and takes a second, so functions import it.
"""

import os
import threading
from collections.abc import Callable
from importlib import import_module
from typing import Any
from urllib.parse import parse_qs, urlparse

from tielab.errors import RequestError, reason_of
from tielab.tracking.names import ARM, DEVICE, PHASE
from tielab.tracking.wandb_mode import unset_no_mode

NAME = "Tied and untied"
SERVER_SECONDS = 30.0
"""How long publishing waits for the server before it gives up."""

TOKENS = "tokens"
BEST_BITS_PER_BYTE = "val/bits_per_byte.min"
MEAN_TOKENS_PER_SECOND = "tokens_per_second.mean"
PARAMETERS = "parameters.total"


def dashboard(entity: str, project: str, sweep: str | None = None) -> Any:
    """The ``Workspace`` of a project: all its runs, or those of one sweep; tuning runs are left out.

    Raises:
        RequestError: wandb-workspaces is not installed.
    """
    ws = _workspaces()
    from wandb_workspaces import expr

    filters = [expr.Config(PHASE) != "tune"]
    if sweep is not None:
        filters.append(expr.Metric("Group") == sweep)
    return ws.Workspace(
        entity=entity,
        project=project,
        name=NAME if sweep is None else f"{NAME}: {sweep}",
        sections=_sections(ws),
        settings=ws.WorkspaceSettings(x_axis=TOKENS, max_runs=100),
        runset_settings=ws.RunsetSettings(
            filters=filters,
            groupby=[expr.Metric("Group"), expr.Config(ARM), expr.Config(DEVICE)],
            order=[expr.Ordering(expr.Summary(BEST_BITS_PER_BYTE), ascending=True)],
            pinned_columns=[f"summary:{BEST_BITS_PER_BYTE}", f"summary:{PARAMETERS}"],
        ),
    )


def spec(entity: str, project: str, sweep: str | None = None) -> dict[str, Any]:
    """What is saved for ``dashboard``, equal at every call; needs no key and no server.

    The names that wandb-workspaces draws at random for panels are replaced by their numbers.
    """
    found = dashboard(entity, project, sweep)._spec
    for section in found["spec"]["section"]["panelBankConfig"]["sections"]:
        for number, panel in enumerate(section["panels"]):
            panel["__id__"] = f"{section['name']}-{number}"
    return dict(found)


def publish(entity: str, project: str, sweep: str | None = None, url: str | None = None) -> str:
    """Save the dashboard to the server and return its address.

    Args:
        url: Of a saved view of that project, which becomes this dashboard; None: a new view.

    Raises:
        RequestError: no extra, no key, no such view, or a server that refuses or does not answer within
            ``SERVER_SECONDS``.
    """
    workspace = dashboard(entity, project, sweep)
    if url is not None:
        _check_view(url, entity, project)
    _need_key()
    return _within(SERVER_SECONDS, lambda: _save(workspace, url))


def _sections(ws: Any) -> list[Any]:
    wr: Any = import_module("wandb_workspaces.reports.v2")

    def over_tokens(title: str, metric: str, column: int, row: int = 0) -> Any:
        return wr.LinePlot(
            title=title, x=TOKENS, y=[metric], groupby_aggfunc="mean", groupby_rangefunc="minmax",
            layout=wr.Layout(column, row, 12, 8),
        )  # fmt: skip

    quality = [
        over_tokens("Validation bits per byte by arm", "val/bits_per_byte", 0),
        wr.ScatterPlot(
            title="Parameters and best bits per byte",
            x=wr.SummaryMetric(PARAMETERS),
            y=wr.SummaryMetric(BEST_BITS_PER_BYTE),
            log_x=True,
            layout=wr.Layout(12, 0, 12, 8),
        ),
        over_tokens("Training loss by arm", "train/loss", 0, row=8),
    ]
    speed = [
        wr.BarPlot(
            title="Training tokens per second by arm and device",
            metrics=[MEAN_TOKENS_PER_SECOND],
            groupby_aggfunc="mean",
            groupby_rangefunc="minmax",
            layout=wr.Layout(0, 0, 12, 8),
        ),
        over_tokens("Training tokens per second by arm and device", "tokens_per_second", 12),
    ]
    compare = [wr.RunComparer(diff_only="split", layout=wr.Layout(0, 0, 24, 10))]
    named = {"Quality": quality, "Speed": speed, "What differs": compare}
    return [ws.Section(name, is_open=True, panels=panels) for name, panels in named.items()]


def _workspaces() -> Any:
    try:
        import wandb_workspaces.workspaces as ws
    except ImportError:
        raise RequestError(
            "the dashboard needs wandb-workspaces, which is not installed: pip install 'tielab[wandb]'"
        ) from None
    return ws


def _check_view(url: str, entity: str, project: str) -> None:
    parsed = urlparse(url)
    if "nw" not in parse_qs(parsed.query):
        raise RequestError(f"{url} is no saved view; give the address that publish printed, with ?nw=...")
    if parsed.path.strip("/") != f"{entity}/{project}":
        raise RequestError(f"{url} is a view of {parsed.path.strip('/')}, not of {entity}/{project}")


def _need_key() -> None:
    import wandb
    from wandb.errors import AuthenticationError

    unset_no_mode()
    mode = os.environ.get("WANDB_MODE", "online")
    if mode not in ("online", "run"):
        raise RequestError(f"WANDB_MODE is {mode}, and publishing needs the server; unset it")
    os.environ.setdefault("WANDB_SILENT", "true")
    try:
        found = wandb.login(prompt=False, verify=False)
    except AuthenticationError as error:
        raise RequestError(f"the configured W&B key is not one: {reason_of(error)}") from None
    if not found:
        raise RequestError("publishing needs a W&B key: run `wandb login`")


def _save(workspace: Any, url: str | None) -> str:
    if url is not None:
        earlier = type(workspace).from_url(url)
        workspace._internal_name, workspace._internal_id = earlier._internal_name, earlier._internal_id
    return str(workspace.save().url)


def _within(seconds: float, save: Callable[[], str]) -> str:
    """What ``save`` returns, waited for so long; wandb itself goes on trying for minutes."""
    results: list[str] = []
    errors: list[Exception] = []

    def work() -> None:
        try:
            results.append(save())
        except Exception as error:
            errors.append(error)

    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    worker.join(seconds)
    if results:
        return results[0]
    reason = reason_of(errors[0]) if errors else f"the server did not answer within {seconds:.0f} s"
    raise RequestError(f"the dashboard was not published: {reason}")
