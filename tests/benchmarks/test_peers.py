"""The comparison with peers runs with whatever of them is there, and says what is not."""

import json

import pytest
from benchmarks.arms import Arm
from benchmarks.peers import choose_modes

from benchmarks import peers


@pytest.mark.slow
def test_tielab_alone(tmp_path, cache_dir, capsys):
    peers.main(["--quick", "--only", "tielab,nanoGPT", "--out", str(tmp_path)])
    result = json.loads((tmp_path / "peers.json").read_text(encoding="utf-8"))
    (row,) = result["rows"]
    assert row["tool"] == "tielab"
    assert row["tokens_per_second"]["median"] > 0
    assert row["tielab_over_it"]["median"] == 1
    assert "nanoGPT: left out; to have it: git clone" in capsys.readouterr().err


class Stage:
    """Rates by turn of started arms; None: it dies in that turn."""

    def __init__(self, rates):
        self.rates = rates
        self.turns = []

    @property
    def arms(self):
        return list(self.rates)

    def rate(self, arm):
        self.turns.append(arm.name)
        rate = self.rates[arm].pop(0)
        if rate is None:
            self.end(arm)
        return rate

    def end(self, arm):
        del self.rates[arm]


def test_the_better_mode_is_that_of_two_turns_each_and_a_dead_one_is_none():
    eager, compiled = (Arm("nanoGPT", mode) for mode in ("eager", "compiled"))
    fragile, sturdy = (Arm("litgpt", mode) for mode in ("eager", "compiled"))
    stage = Stage({eager: [10.0, 4.0], compiled: [9.0, 9.0], fragile: [None], sturdy: [3.0, 5.0]})
    found = choose_modes(stage)
    assert found == {"nanoGPT": {"eager": 7.0, "compiled": 9.0}, "litgpt": {"compiled": 4.0}}
    assert stage.arms == [compiled, sturdy]
    assert stage.turns[:4] == [f"nanoGPT, {mode}" for mode in ("eager", "compiled", "compiled", "eager")]


def test_an_unknown_tool_is_refused(capsys):
    with pytest.raises(SystemExit):
        peers.parse(["--only", "tielab,megatron"])
    assert "there is no megatron" in capsys.readouterr().err
