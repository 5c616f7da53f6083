"""The dashboard: what it says offline, what arrives at a server, and what a refused publish says."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import wandb

from tielab import dashboard
from wandb_server import StandIn, Trouble, serve

DUMMY_KEY = "0" * 40

pytestmark = pytest.mark.usefixtures("wandb_environment")
Tielab = Callable[..., Any]


@pytest.fixture
def server(wandb_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    with serve() as stand_in:
        monkeypatch.setenv("WANDB_BASE_URL", stand_in.url)
        monkeypatch.setenv("WANDB_API_KEY", DUMMY_KEY)
        yield stand_in
        wandb.teardown()
    assert stand_in.unknown_calls == []


def panels(spec: dict[str, Any]) -> list[dict[str, Any]]:
    sections = spec["section"]["panelBankConfig"]["sections"]
    return [panel for section in sections for panel in section["panels"]]


def grouping(spec: dict[str, Any]) -> list[str]:
    (runs,) = spec["section"]["runSets"]
    return [f"{key['section']}:{key['name']}" for key in runs["grouping"]]


def test_what_is_shown_is_the_golden_file(tielab: Tielab) -> None:
    """Rewrite it with ``tielab dashboard show me/tielab --sweep a-sweep`` and look at what changed."""
    shown = tielab("dashboard", "show", "me/tielab", "--sweep", "a-sweep")
    assert shown.returncode == 0
    assert json.loads(shown.stdout) == json.loads(Path(__file__).with_name("dashboard.json").read_text())


def test_it_has_the_panels_and_the_grouping() -> None:
    spec = dashboard.spec("me", "tielab")["spec"]
    drawn = {(p["config"].get("xAxis"), *p["config"].get("metrics", [])) for p in panels(spec)}
    assert ("tokens", "val/bits_per_byte") in drawn
    assert (None, "tokens_per_second.mean") in drawn
    (scatter,) = (p["config"] for p in panels(spec) if p["viewType"] == "Scatter Plot")
    assert scatter["xAxis"] == "summary:parameters.total"
    assert scatter["yAxis"] == "summary:val/bits_per_byte.min"
    assert "Run Comparer" in {panel["viewType"] for panel in panels(spec)}
    assert grouping(spec) == ["run:group", "config:arm.value", "config:device.value"]
    assert spec["section"]["settings"]["useRunsTableGroupingInPanels"]


def test_wandb_workspaces_reads_back_what_it_wrote() -> None:
    made = dashboard.dashboard("me", "tielab", "a-sweep")
    read = type(made)._from_model(made._to_model())
    assert read._spec["spec"] == made._spec["spec"]


def test_publish_saves_it_and_prints_where(tielab: Tielab, server: StandIn) -> None:
    done = tielab("dashboard", "publish", "me/tielab", "--sweep", "a-sweep")
    assert (done.returncode, done.stderr) == (0, "")
    (view,) = server.views.values()
    saved = view.variables
    assert (saved["entityName"], saved["projectName"]) == ("me", "tielab")
    assert saved["displayName"] == "Tied and untied: a-sweep"
    assert done.stdout == f"{server.url}/me/tielab?nw={saved['name'][3:-2]}\n"
    expected = dashboard.spec("me", "tielab", "a-sweep")["spec"]
    assert grouping(view.spec) == grouping(expected)
    assert [p["config"] for p in panels(view.spec)] == [
        {key: value for key, value in p["config"].items() if value is not None} for p in panels(expected)
    ]


def test_publish_to_a_view_replaces_that_one(tielab: Tielab, server: StandIn) -> None:
    url = tielab("dashboard", "publish", "me/tielab").stdout.strip()
    again = tielab("dashboard", "publish", "me/tielab", "--sweep", "a-sweep", "--url", url)
    assert again.stdout.strip() == url
    (view,) = server.views.values()
    assert view.variables["displayName"] == "Tied and untied: a-sweep"
    absent = tielab("dashboard", "publish", "me/tielab", "--url", f"{server.url}/me/tielab?nw=abc")
    assert absent.returncode == 2
    assert absent.stderr.startswith("error: the dashboard was not published: Workspace `abc` not found")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("https://wandb.ai/me/tielab", "is no saved view"),
        ("https://wandb.ai/me/other?nw=abc", "is a view of me/other, not of me/tielab"),
    ],
)
def test_an_address_that_is_none_is_refused(tielab: Tielab, url: str, said: str) -> None:
    done = tielab("dashboard", "publish", "me/tielab", "--url", url)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert said in done.stderr


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({}, "publishing needs a W&B key: run `wandb login`"),
        ({"WANDB_API_KEY": "too-short"}, "the configured W&B key is not one: "),
        ({"WANDB_MODE": ""}, "publishing needs a W&B key: run `wandb login`"),
        ({"WANDB_API_KEY": DUMMY_KEY, "WANDB_MODE": "offline"}, "WANDB_MODE is offline, and publishing"),
    ],
)
def test_publish_without_a_key_or_against_the_mode_is_one_line(
    tielab: Tielab, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], said: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    done = tielab("dashboard", "publish", "me/tielab")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: {said}")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("trouble", [Trouble(silent=True), Trouble(status=403)], ids=["silent", "refuses"])
def test_publish_to_a_bad_server_is_one_line_and_no_hang(
    tielab: Tielab, server: StandIn, monkeypatch: pytest.MonkeyPatch, trouble: Trouble
) -> None:
    monkeypatch.setattr(dashboard, "SERVER_SECONDS", 2.0)
    server.trouble = trouble
    done = tielab("dashboard", "publish", "me/tielab")
    server.stopped.set()
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: the dashboard was not published: ")
    assert done.stderr.count("\n") == 1


def test_without_the_extra_the_command_names_it(tielab: Tielab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb_workspaces", None)
    monkeypatch.setitem(sys.modules, "wandb_workspaces.workspaces", None)
    for command in ("show", "publish"):
        done = tielab("dashboard", command, "me/tielab")
        assert done.returncode == 2
        assert done.stderr == (
            "error: the dashboard needs wandb-workspaces, which is not installed: "
            "pip install 'tielab[wandb]'\n"
        )


def test_a_place_is_entity_and_project(tielab: Tielab) -> None:
    done = tielab("dashboard", "show", "me")
    assert (done.returncode, done.stderr) == (
        2,
        "error: 'me' names no project of W&B; write ENTITY/PROJECT\n",
    )
