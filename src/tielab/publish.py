"""A study's evidence: runs, tables and figures, copied out of ``outputs/`` so that they can be committed.

``STUDY/README.md`` and the definition ``STUDY.yaml`` are a person's; everything else in the folder is made
here, from records alone. Imports no torch.
"""

import copy
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tielab.config import lookup
from tielab.errors import RequestError
from tielab.folder import read_run_config, run_yaml
from tielab.record import METRICS_NAME, RECORD_NAME, RUN_CONFIG_NAME, Record, write_atomic, write_record
from tielab.sweep import MANIFEST_NAME, identity_of, read_sweep

if TYPE_CHECKING:
    from tielab.report.collect import CollectedRun
    from tielab.report.compare import Comparison

RUNS_NAME = "runs"
FIGURES_NAME = "figures"
RESULTS_NAME = "RESULTS.md"
OWNED_NAMES = (
    RESULTS_NAME, "results.csv", "comparison.csv", "diagnostics.csv", RUNS_NAME, FIGURES_NAME,
)  # fmt: skip
"""What a publication writes into a study's folder, or removes if it has no such part."""
PORTABLE_VALUES = {
    "output_dir": "outputs",
    "data.cache_dir": ".cache/tielab",
    "logger.wandb.save_dir": "outputs",
    "logger.tensorboard.save_dir": "outputs",
    "logger.trackio.save_dir": "outputs",
    "resume_from": None,
}
"""Keys that lead into one machine's folders, with what a published run has there; none changes a result."""


def publish(folders: list[Path], study: Path, baseline: str | None = None) -> None:
    """Write the runs below some folders into a study's folder, with their tables and figures.

    What an earlier publication wrote is replaced as a whole, once the new one is complete.

    Args:
        folders: of sweeps or runs.
        study: has a README.md; its definition STUDY.yaml lies beside it.
        baseline: the arm that the others are compared with, as in ``tielab report``.

    Raises:
        RequestError: the study has no README.md or no definition, a sweep is not of this study, or a run has
            not begun, has not ended or cannot be read.
    """
    _check_study(study)
    for folder in folders:
        _check_request(folder, study)
    runs = _ended_runs(folders)
    with tempfile.TemporaryDirectory(dir=study.parent, prefix=f".{study.name}.") as name:
        fresh = Path(name)
        _copy_runs(runs, fresh / RUNS_NAME)
        _write_results(fresh, study, baseline)
        for owned in OWNED_NAMES:
            _replace(study / owned, fresh / owned)


def _check_study(study: Path) -> None:
    for path in (study / "README.md", study.with_suffix(".yaml")):
        if not path.is_file():
            raise RequestError(
                f"{path} is missing: a study has its question, prediction and decision rule in README.md, "
                "and its definition beside its folder, before it is run"
            )


def _check_request(folder: Path, study: Path) -> None:
    """Raise RequestError unless a folder holds the study's own runs, or a sweep of nothing but the study."""
    if folder.resolve() == (study / RUNS_NAME).resolve():
        return
    asked = [identity_of(request) for request in read_sweep(folder).requests]
    wanted = f"experiments={study.name}"
    if asked != [[wanted]]:
        found = "; ".join(" ".join(request) or "the defaults" for request in asked)
        raise RequestError(
            f"{folder} was asked for with {found}, a study is the sweep of {wanted} as it is defined; "
            "change the definition, or publish it as a study of its own"
        )


def _ended_runs(folders: list[Path]) -> list["CollectedRun"]:
    """Every run below the folders.

    Raises:
        RequestError: one of them has not begun, has not ended or cannot be read.
    """
    from tielab.report.collect import collect_runs

    runs, unreadable = collect_runs(folders)
    states = [(run.folder, f"is {run.record.status}") for run in runs]
    wrong = [(path, state) for path, state in states if state not in ("is finished", "is failed")]
    wrong += [(run.folder, f"cannot be read ({run.reason})") for run in unreadable]
    wrong += [(path, "has not begun") for path in _not_begun(folders)]
    if wrong:
        path, state = wrong[0]
        raise RequestError(f"{path} {state}: a study is published when all its runs have ended")
    return runs


def _not_begun(folders: list[Path]) -> Iterator[Path]:
    """The jobs of the sweeps below the folders that have no record."""
    for manifest in (path for folder in folders for path in sorted(folder.rglob(MANIFEST_NAME))):
        sweep = read_sweep(manifest.parent)
        yield from (sweep.path(job) for job in sweep.jobs if not (sweep.path(job) / RECORD_NAME).is_file())


def _replace(old: Path, new: Path) -> None:
    """Put ``new`` in the place of ``old``; where there is no new one, remove the old one."""
    if old.is_dir():
        shutil.rmtree(old)
    else:
        old.unlink(missing_ok=True)
    if new.exists():
        new.rename(old)


def _copy_runs(runs: list["CollectedRun"], place: Path) -> None:
    """Each run as a folder of its number: config, record and curves, without what names a machine."""
    for number, run in enumerate(runs):
        folder = place / f"{number:03d}"
        folder.mkdir(parents=True)
        config = portable_config(read_run_config(run.folder))
        write_atomic(folder / RUN_CONFIG_NAME, run_yaml(config))
        write_record(folder, portable_record(run.record))
        if (run.folder / METRICS_NAME).is_file():
            shutil.copyfile(run.folder / METRICS_NAME, folder / METRICS_NAME)


def portable_config(config: dict[str, Any]) -> dict[str, Any]:
    """A copy of a run's config whose folders are the default ones; it computes the same."""
    copied = copy.deepcopy(config)
    for key, value in PORTABLE_VALUES.items():
        parent, _, leaf = key.rpartition(".")
        try:
            node = lookup(copied, parent) if parent else copied
        except KeyError:
            continue
        if leaf in node:
            node[leaf] = value
    return copied


def portable_record(record: Record) -> Record:
    """A copy of a record without host, process and traceback, its config as ``portable_config``."""
    error = None if record.error is None else {**record.error, "traceback": ""}
    attempts = [{**attempt, "host": None, "error": None} for attempt in record.attempts]
    return replace(
        record,
        config=portable_config(record.config),
        host=None,
        process_id=None,
        error=error,
        attempts=attempts,
    )


def _write_results(fresh: Path, study: Path, baseline: str | None) -> None:
    from tielab.report.collect import collect_runs
    from tielab.report.compare import compare
    from tielab.report.figures import write_figures

    comparison = compare(collect_runs([fresh / RUNS_NAME]), baseline)
    figures = write_figures(comparison, fresh / FIGURES_NAME)
    drawn = sorted(path.name for path in figures if path.suffix == ".svg")
    for name, text in results(comparison, fresh, study.name, baseline, drawn).items():
        write_atomic(fresh / name, text)


def results(
    comparison: "Comparison", place: Path, name: str, baseline: str | None, figures: list[str]
) -> dict[str, str]:
    """The files of a study that hold its numbers, by name: functions of the records alone.

    Args:
        place: the folder that holds ``runs/``.
        figures: names of the files in ``figures/`` that the page shows.
    """
    from tielab.report.render import to_csv
    from tielab.report.runs import runs_table

    table = runs_table(comparison)
    table["folder"] = [str(Path(folder).relative_to(place)) for folder in table["folder"]]
    files = {
        "results.csv": table.to_csv(index=False),
        "comparison.csv": to_csv(comparison),
        RESULTS_NAME: results_text(comparison, name, baseline, figures),
    }
    diagnostics = diagnostics_csv(comparison)
    return files if diagnostics is None else files | {"diagnostics.csv": diagnostics}


def diagnostics_csv(comparison: "Comparison") -> str | None:
    """Every number that the diagnostics measured, a row per setting, arm and quantity; None without any."""
    import pandas as pd

    from tielab.report.plots.diagnostics import measured

    rows = [
        {"diagnostic": name, "quantity": quantity, "setting": setting, "arm": arm}
        | {"n": spread.n, "mean": spread.mean, "sd": spread.sd}
        for (name, quantity, setting), arms in measured(comparison.groups).scalars.items()
        for arm, spread in arms.items()
    ]
    return pd.DataFrame(rows).to_csv(index=False) if rows else None


def results_text(comparison: "Comparison", name: str, baseline: str | None, figures: list[str]) -> str:
    """RESULTS.md: what was run with which code and where, the comparison, the figures, and the commands."""
    from tielab.report.render import to_markdown

    option = "" if baseline is None else f' --baseline "{baseline}"'
    records = [run.record for run, _ in comparison.runs]
    conditions = "; ".join(f"{what} {', '.join(values)}" for what, values in _conditions(records).items())
    commands = [
        f"python train.py experiments={name}",
        f"tielab publish outputs/sweeps/SWEEP experiments/{name}{option}",
        f"tielab report experiments/{name}{option}",
    ]
    parts = [
        f"# Results of {name}",
        "Made by `tielab publish`; question, prediction and decision rule are in [README.md](README.md).",
        f"Train its {len(records)} runs, write this page from them, print its table from the records here:",
        "\n".join(["```", *commands, "```"]),
        f"Conditions: {conditions}. Other work on the machine is in tokens/s and memory.",
        to_markdown(comparison).rstrip(),
        *(f"![{Path(figure).stem.replace('_', ' ')}]({FIGURES_NAME}/{figure})" for figure in figures),
    ]
    return "\n\n".join(parts) + "\n"


def _conditions(records: list[Record]) -> dict[str, list[str]]:
    found: dict[str, list[Any]] = {
        "commit": [record.commit and record.commit[:10] for record in records],
        "code": [record.code_hash for record in records],
        "torch": [record.versions.get("torch") for record in records],
        "device": [record.device for record in records],
        "threads": [record.num_threads for record in records],
    }
    return {what: sorted({str(v) for v in values if v is not None}) for what, values in found.items()}
