"""Two real processes: counted, in one folder per job, with the losses of one process."""

import os
import subprocess
import sys

import pandas as pd
import pytest

from running import ROOT, config_of
from runs import execute_run
from tielab.record import Record, read_record, write_record

pytestmark = pytest.mark.distributed


def losses(folder):
    table = pd.read_csv(folder / "metrics.csv", float_precision="round_trip")
    return table["train/loss"].dropna().to_list(), table["val/loss"].dropna().to_list()


def test_sweep_over_process_counts_tells_the_truth(train, tiny, tmp_path):
    """In one process this sweep would report two processes and have run one on half the data."""
    done = train(
        "-m", *tiny, "trainer=ddp_cpu", "trainer.devices=1,2", "model.tied=true,false", "model.dropout=0.0"
    )
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "outputs" / "sweeps").iterdir()
    assert sorted(p.name for p in folder.iterdir() if p.is_dir()) == ["0", "1", "2", "3"]
    for one, two in (("0", "2"), ("1", "3")):
        a, b = read_record(folder / one), read_record(folder / two)
        assert (a.num_processes, b.num_processes) == (1, 2)
        assert a.tied == b.tied == b.tie_observed
        assert a.tokens_seen == b.tokens_seen == 4096
        assert a.parameters == b.parameters
        assert a.batch_hash == b.batch_hash
        assert a.validation["num_tokens"] == b.validation["num_tokens"]
        assert a.validation["num_bytes"] == b.validation["num_bytes"]
        for first, second in zip(losses(folder / one), losses(folder / two), strict=True):
            assert first == pytest.approx(second, abs=1e-5)


def test_accumulation_over_two_processes_gives_the_same_losses(tiny, tmp_path):
    plain, two = tmp_path / "plain", ("trainer.devices=2", "trainer.accumulate_grad_batches=2")
    assert execute_run(plain, *tiny).num_steps == 32
    for trainer in ("ddp_cpu", "fsdp_cpu"):
        assert execute_run(tmp_path / trainer, *tiny, f"trainer={trainer}", *two).num_steps == 32
        assert losses(plain)[0] == pytest.approx(losses(tmp_path / trainer)[0], abs=1e-5)


def test_two_nodes(train, tiny, tmp_path):
    """Two launches that meet at one address, as on two machines."""
    from tielab.processes import port_of_ones_own

    missing = train(*tiny, "trainer=ddp_cpu", "trainer.num_nodes=2")
    assert missing.returncode == 2
    assert "MASTER_ADDR, MASTER_PORT, NODE_RANK" in missing.stderr
    command = [sys.executable, str(ROOT / "train.py"), *tiny, "trainer=ddp_cpu", "trainer.num_nodes=2"]
    with port_of_ones_own() as port:
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        nodes = [
            subprocess.Popen(
                [*command, f"output_dir=node{rank}"],
                cwd=tmp_path,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                env={**os.environ, **meeting, "NODE_RANK": str(rank)},
            )
            for rank in range(2)
        ]
        printed = [node.communicate(timeout=120)[0] for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], printed
    record = read_record(max((tmp_path / "node0" / "runs").iterdir()))
    assert record.num_processes == 2
    assert not list(tmp_path.glob("node1/runs/*/record.json"))  # one record a run


ABORTS_AT_THE_END = """\
import os, sys

class Aborts:
    __del__ = lambda self, abort=os.abort: abort()

if "tielab.experiment" in sys.orig_argv[1:4] and "-m" in sys.orig_argv[1:3]:
    sys.held = Aborts()
"""


@pytest.mark.parametrize(
    ("launch", "trainer"), [("spawn", "ddp_cpu"), ("spawn", "fsdp_cpu"), ("torchrun", "fsdp_cpu")]
)
def test_other_ways_to_start(launch, trainer, train, tiny, tmp_path, monkeypatch):
    """Without the end of the interpreter, at which gloo's threads have aborted a finished run."""
    (tmp_path / "sitecustomize.py").write_text(ABORTS_AT_THE_END)
    path = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))
    done = train(*tiny, f"launch={launch}", f"trainer={trainer}", "trainer.devices=2")
    assert done.returncode == 0, done.stderr
    assert read_record(next((tmp_path / "outputs" / "runs").iterdir())).num_processes == 2


def test_inline(train, tiny, tmp_path):
    done = train(*tiny, "launch=inline")
    assert done.returncode == 0, done.stderr
    assert read_record(next((tmp_path / "outputs" / "runs").iterdir())).finished


def test_the_error_of_a_process_without_record_is_the_records(tiny, tmp_path, cache_dir):
    """The first process waits in a collective when another one fails: it cannot say why."""
    import json

    from tielab.folder import reserve
    from tielab.run import execute, first_record

    config = config_of(*tiny, "trainer=ddp_cpu", "trainer.devices=2")
    folder = tmp_path / "run"
    reserve(config, folder)
    write_record(folder, first_record(config))
    (folder / "run.rank1.log").mkdir()  # the second process dies before it can say anything
    assert "status 1" in execute(config, folder).error["message"]
    assert read_record(folder).status == "failed"
    (folder / "metrics.csv").unlink(missing_ok=True)  # the first one may have come as far as that
    said = {"type": "ValueError", "message": "on the second", "traceback": "..."}
    (folder / "error.rank1.json").write_text(json.dumps(said))
    write_record(folder, Record(**{**vars(read_record(folder)), "status": "running", "error": None}))
    assert execute(config, folder).error == said
