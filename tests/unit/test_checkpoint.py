"""A checkpoint is written whole or not at all, and read only if it is ours."""

import os
import tempfile

import pytest
import torch

from tielab.checkpoint import WholeCheckpointIO, read_checkpoint
from tielab.errors import RequestError


def contents(**identity):
    return {"tielab": {"identity": {"model.tied": True} | identity}, "state_dict": {"a": torch.zeros(1000)}}


def test_round_trip(tmp_path):
    path = tmp_path / "sub" / "a.ckpt"
    WholeCheckpointIO().save_checkpoint(contents(), path)
    read = read_checkpoint(path, {"model.tied": True})
    assert torch.equal(read["state_dict"]["a"], torch.zeros(1000))
    assert [p.name for p in path.parent.iterdir()] == ["a.ckpt"]


def test_a_full_disk_leaves_the_old_one_and_says_so(tmp_path, monkeypatch):
    path = tmp_path / "a.ckpt"
    WholeCheckpointIO().save_checkpoint(contents(), path)
    before = path.read_bytes()
    opened = tmp_path / "temporary"
    opened.touch()
    # A device that is always full, where the temporary file would be.
    monkeypatch.setattr(tempfile, "mkstemp", lambda **_: (os.open("/dev/full", os.O_WRONLY), str(opened)))
    with pytest.raises(OSError, match="No space left"):
        WholeCheckpointIO().save_checkpoint(contents(), path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["a.ckpt"]


def test_another_identity_names_both_values(tmp_path):
    path = tmp_path / "a.ckpt"
    WholeCheckpointIO().save_checkpoint(contents(), path)
    with pytest.raises(
        RequestError, match=r"trained with model\.tied=true, this run asks for model\.tied=false"
    ):
        read_checkpoint(path, {"model.tied": False})


def test_truncated_at_every_length_is_refused(tmp_path):
    path = tmp_path / "a.ckpt"
    WholeCheckpointIO().save_checkpoint(contents(), path)
    whole = path.read_bytes()
    for length in range(0, len(whole), 97):
        path.write_bytes(whole[:length])
        with pytest.raises(RequestError, match="truncated or not a checkpoint") as error:
            read_checkpoint(path, {})
        assert "\n" not in str(error.value)


def test_somebody_elses_file_is_refused(tmp_path):
    path = tmp_path / "a.ckpt"
    torch.save({"state_dict": {}}, path)
    with pytest.raises(RequestError, match="not written by tielab"):
        read_checkpoint(path, {})
    with pytest.raises(RequestError, match="no such file"):
        read_checkpoint(tmp_path / "b.ckpt", {})
