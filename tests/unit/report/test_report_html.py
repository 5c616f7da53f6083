import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from report_records import collected, make_record
from report_study import study
from tielab.report.collect import Collected, CollectedRun
from tielab.report.compare import Comparison, compare
from tielab.report.html import page, summary
from tielab.report.plots.differences import cells_of

EVIL = '<script>alert("x")</script><img src=x onerror=y>&$\\frac{$'


class Seen(HTMLParser):
    """Tags with their attributes, and the texts, in the order of the page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.append(data.strip().replace("\N{NO-BREAK SPACE}", " "))

    def attributes(self) -> Iterator[tuple[str, str, str | None]]:
        for tag, attributes in self.tags:
            for name, value in attributes.items():
                yield tag, name, value

    def sections(self) -> list[str | None]:
        return [attributes.get("id") for tag, attributes in self.tags if tag == "section"]


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    return study(tmp_path_factory.mktemp("study"))


@pytest.fixture(scope="module")
def text(comparison: Comparison) -> str:
    return page(comparison)


def test_the_page_is_the_same_for_the_same_records(comparison: Comparison, text: str) -> None:
    assert page(comparison) == text


def test_the_page_has_everything_there_is_data_for_the_verdict_first(text: str) -> None:
    assert Seen(text).sections() == [
        "verdict", "notes", "results", "loss_against_tokens", "bits_per_byte_against_size",
        "difference_by_vocabulary_and_width", "paired_differences", "throughput_and_memory", "learning_rates",
        "diagnostic_1_path_gradients", "diagnostic_numbers", "fixed", "runs",
    ]  # fmt: skip


def test_a_single_run_has_few_sections_and_no_run_says_so() -> None:
    assert Seen(page(compare(collected(make_record())))).sections() == [
        "verdict", "results", "bits_per_byte_against_size", "throughput_and_memory", "fixed", "runs",
    ]  # fmt: skip
    nothing = Seen(page(compare(collected(make_record(status="failed", error={"message": "disk full"})))))
    assert nothing.sections() == ["verdict", "notes"]
    assert "No finished run: nothing to compare." in nothing.texts
    assert any("disk full" in line for line in nothing.texts)


def test_every_word_of_verdicts_notes_and_table_is_on_the_page(comparison: Comparison, text: str) -> None:
    shown = set(Seen(text).texts)
    assert {line.strip() for line in (*comparison.verdicts, *comparison.notes)} <= shown
    assert {comparison.headline + "; started 2026-01-01"} <= shown
    assert {f"{value:.4f}" for value in comparison.table["bits_per_byte"]} <= {line[:6] for line in shown}


def test_many_settings_are_summed_up_and_one_is_not(comparison: Comparison) -> None:
    assert summary(cells_of(comparison.groups)) == [
        "tied \N{MINUS SIGN} untied, 4 settings: untied better in 2; tied better in 2",
        "(tied, head_map permutation) \N{MINUS SIGN} untied, 4 settings: untied better in 4",
    ]
    assert summary(cells_of(comparison.groups)[:1]) == []


def test_the_page_loads_nothing_and_runs_nothing(text: str) -> None:
    seen = Seen(text)
    assert not {tag for tag, _ in seen.tags} & {"script", "img", "image", "iframe", "object", "embed"}
    assert "default-src 'none'" in text
    for tag, name, value in seen.attributes():
        assert not name.startswith("on"), (tag, name)
        if name in ("src", "href", "xlink:href", "data", "action"):
            assert value == "data:," or str(value).startswith("#"), (tag, name, value)
    assert not re.search(r"@import|url\((?!#)", text)


def test_every_id_is_given_once_and_every_reference_is_found(text: str) -> None:
    attributes = list(Seen(text).attributes())
    ids = [value for _, name, value in attributes if name == "id"]
    assert len(set(ids)) == len(ids) > 100
    references = [value[1:] for _, name, value in attributes if name == "xlink:href" and value]
    references += [value for _, name, value in attributes if name == "aria-labelledby" and value]
    references += re.findall(r"url\(#(.*?)\)", text)
    assert set(references) <= set(ids)


def test_figures_and_tables_say_what_they_are(text: str) -> None:
    tags = Seen(text).tags
    assert all(a.get("aria-labelledby") for tag, a in tags if tag == "figure")
    assert all(a.get("aria-label") or a.get("aria-hidden") == "true" for tag, a in tags if tag == "svg")
    assert all(a.get("scope") for tag, a in tags if tag == "th")
    count = [sum(tag == name for tag, _ in tags) for name in ("figure", "figcaption", "h1")]
    assert count == [7, 7, 1]


def evil_runs(folder: Path) -> Collected:
    records = [make_record(tied=tied, seed=seed) for seed in (0, 1) for tied in (True, False)]
    for i, record in enumerate(records):
        record.config["data"]["corpus"] = EVIL if i < 2 else "wiki"
        record.config["budget"][EVIL] = EVIL
        record.run_id = record.commit = EVIL
        record.weights_hash = f"{EVIL}{i}"
        record.started_at = EVIL
        vars(record)["diagnostics"] = {EVIL: {EVIL: 1.0, "list": [1.0, 2.0]}}
    failed = make_record(seed=9, status="failed", error={"type": EVIL, "message": EVIL})
    folder = folder / EVIL.replace("/", "")
    return Collected(
        [CollectedRun(folder / f"{i}", record) for i, record in enumerate([*records, failed])], []
    )


@pytest.mark.filterwarnings(
    "error::UserWarning"
)  # matplotlib's, where a long name leaves no room for its axes
def test_a_strangers_words_stay_words(tmp_path: Path) -> None:
    text = page(compare(evil_runs(tmp_path)))
    seen = Seen(text)
    assert not {tag for tag, _ in seen.tags} & {"script", "img"}
    assert EVIL in seen.texts
    assert any(EVIL in line and "failed" in line for line in seen.texts)
    assert f"Diagnostic: {EVIL}" in seen.texts


def test_commands_can_be_pasted_whatever_the_folder_is_called(tmp_path: Path) -> None:
    folder = tmp_path / "it's a $(run)"
    runs = [CollectedRun(folder / "0", make_record())]
    quoted = str(folder / "0").replace("'", "'\"'\"'")
    texts = Seen(page(compare(Collected(runs, [])))).texts
    assert f"tielab rerun '{quoted}'" in texts
    assert f"python train.py --config-dir '{quoted}' --config-name run" in texts


def test_many_verdicts_and_notes_are_folded_and_few_are_not() -> None:
    records = [make_record(tied=tied, vocab_size=size) for tied in (True, False) for size in (512, 1024)]
    plain = compare(collected(*records))
    few = replace(plain, verdicts=["v"] * 8, notes=[f"note {i}" for i in range(8)])
    many = replace(plain, verdicts=["v"] * 9, notes=[f"note {i}" for i in range(11)])
    assert not {"Setting by setting", "3 more"} & set(Seen(page(few)).texts)
    assert {"Setting by setting", "3 more", "note 10"} <= set(Seen(page(many)).texts)
