"""What ``wandb sweep`` and ``wandb agent`` ask beside what a run asks: a grid, handed out in order."""

import contextlib
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from wandb_server import ENTITY, StandIn, serve


@dataclass
class Sweep:
    """A sweep as it was asked for, and the runs that an agent was told to begin."""

    config: dict[str, Any]
    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Run id to parameters."""

    def grid(self) -> list[dict[str, Any]]:
        names = list(self.config["parameters"])
        values = [self.config["parameters"][name]["values"] for name in names]
        return [dict(zip(names, chosen, strict=True)) for chosen in itertools.product(*values)]


class Sweeps:
    """Answers for sweeps in front of a stand-in, which answers the rest."""

    def __init__(self, stand_in: StandIn) -> None:
        self.sweeps: dict[str, Sweep] = {}
        self._rest = stand_in.answer
        stand_in.answer = self.answer  # type: ignore[method-assign]

    def answer(self, operation: str, variables: dict[str, Any]) -> dict[str, Any] | None:
        method = getattr(self, f"on_{operation}", None)
        return self._rest(operation, variables) if method is None else method(variables)

    def on_UpsertSweep(self, variables: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        sweep_id = f"sweep{len(self.sweeps)}"
        self.sweeps[sweep_id] = Sweep(yaml.safe_load(variables["config"]))
        entity = {"id": "e1", "name": variables["entityName"] or ENTITY}
        project = {"id": "p1", "name": variables["projectName"], "entity": entity}
        return {
            "upsertSweep": {"sweep": {"name": sweep_id, "project": project}, "configValidationWarnings": []}
        }

    def on_SweepWithRuns(self, variables: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        sweep_id = variables["sweep"]
        config = yaml.safe_dump(self.sweeps[sweep_id].config)
        found = {"id": sweep_id, "name": sweep_id, "config": config, "runs": {"edges": []}}
        return {"project": {"sweep": found}}

    def on_CreateAgent(self, variables: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        return {"createAgent": {"agent": {"id": variables["sweep"]}}}

    def on_Heartbeat(self, variables: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        """The next job once the agent runs none, and the end after the last."""
        sweep = self.sweeps[variables["id"]]
        commands = [] if json.loads(variables["runState"]) else [self._next(sweep)]
        return {"agentHeartbeat": {"agent": {"id": variables["id"]}, "commands": json.dumps(commands)}}

    def _next(self, sweep: Sweep) -> dict[str, Any]:
        left = sweep.grid()[len(sweep.jobs) :]
        if not left:
            return {"type": "exit"}
        run_id = f"job{len(sweep.jobs)}"
        sweep.jobs[run_id] = left[0]
        arguments = {name: {"value": value} for name, value in left[0].items()}
        return {"type": "run", "run_id": run_id, "program": sweep.config["program"], "args": arguments}


@contextlib.contextmanager
def serve_sweeps() -> Iterator[tuple[StandIn, Sweeps]]:
    """A running stand-in that knows sweeps as well."""
    with serve() as stand_in:
        yield stand_in, Sweeps(stand_in)
