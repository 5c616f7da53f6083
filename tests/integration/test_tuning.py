"""A study from the command line: tuned on seeds of its own, reported at what was chosen, and resumable."""

import pytest

from tielab.record import read_record

TUNED = (
    "-m", "study.tune=lr", "study.rates=[0.01,0.02,0.04]", "study.tune_seeds=[100]",
    "model.num_heads=1", "~callbacks.best",
)  # fmt: skip
RATE = "optimizer.learning_rate"


def records_of(sweep):
    folders = sorted((path.parent for path in sweep.glob("*/record.json")), key=lambda path: int(path.name))
    return [read_record(folder) for folder in folders]


@pytest.fixture
def the_sweep(tmp_path):
    def find():
        (sweep,) = (tmp_path / "outputs" / "sweeps").iterdir()
        return sweep

    return find


@pytest.mark.slow
def test_each_arm_is_reported_at_its_own_best_rate(main, tielab, tiny, the_sweep, capfd):
    command = (
        *TUNED,
        *tiny,
        "budget.tokens=1024",
        "model.tied=true,false",
        "matching=width,params",
        "resume=true",
    )
    assert main(*command, "seed=0", "on_failure=stop", **{"100": "kill@2"}) == 1
    out, _ = capfd.readouterr()
    assert "1 of 4 jobs are runs that another axis of matching asks for as well" in out
    assert "9 jobs: 1 failed, 8 not begun" in out
    assert "to go on: python train.py -m" in out
    assert "not chosen, since runs are missing" in out
    done = tielab("resume", the_sweep())
    assert done.returncode == 2
    assert "is a study with study.tune=lr; go on with it by its command" in done.stderr

    assert main(*command, "seed=0") == 0
    out, _ = capfd.readouterr()
    records = records_of(the_sweep())
    phases = [record.config["study"]["phase"] for record in records]
    assert phases == sorted(phases, reverse=True)
    reported = [record for record in records if record.config["study"]["phase"] == "report"]
    assert {record.seed for record in records} - {record.seed for record in reported} == {100}
    assert [(r.tied, r.seed, r.matching is None) for r in reported] == [
        (True, 0, True),
        (True, 0, False),
        (False, 0, True),
    ]
    for record in reported:
        rates = {
            r.config["optimizer"]["learning_rate"]: r.validation["bits_per_byte"]
            for r in records
            if r.seed == 100 and (r.tied, r.matching) == (record.tied, record.matching)
        }
        best = min(rates, key=rates.get)
        assert record.config["optimizer"]["learning_rate"] == best
        assert min(rates) < best < max(rates)
        axis = "width" if record.matching is None else "params"
        curve = ", ".join(f"{rate:.4g}: {rates[rate]:.4f}" for rate in sorted(rates))
        assert (
            f"model.tied={record.tied} matching={axis}: bits/byte by {RATE}, mean of 1 seeds: {curve}" in out
        )

    num_tuned = phases.count("tune")
    assert main(*command, "seed=0,1") == 0  # the tuning is there, only the new seed is run
    records = records_of(the_sweep())
    phases = [record.config["study"]["phase"] for record in records]
    assert (phases.count("tune"), phases.count("report")) == (num_tuned, 6)
    assert not any(record.attempts for record in records[num_tuned:])
    check_repetitions(main, the_sweep(), records, capfd)


def check_repetitions(main, sweep, records, capfd):
    """A repetition is of the study as long as it computes the same."""
    number = next(i for i, r in enumerate(records) if r.config["study"]["phase"] == "report")
    where = ("--config-dir", str(sweep / str(number)), "--config-name", "run")
    for i, (override, phase) in enumerate(
        {"trainer=cpu": "report", f"{RATE}=0.5": None, "seed=7": None, "model.tied=false": None}.items()
    ):
        again = sweep.parents[1] / "again" / str(i)
        assert main(*where, override, f"hydra.run.dir={again}", "trainer.num_threads=1") == 0
        study = read_record(again).config["study"]
        assert (study["phase"], study["tune"]) == (phase, phase and "lr")
    swept = sweep.parents[1] / "again" / "sweep"
    assert main("-m", *where, "seed=8", f"hydra.sweep.dir={swept}") == 0
    assert records_of(swept)[0].config["study"]["phase"] is None
    for mode in ((), ("-m",)):
        capfd.readouterr()
        assert main(*mode, *where, "study.phase=tune") == 2
        assert PHASE in capfd.readouterr().err


@pytest.mark.slow
def test_without_an_interior_optimum_no_seed_is_reported(main, tiny, the_sweep, capfd):
    rates = "study.rates=[1e-7,2e-7,4e-7]"
    assert main(*TUNED, *tiny, "budget.tokens=1024", rates, "seed=0,1") == 1
    out, _ = capfd.readouterr()
    assert "all jobs: the best rate, 4e-07, is an end: 8e-07 as well" in out
    assert "NOT chosen: the best, 6.4e-06, is still an end after 4 more rates; move study.rates" in out
    records = records_of(the_sweep())
    assert len(records) == 7
    assert {record.config["study"]["phase"] for record in records} == {"tune"}


PHASE = "study.phase is written by the tool; ask with study.tune=lr"
WRONG = [
    (["seed=0,100"], "seed=100 is one of study.tune_seeds=[100]"),
    ([f"{RATE}=1e-3,2e-3"], "study.tune=lr chooses optimizer.learning_rate itself"),
    ([f"{RATE}=1e-3"], "study.tune=lr chooses optimizer.learning_rate itself"),
    (["model.seed=0,1"], "model.seed cannot be swept with study.tune=lr"),
    (["data.seed=5"], "data.seed=5 differs from seed=0"),
    (["study.rates=[0.1,0.3,0.9]"], "is no grid of learning rates"),
    (["hydra/sweeper=optuna", "model.dropout=interval(0,0.1)"], "drop one of them"),
    (["hydra.sweeper.params={study.phase:report}"], PHASE),
    (["study.phase=report"], PHASE),
    (["study.phase=tune,report"], PHASE),
    (["study.tune=null", "study.phase=tune"], PHASE),
    (["hydra/sweeper=optuna", "model.dropout=interval(0,0.1)", "study.phase=report"], PHASE),
    (["study.tune=null"], "study.rates does nothing where nothing is tuned; add study.tune=lr or drop it"),
    (["study.tune=momentum"], "study.tune: Invalid value 'momentum', expected one of [lr]"),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG)
def test_wrong_studies_are_refused_before_anything_runs(arguments, message, main, tiny, tmp_path, capfd):
    assert main(*TUNED, *tiny, *arguments) == 2
    _, err = capfd.readouterr()
    assert message in err
    assert [line for line in err.splitlines() if line.startswith("error: ")] == err.splitlines()[-1:]
    assert not list(tmp_path.glob("outputs/sweeps/*"))


def test_a_single_run_cannot_be_a_study(main, tiny, capfd):
    assert main(*tiny, "study.tune=lr") == 2
    assert "study.tune=lr trains many runs to choose a rate: add -m" in capfd.readouterr().err
    assert main(*tiny, "study.tune=lr", "study.phase=report") == 2
    assert PHASE in capfd.readouterr().err
