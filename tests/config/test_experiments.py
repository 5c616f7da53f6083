"""Every study can be run, says its question first, and its tables are what its records give."""

import re

import pytest
from hydra import compose, initialize_config_dir

from running import ROOT, config_of
from tielab.checks import check_config
from tielab.publish import RESULTS_NAME, RUNS_NAME, results

EXPERIMENTS = ROOT / "experiments"
STUDIES = sorted(path.stem for path in EXPERIMENTS.glob("*.yaml") if not path.stem.startswith("_"))
PUBLISHED = sorted(path.parent.name for path in EXPERIMENTS.glob(f"*/{RESULTS_NAME}"))


def read(name, file="README.md"):
    return (EXPERIMENTS / name / file).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_composes_and_smoke_shrinks_it(name):
    config = config_of(f"experiments={name}", "budget=smoke")
    check_config(config)
    assert config["budget"]["tokens"] == 65536
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        whole = compose("config", overrides=[f"experiments={name}"], return_hydra_config=True)
    assert whole.hydra.sweeper.params


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_says_question_prediction_and_rule(name):
    text = re.sub(r"\s+", " ", read(name)).lower()
    for part in ("question", "prediction", "decision rule"):
        assert part in text, part
    assert "**held fixed.**" in text


def test_the_index_lists_every_study_and_nothing_else():
    listed = re.findall(r"^\| \[(\w+)\]\((\w+)/README\.md\) \| \S", read("."), flags=re.MULTILINE)
    assert sorted(first for first, _ in listed) == STUDIES == sorted(second for _, second in listed)


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_tables_are_what_the_records_give(name):
    from tielab.report.collect import collect_runs
    from tielab.report.compare import compare

    study, page = EXPERIMENTS / name, read(name, RESULTS_NAME)
    baseline = re.search(rf'tielab report experiments/{name} --baseline "(.+)"', page)
    comparison = compare(collect_runs([study / RUNS_NAME]), baseline[1] if baseline else None)
    figures = sorted(path.name for path in study.glob("figures/*.svg"))
    for file, text in results(comparison, study, name, baseline[1] if baseline else None, figures).items():
        assert read(name, file) == text, file


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_numbers_of_a_verdict_are_in_the_results(name):
    """Each is a number of the results, rounded, or one of the prediction or the rule."""
    before, _, verdict = read(name).partition("**Verdict.**")
    assert verdict, "a published study has a verdict"
    files = [path for path in (EXPERIMENTS / name).iterdir() if path.suffix in (".md", ".csv", ".txt")]
    texts = [before, *(read(name, path.name) for path in files if path.name != "README.md")]
    found = [float(number) for text in texts for number in re.findall(r"\d+\.\d+", text)]
    for number in re.findall(r"\d+\.\d{2,}", verdict.partition("**A first attempt**")[0]):
        decimals = len(number.partition(".")[2])
        assert any(f"{one:.{decimals}f}" == number for one in found), f"{number} is in no file of results"
