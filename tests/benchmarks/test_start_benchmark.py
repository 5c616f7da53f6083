"""The benchmark of the start reads what imports took, and runs unattended."""

import json

import pytest
from benchmarks.start import FIRST_STEP, QUICK, imports, main


def test_imports_are_summed_by_package(tmp_path):
    errors = tmp_path / "errors"
    errors.write_text(
        "import time: self [us] | cumulative | imported package\n"
        "import time:       500 |        500 |   torch.a\nnoise\n"
        "import time:      1500 |       2000 | torch\nimport time:  100 |  100 | yaml\n"
    )
    assert imports(errors) == (pytest.approx(0.0021), {"torch": 0.002, "yaml": 0.0001})


@pytest.mark.slow
def test_starts_are_measured(tmp_path, cache_dir):
    main(["--quick", "--out", str(tmp_path)])
    rows = {row["command"]: row for row in json.loads((tmp_path / "start.json").read_text())["rows"]}
    assert rows.keys() == {*QUICK, FIRST_STEP}
    assert rows["train.py --help"]["seconds_median"] < rows[FIRST_STEP]["seconds_median"]
    assert "torch" in rows[FIRST_STEP]["most_imported_seconds"]
    assert "torch" not in rows["train.py --help"]["most_imported_seconds"]
