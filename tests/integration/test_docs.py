"""The site builds without a warning and loads nothing from elsewhere; its generated parts are complete."""

import dataclasses
import html
import importlib.util
import re

import pytest
import yaml

from running import ROOT, config_of
from tielab import record, schema
from tielab.cli import COMMANDS
from tielab.config import known_keys
from tielab.diagnostics.columns import BY_FREQUENCY, OF_GROUPS, OVERALL
from tielab.report import runs, table
from tielab.tracking.metrics_csv import METRIC_COLUMNS
from tielab.tracking.wandb import RECORD_SUMMARY, SUMMARIES

DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def reference():
    """The generator, which is no module of the package."""
    spec = importlib.util.spec_from_file_location("reference", DOCS / "reference.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def config_page(reference):
    return reference.config_keys()


def leaf_keys():
    keys = known_keys()
    return [key for key in keys if not any(other.startswith(f"{key}.") for other in keys)]


def row_of(page, name):
    """The cells of a table's one row whose first is a name, with its type if the table tells that."""
    rows = [line.split("|")[1:-1] for line in page.splitlines() if line.startswith("| <code>")]
    rows = [[html.unescape(cell.strip()) for cell in row] for row in rows]
    (row,) = [row for row in rows if row[0].split("<br>")[0] == f"<code>{name}</code>"]
    return row


@pytest.mark.parametrize("key", leaf_keys())
def test_every_key_of_the_config_has_a_type_and_a_meaning(key, config_page):
    first, _, meaning = row_of(config_page, key)
    assert first.split("<br>")[1]
    assert len(meaning) > 5


def test_a_key_has_the_default_of_the_config(config_page):
    assert row_of(config_page, "optimizer.learning_rate")[1] == "<code>0.003</code>"
    assert row_of(config_page, "model.vocab_size")[0] == "<code>model.vocab_size</code><br>int | null"
    assert row_of(config_page, "model.vocab_size")[1] == "<code>${data.tokenizer.vocab_size}</code>"
    assert row_of(config_page, "data.corpus")[1] == f"<code>{config_of()['data']['corpus']}</code>"


def test_every_option_of_every_group_is_there(reference):
    page = reference.config_options()
    for path in (ROOT / "conf").rglob("*.yaml"):
        group = path.parent.relative_to(ROOT / "conf")
        if path.stem.startswith("_") or str(group) == "." or group.parts[0] == "experiments":
            continue
        section = page.split(f"## {group}\n")[1].split("\n## ")[0]
        assert row_of(section, path.stem), path


def test_every_command_is_there_with_its_options(reference):
    page = reference.commands()
    assert re.findall(r"^## tielab (\w+)$", page, flags=re.MULTILINE) == list(COMMANDS)
    assert "--runs-csv" in page
    assert "Usage: tielab report" in page


def test_every_field_of_the_record_has_a_meaning(reference):
    page = reference.record_fields()
    for section in (record.Record, record.Validation, record.Throughput, record.Attempt):
        part = page.split(f"### {section.__name__}\n")[1].split("\n### ")[0]
        for field in dataclasses.fields(section):
            assert len(row_of(part, field.name)[1]) > 2, field.name


def test_every_column_of_the_diagnostics_is_there(reference):
    page = reference.diagnostic_columns()
    for name in OVERALL | BY_FREQUENCY:
        assert row_of(page, name)
    for name in BY_FREQUENCY | OF_GROUPS:
        prefix, _, quantity = name.partition("/")
        assert row_of(page, f"{prefix}_by_frequency/{quantity}/GROUP")


def test_what_each_number_means_names_every_number():
    page = (DOCS / "numbers.md").read_text(encoding="utf-8")
    sections = (record.Record, record.Validation, record.Throughput)
    names = {field.name for section in sections for field in dataclasses.fields(section)}
    names |= {*METRIC_COLUMNS, *table.QUANTITIES, *table.MARKS, *runs.COLUMNS, *SUMMARIES, *RECORD_SUMMARY}
    named = {part for code in re.findall(r"`([\w/.]+)`", page) for part in (code, *code.split("."))}
    assert sorted(names - named) == []


def test_what_each_number_means_has_every_heading_of_the_table():
    page = (DOCS / "numbers.md").read_text(encoding="utf-8")
    source = (ROOT / "src/tielab/report/columns.py").read_text(encoding="utf-8")
    for heading in [*re.findall(r'Column\(\s*"([^"]+)"', source), "p", "p (Holm)", "difference"]:
        assert f"**{heading}" in page, heading


def test_the_schema_of_the_reference_is_that_of_the_runs(reference):
    found = {key.name for key in reference.keys_of(schema.Config, schema)}
    assert set(leaf_keys()) <= found <= set(known_keys())


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built site; any warning fails, since mkdocs.yml is strict."""
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    folder = tmp_path_factory.mktemp("site")
    build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder)))
    return folder


@pytest.mark.slow
def test_the_site_builds_and_loads_nothing_from_elsewhere(site):
    pages = list(site.rglob("*.html"))
    assert {page.stem for page in pages} >= {path.stem for path in DOCS.rglob("*.md")}
    for page in pages:
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r"<(?:script|img|link|iframe)\b[^>]*?(?:src|href)=\"?([^\s\">]+)", text)
        assert [url for url in loaded if url.startswith(("http", "//"))] == [], page
        assert "{{ " not in text, page
    assert "optimizer.learning_rate" in (site / "reference/config.html").read_text(encoding="utf-8")
    assert "TiedHead" in (site / "reference/python.html").read_text(encoding="utf-8")
    assert "TextData" in (site / "reference/python.html").read_text(encoding="utf-8")


def test_every_page_is_in_the_navigation():
    def pages(node):
        if isinstance(node, str):
            return [node]
        return [page for part in (node.values() if isinstance(node, dict) else node) for page in pages(part)]

    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    assert sorted(pages(nav)) == sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md"))
