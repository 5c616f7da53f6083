"""The script for one GPU, where there is none: it says so, and rehearses everything on the CPU."""

import json
import subprocess
import sys

import pytest
import torch

from benchmarks import gpu
from running import ROOT

NANOGPT = '''
from dataclasses import dataclass
import torch
from torch import nn

@dataclass
class GPTConfig:
    block_size: int = 1
    vocab_size: int = 1
    n_layer: int = 1
    n_head: int = 1
    n_embd: int = 1
    dropout: float = 0.0
    bias: bool = True

class GPT(nn.Module):
    """As nanoGPT is called: logits and loss."""
    def __init__(self, config):
        super().__init__()
        self.embed = nn.Embedding(config.vocab_size, config.n_embd)
        self.head = nn.Linear(config.n_embd, config.vocab_size)
    def forward(self, input_ids, targets):
        logits = self.head(self.embed(input_ids))
        return logits, nn.functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())
'''


def test_a_rehearsal_runs_every_part_and_writes_no_figure_of_a_gpu(tmp_path):
    (tmp_path / "model.py").write_text(NANOGPT)
    script, folders = ROOT / "benchmarks" / "gpu.sh", ("--nanogpt", tmp_path, "--out", tmp_path)
    done = subprocess.run(
        ["bash", script, "--cpu", "--quick", *folders],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("a rehearsal on the CPU: nothing of a GPU is measured")
    assert not (tmp_path / "gpu.json").exists()
    result = json.loads((tmp_path / "gpu_rehearsal.json").read_text())
    assert result["conditions"]["is_of_a_gpu"] is False
    parts = {
        part: [row for row in result["rows"] if row["part"] == part] for part in ("step", "head", "jobs")
    }
    assert {row["arm"] for row in parts["step"]} >= {"ours", "nanoGPT"}
    assert {row["head"] for row in parts["head"]} >= {"logits", "ours"}
    assert [(row["jobs_at_a_time"], row["jobs"]) for row in parts["jobs"]] == [(2, 2)]
    assert all(row["share_of_product"]["n"] == 2 for row in parts["step"])


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is there")
def test_without_a_gpu_nothing_is_measured(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["gpu", "--out", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        gpu.main()
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("no GPU found on this machine, nothing was measured")
    assert list(tmp_path.iterdir()) == []
