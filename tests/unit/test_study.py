"""How a study chooses a learning rate: each cell by its own runs, interior or not at all."""

import math

import pytest

from tielab.checks import _check_study
from tielab.config import config_hash
from tielab.errors import RequestError
from tielab.study import Cell, check_keys, check_phase, leave_study, open_cells, possible_hashes, tune

RATES = [0.5, 1.0, 2.0]


def tuned(loss, seeds=(100, 101), rates=RATES):
    """A cell after the tuning, with the rates of its jobs in the order in which they ran."""
    cell = Cell("cell", ["model.tied=True"], rates, seeds)
    ran = []

    def run(jobs):
        ran.append([job[2].removeprefix("optimizer.learning_rate=") for job in jobs])
        return [loss(float(rate), int(job[1][-1])) for rate, job in zip(ran[-1], jobs, strict=True)]

    tune([cell], run, stopped=lambda: False)
    return cell, ran


def test_the_best_mean_over_the_seeds_is_chosen():
    values = {0.5: (3.0, 3.0), 1.0: (1.0, 2.9), 2.0: (2.0, 2.0), 4.0: (2.5, 2.5)}
    cell, ran = tuned(lambda rate, seed: values[rate][seed])
    assert ran == [["0.5", "0.5", "1.0", "1.0", "2.0", "2.0"]]
    assert cell.curve() == {0.5: 3.0, 1.0: 1.95, 2.0: 2.0}
    assert cell.best == 1.0
    assert cell.is_settled
    assert cell.describe().endswith("mean of 2 seeds: 0.5: 3.0000, 1: 1.9500, 2: 2.0000 -> 1")


def test_a_job_says_what_it_is_for():
    cell = Cell("cell", ["model.tied=True"], RATES, [100])
    assert cell.tune_jobs(0.00075) == [
        ["model.tied=True", "seed=100", "optimizer.learning_rate=0.00075", "study.phase=tune"]
    ]
    assert cell.report_jobs([["seed=0"], ["seed=1"]], 1e-5) == [
        ["model.tied=True", f"seed={seed}", "optimizer.learning_rate=1e-05", "study.phase=report"]
        for seed in (0, 1)
    ]


@pytest.mark.parametrize(("optimum", "more"), [(4.0, ["4.0", "8.0"]), (0.25, ["0.25", "0.125"])])
def test_a_grid_whose_best_is_an_end_is_extended_there(optimum, more, capsys):
    cell, ran = tuned(lambda rate, seed: abs(math.log(rate / optimum)), seeds=[7])
    assert ran == [["0.5", "1.0", "2.0"], *([rate] for rate in more)]
    assert (cell.best, cell.is_settled) == (optimum, True)
    assert f"is an end: {optimum:g} as well" in capsys.readouterr().out


def test_an_optimum_that_does_not_come_into_the_grid_is_not_chosen(capsys):
    cell, ran = tuned(lambda rate, seed: -rate, seeds=[7])
    assert ran[1:] == [["4.0"], ["8.0"], ["16.0"], ["32.0"]]
    assert not cell.is_settled
    assert "NOT chosen: the best, 32, is still an end after 4 more rates; move study.rates" in cell.describe()


def test_a_rate_at_which_one_seed_diverges_is_never_the_best():
    cell, _ = tuned(lambda rate, seed: math.inf if (rate, seed) == (2.0, 1) else 10 - rate)
    assert cell.curve()[2.0] == math.inf
    assert (cell.best, cell.is_settled) == (1.0, True)
    cell, ran = tuned(lambda rate, seed: math.inf)
    assert [rates[0] for rates in ran[1:]] == [
        "0.25",
        "0.125",
        "0.0625",
        "0.03125",
    ]  # down, where it may help
    assert not cell.is_settled


def test_nothing_is_chosen_from_a_grid_with_a_failed_run():
    cell, ran = tuned(lambda rate, seed: None if (rate, seed) == (2.0, 1) else abs(rate - 1))
    assert len(ran) == 1
    assert not cell.is_settled
    assert cell.describe().endswith("not chosen, since runs are missing")


def test_a_sweep_that_was_stopped_begins_nothing_more():
    cell = Cell("cell", [], RATES, [7])
    tune([cell], lambda jobs: [0.0] * len(jobs), stopped=lambda: True)
    assert cell.curve() == {}
    assert not cell.is_settled
    assert cell.describe().endswith("none; not chosen, since runs are missing")


def test_of_equals_the_smaller_rate_is_the_best():
    cell, _ = tuned(lambda rate, seed: 1.0 if rate in (1.0, 2.0) else 2.0)
    assert cell.best == 1.0


def test_all_cells_are_extended_together():
    cells = open_cells(
        [["model.tied=True", "x=1"], ["model.tied=False", "x=1"]], {"rates": RATES, "tune_seeds": [7]}
    )
    assert [cell.name for cell in cells] == ["model.tied=True", "model.tied=False"]
    sizes = []

    def run(jobs):
        sizes.append(len(jobs))
        return [
            abs(float(job[3].partition("=")[2]) - (4.0 if job[0] == "model.tied=True" else 1.0))
            for job in jobs
        ]

    tune(cells, run, stopped=lambda: False)
    assert sizes == [6, 1, 1]
    assert [cell.best for cell in cells] == [4.0, 1.0]


def test_every_job_that_may_come_is_known_beforehand():
    cell, ran = tuned(lambda rate, seed: -rate, seeds=[7])
    assert {float(rate) for rates in ran for rate in rates} <= {*cell.possible_rates()}
    assert len(cell.possible_rates()) == len(RATES) + 8
    config = {"optimizer": {"learning_rate": 3.0}, "study": {"phase": "tune"}}
    hashes = {*possible_hashes([cell], [config])}
    assert config_hash({"optimizer": {"learning_rate": 32.0}, "study": {"phase": "report"}}) in hashes
    assert config["optimizer"]["learning_rate"] == 3.0


@pytest.mark.parametrize(
    "rates",
    [[1.0, 2.0], [1.0, 2.0, 1.5], [1.0, 1.0, 2.0], [1.0, 2.1, 4.0], [0.0, 1.0, 2.0], [1.0, 2.0, math.nan]],
)
def test_what_is_no_grid_is_refused(rates):
    with pytest.raises(RequestError, match="is no grid of learning rates: give at least 3 numbers above 0"):
        _check_study({"rates": rates, "tune_seeds": [1], "tune": "lr", "phase": None})


@pytest.mark.parametrize("seeds", [[], [1, 1], [-1]])
def test_what_are_no_seeds_is_refused(seeds):
    with pytest.raises(RequestError, match="must be one or more different seeds"):
        _check_study({"rates": RATES, "tune_seeds": seeds, "tune": "lr", "phase": None})


def test_a_phase_without_a_study_is_refused():
    with pytest.raises(RequestError, match=r"study\.phase=tune is written by the tool"):
        _check_study({"rates": RATES, "tune_seeds": [1], "tune": None, "phase": "tune"})


def test_keys_that_the_study_sets_cannot_be_asked_for():
    check_keys(["model.tied"], ["model.tied", "seed"])
    for swept, given, message in (
        ([], ["optimizer.learning_rate"], "chooses optimizer.learning_rate itself"),
        (["model.seed"], [], "model.seed cannot be swept"),
        (["study.tune"], [], "study.tune cannot be swept"),
    ):
        with pytest.raises(RequestError) as error:
            check_keys(swept, given)
        assert message in str(error.value)


def test_a_phase_stands_in_the_repeated_run_or_nowhere():
    check_phase([None, "report"], "report")
    for asked, written in ((["tune"], None), (["tune"], "report"), ([None, object()], None)):
        with pytest.raises(RequestError, match=r"study\.phase is written by the tool"):
            check_phase(asked, written)


def test_a_repetition_with_another_value_leaves_the_study():
    def run(**others):
        return {"seed": 0, "output_dir": "outputs", "study": {"tune": "lr", "phase": "report"}, **others}

    same, other = run(output_dir="elsewhere"), run(seed=1)
    for config in (same, other):
        leave_study(config, run())
    assert same["study"] == {"tune": "lr", "phase": "report"}
    assert other["study"] == {"tune": None, "phase": None}
    asked = {"seed": 0, "study": {"tune": "lr", "phase": None}}
    leave_study(asked, {"seed": 1, "study": {"tune": None, "phase": None}})
    assert asked["study"]["tune"] == "lr"
