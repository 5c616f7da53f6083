"""A run with all diagnostics: its record, its columns, the same weights, and going on where it stopped."""

import json

import pandas as pd
import pytest

from tielab.diagnostics.columns import DIAGNOSTIC_COLUMNS
from tielab.record import read_record


@pytest.mark.parametrize("tied", ["true", "false"])
def test_a_run_with_diagnostics_records_them_and_trains_the_same(tied, main, tiny, tmp_path):
    common = [*tiny, f"model.tied={tied}", "launch=inline"]
    assert main(*common, "output_dir=plain") == 0
    assert main(*common, "output_dir=watched", "callbacks=diagnostics", "~callbacks.row_updates") == 0
    (plain,), (watched,) = (list((tmp_path / name / "runs").iterdir()) for name in ("plain", "watched"))
    one, other = read_record(plain), read_record(watched)
    assert one.diagnostics == {}
    assert other.weights_hash == one.weights_hash
    assert other.validation == one.validation
    assert other.diagnostics.keys() == {
        "path_gradients", "weight_change", "embedding_geometry", "output_statistics", "frequency_loss",
    }  # fmt: skip
    assert 0 < other.diagnostics["path_gradients"]["share_l2"]["mean"] < 1
    assert len(other.diagnostics["frequency_loss"]["target"]["last_by_decile"]) == 10
    json.loads((watched / "record.json").read_text(), parse_constant=lambda text: pytest.fail(text))
    table = pd.read_csv(watched / "metrics.csv")
    assert table["gradient/share_l2"].dropna().between(0, 1).all()
    assert table.loc[table["gradient/share_l2"].notna(), "step"].to_list() == [1, 25, 32]
    assert table.loc[table["output/nll"].notna(), "step"].to_list() == [0, 16, 32]
    own = set(pd.read_csv(plain / "metrics.csv").columns)
    assert set(table.columns) - own <= DIAGNOSTIC_COLUMNS.keys()
    assert not own & DIAGNOSTIC_COLUMNS.keys()
