"""The comparison with peers runs with whatever of them is there, and says what is not."""

import json

import pytest

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


def test_an_unknown_tool_is_refused(capsys):
    with pytest.raises(SystemExit):
        peers.parse(["--only", "tielab,megatron"])
    assert "there is no megatron" in capsys.readouterr().err
