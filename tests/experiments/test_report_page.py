"""The report in a real browser: a phone, the dark, a keyboard, and names that mean harm."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from noisin.experiments.collection import collect
from noisin.experiments.pictures import palette
from noisin.experiments.report.page import render
from tests.browser import PROGRAM, Browser, browser
from tests.experiments.records import write_run

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium on this machine")

OPEN_ALL = "document.querySelectorAll('details').forEach(d => d.open = true)"
# Every text that can be seen, with its colour and that of what it stands on.
TEXTS = """
[...document.querySelectorAll('body *')].filter(e =>
  [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()) && e.checkVisibility()
).map(e => {
  let under = e, colour;
  do { colour = getComputedStyle(under).backgroundColor; under = under.parentElement; }
  while (colour === 'rgba(0, 0, 0, 0)' && under);
  const style = getComputedStyle(e);
  return [e.ownerSVGElement ? style.fill : style.color, colour, e.textContent.slice(0, 40)];
})
"""
FOCUS = """(() => {
  const e = document.activeElement, s = getComputedStyle(e), r = e.getBoundingClientRect();
  return {tag: e.tagName, text: (e.getAttribute('aria-labelledby') || e.textContent).trim(),
    ring: s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 2,
    seen: r.bottom > 0 && r.top < innerHeight && r.right > 0 && r.left < innerWidth,
    place: [...document.querySelectorAll('*')].indexOf(e)};
})()"""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as running:
        yield running


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some of everything, names that mean harm, and names without end."""
    folder = tmp_path_factory.mktemp("runs")
    for seed in (1, 2):
        write_run(folder / f"plain-{seed}", (90.0, 80.0 + seed, 85.0), seed=seed)
        for family in ("gaussian", "beta"):
            noise = {"family": family, "std": 0.5}
            write_run(
                folder / f"{family}-{seed}", (90.0, 70.0 + seed, 71.0), seed=seed, noise=noise
            )
    write_run(folder / ("long" * 60), (95.0, 91.0), complete=False, noise={"gamma": 1.0})
    harm = {"data": {"name": '"><img src=x onerror=alert(2)>'}, "noise": {"gamma": 0.3}}
    record = write_run(folder / "<script>alert(1)</script>", (90.0,), complete=False, **harm)
    record.write("environment.json", {"</pre><script>alert(4)</script>": "x" * 500})
    note = {"config": record.config.hash(), "message": "<svg onload=alert(3)>" + "y" * 500}
    record.write("diverged.json", note)
    write_run(folder / "bad")
    (folder / "bad" / "config.json").write_text("{")
    return _write(folder)


def _write(folder: Path) -> Path:
    path = folder / "report.html"
    path.write_text(render(collect(folder), folder))
    return path


def test_it_renders_and_asks_for_nothing(chromium: Browser, page: Path) -> None:
    chromium.open(page)
    assert chromium.run("document.querySelector('h1').textContent").startswith(
        "noisin report: runs"
    )
    assert chromium.run("document.querySelectorAll('figure > svg').length") == 3
    size = "document.querySelector('figure > svg').getBoundingClientRect().width"
    assert chromium.run(size) > 300
    requests = [r["request"]["url"] for r in chromium.happened("Network.requestWillBeSent")]
    assert requests == [page.as_uri()]
    assert chromium.happened("Log.entryAdded") == [], "such as what the policy has refused"
    assert chromium.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def test_no_name_does_harm(chromium: Browser, page: Path) -> None:
    chromium.open(page)
    assert chromium.run("document.scripts.length + document.images.length") == 0
    assert chromium.happened("Page.javascriptDialogOpening") == []
    shown = chromium.run("document.body.textContent")
    assert "<script>alert(1)</script>" in shown
    assert "<img src=x onerror=alert(2)>" in shown


def test_the_policy_would_stop_what_slipped_through(chromium: Browser, page: Path) -> None:
    broken = page.with_name("broken.html")
    harm = "<main><script>window.harm = 1</script><img src='x.png' onerror='window.harm = 2'>"
    broken.write_text(page.read_text().replace("<main", harm + "<div", 1))
    chromium.open(broken)
    assert chromium.run("window.harm") is None
    assert len(chromium.happened("Log.entryAdded")) >= 2
    # and the same page without the policy is harmed, so that the test can fail
    broken.write_text(broken.read_text().replace("Content-Security-Policy", "nothing"))
    chromium.open(broken)
    assert chromium.run("window.harm") is not None


@pytest.mark.parametrize("width", [320, 360, 800, 1400])
def test_nothing_sticks_out(chromium: Browser, page: Path, width: int) -> None:
    """The page never scrolls sideways, folded or open; wide tables scroll in their own boxes."""
    chromium.open(page, width=width)
    for _ in range(2):
        assert chromium.run("document.scrollingElement.scrollWidth") == width
        chromium.run(OPEN_ALL)
    wide = "[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth)"
    if width == 360:
        assert chromium.run(f"{wide}.length") > 0
        assert chromium.run(f"{wide}.every(e => e.tabIndex === 0)"), "the arrow keys scroll them"
    small = "parseFloat(getComputedStyle(e).fontSize) * e.ownerSVGElement.getScreenCTM().a"
    sizes = f"[...document.querySelectorAll('figure text')].map(e => {small})"
    assert chromium.run(f"Math.min(...{sizes})") > (7.5 if width == 320 else 8.5), "legible"


@pytest.mark.parametrize("dark", [False, True])
def test_contrast(chromium: Browser, page: Path, dark: bool) -> None:
    """All text stands out by 4.5 or more, also in the pictures, in light and in dark."""
    chromium.open(page, dark=dark)
    chromium.run(OPEN_ALL)
    texts = chromium.run(TEXTS)
    assert len(texts) > 100
    for colour, under, words in texts:
        assert palette.contrast(_hex(colour), _hex(under)) >= 4.5, (words, colour, under)


def test_the_pictures_change_with_the_page(chromium: Browser, page: Path) -> None:
    seen = []
    for dark, colours in ((False, palette.LIGHT), (True, palette.DARK)):
        chromium.open(page, dark=dark)
        stroke = "getComputedStyle(document.querySelector('figure .stroke-series-0')).stroke"
        assert _hex(chromium.run(stroke)) == colours["series-0"]
        body = "getComputedStyle(document.body).backgroundColor"
        assert _hex(chromium.run(body)) == colours["page"]
        text = "getComputedStyle(document.querySelector('figure text')).fill"
        seen.append((chromium.run(stroke), chromium.run(body), chromium.run(text)))
    assert all(light != dark for light, dark in zip(*seen, strict=True))


def test_the_keyboard_reaches_everything_in_order(chromium: Browser, page: Path) -> None:
    chromium.open(page)
    wanted = chromium.run(
        "[...document.querySelectorAll('a, summary, [tabindex=\"0\"]')]"
        ".filter(e => e.checkVisibility()).length"  # not what is folded away
    )
    stops: list[Any] = []
    for _ in range(wanted):
        chromium.press("Tab")
        stops.append(chromium.run(FOCUS))
    assert stops[0]["text"] == "Skip to the results"
    assert all(stop["ring"] and stop["seen"] for stop in stops), "focus can be seen"
    places = [stop["place"] for stop in stops]
    assert places == sorted(set(places)), "in the order of the page, each once"
    assert "SUMMARY" in [stop["tag"] for stop in stops]


def test_the_keyboard_skips_and_opens(chromium: Browser, page: Path) -> None:
    chromium.open(page)
    chromium.press("Tab")
    chromium.press("Enter")
    assert chromium.run("document.activeElement.id") == "main"
    chromium.press("Tab")
    assert chromium.run("document.querySelector('main').contains(document.activeElement)")
    chromium.run("document.querySelector('summary').focus()")
    chromium.press("Enter")
    assert chromium.run("document.querySelector('details').open")


def test_its_structure_is_told(chromium: Browser, page: Path) -> None:
    """One h1, no level left out; the landmarks, each once; every picture and region has a name."""
    chromium.open(page)
    levels = chromium.run("[...document.querySelectorAll('h1,h2,h3,h4')].map(e => +e.tagName[1])")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    for landmark in ("header", "nav", "main", "footer"):
        assert chromium.run(f"document.querySelectorAll('{landmark}').length") == 1
    chromium.call("Accessibility.enable")
    nodes = chromium.call("Accessibility.getFullAXTree")["nodes"]
    told = [
        (node["role"]["value"], node.get("name", {}).get("value", ""))
        for node in nodes
        if "role" in node
    ]
    for role in ("image", "region", "navigation", "figure", "table", "link"):
        names = [name for found, name in told if found == role]
        assert names, role
        if role != "table":
            assert all(names), f"a {role} has no name"
    assert chromium.run("document.documentElement.lang") == "en"


def test_no_runs(chromium: Browser, tmp_path: Path) -> None:
    chromium.open(_write(tmp_path), width=360)
    assert "There are no runs here yet" in chromium.run(
        "document.querySelector('main').textContent"
    )
    assert chromium.run("document.scrollingElement.scrollWidth") == 360
    assert chromium.happened("Log.entryAdded") == []


def _hex(colour: str) -> str:
    """
    >>> _hex("rgb(255, 0, 16)")
    '#ff0010'
    """
    assert colour.startswith("rgb("), f"{colour} is not opaque"
    return "#" + "".join(f"{int(part):02x}" for part in colour[4:-1].split(","))
