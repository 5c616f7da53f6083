"""Following a page word for word works: the tutorial's blocks in their order, a new model, a new metric."""

import contextlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys

import pandas as pd
import pytest

from running import ROOT

DOCS = ROOT / "docs"
BLOCK = re.compile(r"^```([\w {.}]*?)( title=[^\n]*)?\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)


def blocks_of(page):
    """(language, title, content) of each fenced block."""
    text = (DOCS / page).read_text(encoding="utf-8")
    return [(kind, title.strip(), content) for kind, title, content in BLOCK.findall(text)]


def masked(text):
    """Text whose numbers may be others on another machine."""
    return re.sub(r"\d+(\.\d+)?", "N", text)


def printed(code, names):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(code, names)
    return out.getvalue()


class Reader:
    """Somebody who pastes one block after the other, into Python or into a shell."""

    def __init__(self, train, tielab, folder, smaller):
        self.train, self.tielab, self.folder, self.smaller = train, tielab, folder, smaller
        self.names = {}

    def python(self, code):
        return printed(code, self.names)

    def bash(self, lines):
        for line in lines.splitlines():
            if line == "python":
                self.names = {}
            elif line.startswith("python train.py"):
                done = self.train(*shlex.split(line)[2:], *self.smaller)
                assert done.returncode == 0, done.stderr
            elif line.startswith("tielab"):
                kind = "sweeps" if "outputs/sweeps" in line else "runs"
                newest = max((self.folder / "outputs" / kind).glob("*"), default="")
                done = self.tielab(*shlex.split(re.sub(r"\$\([^)]*\)", str(newest), line))[1:])
                assert done.returncode == 0, done.stderr
            else:
                assert line.split()[0] in ("make", "source", "export", "ls"), line


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_tutorial_prints_what_it_shows(train, tielab, tmp_path, tiny, monkeypatch):
    monkeypatch.chdir(tmp_path)
    reader = Reader(train, tielab, tmp_path, [*tiny, "budget.tokens=1024"])
    blocks = blocks_of("tutorial.md")
    num_compared = 0
    for (kind, _, content), (next_kind, title, expected) in zip(
        blocks, [*blocks[1:], ("", "", "")], strict=True
    ):
        if kind == "bash":
            reader.bash(content)
        elif kind == "python":
            found = reader.python(content)
            assert next_kind == "text"
            if title:
                assert masked(found) == masked(expected)
            else:
                assert found == expected
            num_compared += 1
    assert num_compared > 8
    records = list((tmp_path / "outputs").rglob("record.json"))
    assert len(records) == 2 + 4 + 1
    assert (tmp_path / "report.html").is_file()


@pytest.fixture(scope="module")
def extended(tmp_path_factory):
    """A checkout in which the pages on a new model and a new metric have been followed."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in ("src", "conf"):
        shutil.copytree(
            ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
        )
    shutil.copy(ROOT / "train.py", folder)
    for page in ("how-to/new-model.md", "how-to/new-metric.md"):
        for kind, title, content in blocks_of(page):
            if title:
                path = folder / re.fullmatch(r'title="(.+)"', title)[1]
                assert not path.exists()
                path.write_text(content, encoding="utf-8")
            elif kind == "diff":
                done = subprocess.run(
                    ["git", "apply", "-"], input=content, cwd=folder, capture_output=True, text=True
                )
                assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_new_model_and_a_new_metric_are_trained_as_their_pages_say(extended, tiny, tmp_path):
    (command,) = [
        body for kind, _, body in blocks_of("how-to/new-model.md") if "train.py" in body and kind == "text"
    ]
    smaller = [word for word in tiny if not word.startswith("model=")]
    words = [*shlex.split(command)[2:], *smaller, "budget.tokens=512"]
    done = subprocess.run(
        [sys.executable, str(extended / "train.py"), *words],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(extended / "src")},
        capture_output=True, text=True, timeout=350,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "4 runs, all finished" in done.stdout
    assert "CappedGPT" in done.stdout, done.stdout
    for file in tmp_path.rglob("metrics.csv"):
        last = pd.read_csv(file).iloc[-1]
        assert last["val/bits_per_token"] == pytest.approx(last["val/loss"] / 0.6931471805599453)
