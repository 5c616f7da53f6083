"""A run's folder from a record."""

from pathlib import Path

from tielab.record import RUN_CONFIG_NAME, Record, write_record


def put_run(folder: Path, record: Record | None) -> Path:
    folder.mkdir(parents=True)
    (folder / RUN_CONFIG_NAME).write_text("defaults: []\n")
    if record is not None:
        write_record(folder, record)
    return folder
