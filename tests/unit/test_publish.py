"""What a study's folder gets: runs without a machine's name, and files that are functions of the records."""

import json

import pytest
import yaml

from report_records import make_config, make_record
from tielab.config import config_hash
from tielab.errors import RequestError
from tielab.publish import RESULTS_NAME, portable_config, portable_record, publish
from tielab.record import read_record, write_record
from tielab.report.wording import two_arms
from tielab.sweep import add_jobs, begin_sweep


@pytest.fixture
def study(tmp_path):
    """A study with its README and definition, not published yet."""
    folder = tmp_path / "experiments" / "epochs"
    folder.mkdir(parents=True)
    (folder / "README.md").write_text("# Epochs\n")
    folder.with_suffix(".yaml").write_text("# @package _global_\n")
    return folder


@pytest.fixture
def sweep(tmp_path):
    """Two arms with two seeds each, as a machine of somebody left them."""
    bits = {(True, 0): 2.0, (False, 0): 1.5, (True, 1): 2.25, (False, 1): 1.5}
    records = [make_record(tied=tied, seed=seed, bits_per_byte=value) for (tied, seed), value in bits.items()]
    for record in records:
        record.host, record.process_id = "somebodys-laptop", 42
        record.config |= {"output_dir": "/home/somebody/outputs", "resume": False}
        record.config["data"]["cache_dir"] = "/home/somebody/.cache"
    begun = begin_sweep(tmp_path / "sweep", ["experiments=epochs", "parallel_jobs=2"])
    for job, record in zip(
        add_jobs(begun, [([], record.config) for record in records]), records, strict=True
    ):
        write_record(begun.path(job), record)
    return begun.folder


def test_a_study_holds_its_runs_tables_and_figures(sweep, study):
    publish([sweep], study)
    found = {path.name for path in study.iterdir()}
    assert found == {"README.md", RESULTS_NAME, "results.csv", "comparison.csv", "runs", "figures"}
    assert len(list(study.glob("runs/*/record.json"))) == len(list(study.glob("runs/*/run.yaml"))) == 4
    page = (study / RESULTS_NAME).read_text()
    # (2 - 1.5 + 2.25 - 1.5) / 2
    assert f"{two_arms('tied', 'untied')} = +0.6250 bits/byte" in page
    assert "python train.py experiments=epochs" in page
    assert all(f"](figures/{path.name})" in page for path in study.glob("figures/*.svg"))
    assert any(study.glob("figures/*.svg"))


def test_nothing_names_a_machine(sweep, study):
    publish([sweep], study)
    for path in study.rglob("*"):
        if path.suffix in (".json", ".yaml", ".csv", ".md"):
            assert "somebody" not in path.read_text(), path
    assert {read_record(path.parent).process_id for path in study.rglob("record.json")} == {None}


def test_published_twice_is_the_same_and_leaves_what_a_person_wrote(sweep, study):
    publish([sweep], study)
    (study / "alignment.csv").write_text("mine\n")
    first = {path: path.read_bytes() for path in study.rglob("*") if path.is_file()}
    publish([study / "runs"], study)
    assert {path: path.read_bytes() for path in study.rglob("*") if path.is_file()} == first


def test_a_published_config_computes_the_same():
    config = make_config(tied=True, seed=0)
    config |= {"output_dir": "/home/somebody/outputs", "resume_from": "/a.ckpt"}
    portable = portable_config(config)
    assert config_hash(portable) == config_hash(config)
    assert config["output_dir"] == "/home/somebody/outputs"
    assert (portable["output_dir"], portable["resume_from"]) == ("outputs", None)


def test_a_traceback_stays_at_home():
    record = make_record(status="failed")
    record.error = {"type": "ValueError", "message": "no", "traceback": "File /home/somebody/x.py"}
    assert portable_record(record).error == {"type": "ValueError", "message": "no", "traceback": ""}


def test_a_run_that_goes_on_is_not_published(sweep, study):
    path = sweep / "0" / "record.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "status": "running"}))
    with pytest.raises(RequestError, match=r"sweep/0 is running"):
        publish([sweep], study)
    assert not (study / "runs").exists()


def test_a_run_that_cannot_be_read_is_not_left_out(sweep, study):
    (sweep / "2" / "record.json").write_text("{")
    with pytest.raises(RequestError, match=r"sweep/2.*published"):
        publish([sweep], study)
    assert not (study / "runs").exists()


def test_a_job_that_has_not_begun_is_not_left_out(sweep, study):
    jobs = [{"name": str(job), "overrides": [], "config_hash": "x"} for job in range(6)]
    lines = [{"request": ["experiments=epochs"]}, *jobs]
    (sweep / "sweep.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(RequestError, match=r"sweep/4 has not begun"):
        publish([sweep], study)
    assert not (study / "runs").exists()
    (sweep / "sweep.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines[:5]))
    publish([sweep], study)


def test_nothing_of_an_earlier_publication_stays(sweep, study):
    for name in ("diagnostics.csv", "results.csv", "figures/old.svg", "runs/007/record.json"):
        (study / name).parent.mkdir(parents=True, exist_ok=True)
        (study / name).write_text("of the first\n")
    publish([sweep], study)
    assert not (study / "diagnostics.csv").exists()
    assert not list(study.glob("figures/old.svg")) + list(study.glob("runs/007"))
    assert "of the first" not in (study / "results.csv").read_text()
    (sweep / "0" / "record.json").write_text("{")
    before = {path: path.read_bytes() for path in study.rglob("*") if path.is_file()}
    with pytest.raises(RequestError):
        publish([sweep], study)
    assert {path: path.read_bytes() for path in study.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    "asked", [["tying=tied,untied"], ["experiments=controls"], ["experiments=epochs", "budget=smoke"]]
)
def test_another_sweep_is_not_published_as_the_study(sweep, study, asked):
    manifest = sweep / "sweep.jsonl"
    entries = [json.loads(line) for line in manifest.read_text().splitlines()]
    entries[0]["request"] = asked
    manifest.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    with pytest.raises(RequestError, match=f"was asked for with .*{asked[-1]}.*, a study is the sweep of"):
        publish([sweep], study)
    assert not (study / "runs").exists()


@pytest.mark.parametrize("name", ["README.md", "../epochs.yaml"])
def test_a_study_has_its_question_first(sweep, study, name):
    (study / name).unlink()
    with pytest.raises(RequestError, match="is missing: a study has its question"):
        publish([sweep], study)


def test_the_copy_is_a_config_that_can_be_run(sweep, study):
    publish([sweep], study)
    config = yaml.safe_load((study / "runs" / "000" / "run.yaml").read_text())
    assert config["defaults"][0] == "tielab_schema"
    assert config["data"]["cache_dir"] == ".cache/tielab"
