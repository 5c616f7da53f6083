"""TensorBoard: event files of all runs below one folder, every curve drawn over training tokens.

tensorboard is an extra, so it is imported inside the functions.
"""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tielab.folder import quoted
from tielab.report.arms import arm_name
from tielab.tracking.local import LocalLogger

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

AXES = ("step", "tokens")
"""Columns of metrics.csv that are no curves: every curve is drawn over tokens."""
HPARAM_METRICS = ("val/bits_per_byte", "val/perplexity", "train/loss", "tokens_per_second")
"""Columns of the HParams tab beside the hyper-parameters: the last value of each curve."""


class TensorBoardLogger(LocalLogger):
    """Event files in ``<save_dir>/tensorboard/<group>/<run_id>``, with the metric names of ``metrics.csv``.

    The step of TensorBoard is a whole number and the only axis on which it lays runs over each other. It is
    given the training tokens: runs of different batch sizes are then compared as in W&B and in the report.

    Args:
        group: The sweep: TensorBoard groups runs by their folders alone. None: there is no such folder.
        config: Resolved and nested.
    """

    def __init__(
        self,
        *,
        save_dir: str | Path,
        run_id: str,
        name: str,
        group: str | None,
        job_type: str | None,
        config: dict[str, Any],
        resumed: bool = False,
    ) -> None:
        self._hyper_parameters = hyper_parameters(config)
        self._tokens_per_step = config["data"]["batch_size"] * config["data"]["block_size"]
        self._writer: SummaryWriter | None = None
        super().__init__(Path(save_dir, "tensorboard"), run_id, group, resumed=resumed)

    def prepare(self) -> None:
        """Raise ImportError if tensorboard is missing or broken."""
        import torch.utils.tensorboard  # noqa: F401

    def open(self, first_step: int) -> None:
        """Begin an event file. One that goes on says from where on TensorBoard is to forget earlier ones."""
        from torch.utils.tensorboard import SummaryWriter
        from torch.utils.tensorboard.summary import hparams

        purge = first_step * self._tokens_per_step if self.resumed else None
        self._writer = SummaryWriter(str(self.place), purge_step=purge)
        experiment, session_start, _ = hparams(  # type: ignore[no-untyped-call]
            self._hyper_parameters, dict.fromkeys(HPARAM_METRICS, 0.0)
        )
        self._add(experiment)
        self._add(session_start)

    def write(self, row: dict[str, float], step: int) -> None:
        """Write a row to disk; a crash right after the call cannot lose it."""
        assert self._writer is not None
        tokens = int(row.get("tokens", step * self._tokens_per_step))
        for name in row.keys() - set(AXES):
            # In single precision: the reader that TensorBoard starts by default skips the other.
            self._writer.add_scalar(name, row[name], tokens)
        self._writer.flush()

    def close(self, *, succeeded: bool) -> None:
        """End the event file with the status that the HParams tab shows."""
        assert self._writer is not None
        self._add(_session_end(succeeded))
        self._writer.close()

    def hint(self) -> str:
        """One line: the command that shows the runs of this folder."""
        return f"TensorBoard: view with `tensorboard --logdir {quoted(self.place.parent.resolve())}`"

    def _add(self, summary: Any) -> None:
        assert self._writer is not None
        assert self._writer.file_writer is not None
        self._writer.file_writer.add_summary(summary)


def hyper_parameters(config: dict[str, Any]) -> dict[str, Any]:
    """What tells the runs of most sweeps apart: five, since the HParams tab shows no more at first."""
    model = config["model"]
    return {
        "arm": arm_name(config),
        "vocab_size": model["vocab_size"],
        "width": model["embed_dim"],
        "seed": config["seed"],
        "learning_rate": config["optimizer"]["learning_rate"],
    }


def _session_end(succeeded: bool) -> Any:
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2

    status = api_pb2.STATUS_SUCCESS if succeeded else api_pb2.STATUS_FAILURE
    end = plugin_data_pb2.SessionEndInfo(status=status, end_time_secs=time.time())
    described = metadata.create_summary_metadata(plugin_data_pb2.HParamsPluginData(session_end_info=end))
    return Summary(value=[Summary.Value(tag=metadata.SESSION_END_INFO_TAG, metadata=described)])
