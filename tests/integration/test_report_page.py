"""The report's page in a browser: nothing is fetched, nothing overflows, the verdict comes first."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from report_study import study
from running import ROOT
from tielab.report.html import page

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
OPTIONS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
PHONE, DESKTOP = 390, 1280
DIAGNOSTIC = """
const boxes = (selector) => [...document.querySelectorAll(selector)].map((e) => e.getBoundingClientRect());
const inner = (b) => ({left: b.left + 1, right: b.right - 1, top: b.top + 1.5, bottom: b.bottom - 1.5});
const meet = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
const overlaps = [];
for (const svg of document.querySelectorAll("figure svg")) {
  const all = [...svg.querySelectorAll("text")];
  const texts = all.map((e) => [e.textContent, inner(e.getBoundingClientRect())]);
  texts.forEach(([name, box], i) => texts.slice(i + 1).forEach(([other, its]) => {
    if (meet(box, its)) overlaps.push([name, other]);
  }));
}
const verdict = document.querySelector("#verdict");
return {
  width: innerWidth,
  scroll_width: document.documentElement.scrollWidth,
  figures: boxes("figure, .panel svg").map((box) => Math.min(box.width, box.height)),
  num_figures: document.querySelectorAll("figure").length,
  smallest_text: Math.min(...boxes("figure svg text").map((box) => Math.min(box.height, 99) || 99)),
  overlaps: overlaps,
  resources: performance.getEntriesByType("resource").map((entry) => entry.name),
  verdict_top: verdict.getBoundingClientRect().top,
  before_verdict: document.body.innerText.split(verdict.innerText)[0].split("\\n").filter((line) => line),
};
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """A browser without a window, with logs of its console and of every request."""
    if CHROMIUM is None or DRIVER is None:
        reason = "no chromium and chromedriver here (Debian: apt-get install chromium chromium-driver)"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for option in (*OPTIONS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("SE_OFFLINE", "true")
        driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def runs(tmp_path_factory, tiny, cache_dir):
    """The folder of a sweep over arms and seeds."""
    cwd = tmp_path_factory.mktemp("runs")
    command = [sys.executable, str(ROOT / "train.py"), "-m", *tiny, "model.tied=true,false", "seed=0,1"]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=170)
    assert done.returncode == 0, done.stderr
    (folder,) = (cwd / "outputs" / "sweeps").iterdir()
    return folder


@pytest.fixture(scope="module")
def drawn_study(tmp_path_factory):
    """The page of a study that has something in every section."""
    folder = tmp_path_factory.mktemp("study")
    comparison = study(folder / "runs", vocab_sizes=(512, 2048, 8192, 32768, 50257))
    (folder / "study.html").write_text(page(comparison))
    return folder / "study.html"


def look(browser, path: Path, width: int, unfold: bool = False) -> dict:
    """Sizes, overlaps, and all that the browser asked for and complained of, at a width."""
    screen = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    browser.get_log("performance")
    browser.get(path.as_uri())
    if unfold:
        browser.execute_script("document.querySelectorAll('details').forEach((e) => { e.open = true; })")
    seen = browser.execute_script(DIAGNOSTIC)
    seen["console"] = browser.get_log("browser")
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [event["params"] for event in events if event["method"] == "Network.requestWillBeSent"]
    requests = [one["request"]["url"] for one in asked]
    seen["requests"] = [url for url in requests if not url.startswith("data:")]
    return seen


def check(seen: dict, path: Path, width: int) -> None:
    assert seen["width"] == width
    assert seen["scroll_width"] <= width
    assert seen["console"] == []
    assert seen["resources"] == []
    assert seen["requests"] == [path.as_uri()]
    assert min(seen["figures"]) > 30
    assert seen["smallest_text"] >= 8
    assert seen["overlaps"] == []
    assert seen["verdict_top"] < 200
    assert len(seen["before_verdict"]) == 2, "the title and how many runs"


@pytest.mark.parametrize("width", [PHONE, DESKTOP])
@pytest.mark.parametrize("unfold", [False, True])
def test_a_page_with_every_section_reads_at_every_width(browser, drawn_study, width, unfold) -> None:
    seen = look(browser, drawn_study, width, unfold)
    check(seen, drawn_study, width)
    assert seen["num_figures"] == 7


def test_nothing_is_cut_off_on_paper(browser, drawn_study) -> None:
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        seen = look(browser, drawn_study, 1000, unfold=True)
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    assert seen["scroll_width"] <= 1000
    assert seen["overlaps"] == []


@pytest.mark.slow
def test_real_runs_become_a_page_and_figures(browser, runs, tielab, tmp_path) -> None:
    done = tielab("report", runs, "--html", "page.html", "--figures", "figures")
    assert done.returncode == 0, done.stderr
    for width in (PHONE, DESKTOP):
        seen = look(browser, tmp_path / "page.html", width)
        check(seen, tmp_path / "page.html", width)
        assert seen["num_figures"] == 4
    verdict = browser.find_element("id", "verdict").text
    assert "tied \N{MINUS SIGN} untied" in verdict
    assert verdict.splitlines()[-1].replace("\N{NO-BREAK SPACE}", " ") in done.stdout
    assert [len(list((tmp_path / "figures").glob(f"*.{kind}"))) for kind in ("pdf", "svg")] == [4, 4]


def test_a_page_that_cannot_be_written_is_refused_in_one_line(runs, tielab, tmp_path) -> None:
    done = tielab("report", runs, "--html", tmp_path / "no folder" / "page.html")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "name another file" in done.stderr
