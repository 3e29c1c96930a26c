"""The report in a browser: both themes, narrow and wide, by keyboard alone, without scripts, and without network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from coresident.traces.report.gather import read_runs
from coresident.traces.report.page import render

from support.browser import Browser
from support.reporting import EVIL, LOG, SAMPLES, trace

SECTIONS = ("facts", "classes", "latency", "timeline", "memory", "preemption", "fairness", "reuse", "setting")
TAB, RIGHT, LEFT, HOME, END = "\ue004", "\ue014", "\ue012", "\ue011", "\ue010"
CONTRAST = """
const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
function rgba(colour) {
  canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
  return [...canvas.getImageData(0, 0, 1, 1).data];
}
function light(colour) {
  const [r, g, b] = colour.map((c) => c / 255).map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
function back(element) {
  for (let at = element; at; at = at.parentElement) {
    const colour = rgba(getComputedStyle(at).backgroundColor);
    if (colour[3] === 255) return colour;
  }
  return [255, 255, 255, 255];
}
const found = {};
const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walk.nextNode()) {
  const element = walk.currentNode.parentElement;
  if (!walk.currentNode.data.trim() || !element.checkVisibility() || element.closest("script, style")) continue;
  const pair = [light(rgba(getComputedStyle(element).color)), light(back(element))].sort((a, b) => b - a);
  const ratio = (pair[0] + 0.05) / (pair[1] + 0.05);
  const name = element.tagName + "." + element.className + ": " + walk.currentNode.data.trim().slice(0, 40);
  if (!(found[name] <= ratio)) found[name] = ratio;
}
return found;
"""
FOCUSED = """
const at = document.activeElement, style = getComputedStyle(at), box = at.getBoundingClientRect();
return {tag: at.tagName, name: at.getAttribute("aria-label") || at.textContent.trim(), shown: at.checkVisibility(),
        outline: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2, class: at.className,
        inside: box.right <= innerWidth + 1 && box.left >= -1};
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    runs = read_runs([SAMPLES["prefill"], SAMPLES["preparation"], trace(folder / "log.jsonl", LOG)])
    path = folder / "page.html"
    path.write_text(render(runs), encoding="utf-8")
    return path


def colours(browser: Browser) -> tuple[Any, ...]:
    return tuple(
        browser.run("const s = getComputedStyle(arguments[0]); return [s.color, s.backgroundColor, s.fill]", element)
        for element in browser.run(
            "return ['body', '.fact', 'button', '.lane path.decision'].map((each) => document.querySelector(each))"
        )
    )


def test_the_page_opens_without_complaint_and_asks_for_nothing(browser: Browser, page: Path) -> None:
    browser.open(page)
    assert browser.complaints() == []
    assert [address for address in browser.requests() if not address.startswith("data:")] == [page.as_uri()]
    assert browser.run("return document.querySelector('h1').checkVisibility()")
    heights = [
        browser.run(f"return document.getElementById('{each}').getBoundingClientRect().height") for each in SECTIONS
    ]
    assert min(heights) > 40
    assert (
        browser.run("return [...document.images].length + document.querySelectorAll('iframe, object, embed').length")
        == 0
    )


def test_what_a_trace_says_runs_nothing(browser: Browser, page: Path) -> None:
    browser.open(page)
    assert EVIL in browser.run("return document.body.textContent")
    assert browser.run("return document.scripts.length") == 2
    assert (
        browser.run("return [...document.querySelectorAll('b')].some((each) => each.textContent === 'raised')") is False
    )


def test_dark_and_light_differ_by_system_and_by_toggle(browser: Browser, page: Path) -> None:
    browser.open(page)
    light = colours(browser)
    browser.media(dark=True)
    dark = colours(browser)
    assert all(one != other for one, other in zip(light, dark, strict=True))
    browser.run("document.getElementById('theme').click()")
    assert colours(browser) == light
    browser.run("document.getElementById('theme').click()")
    assert colours(browser) == dark
    browser.media(dark=False)
    assert colours(browser) == dark
    assert browser.run("return document.getElementById('theme').textContent") == "Light theme"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_all_text_has_contrast(browser: Browser, page: Path, dark: bool) -> None:
    browser.open(page, dark=dark)
    ratios = browser.run(CONTRAST)
    assert len(ratios) > 100
    assert {name: ratio for name, ratio in ratios.items() if ratio < 4.5} == {}


@pytest.mark.parametrize("width", [400, 1600])
def test_the_page_never_scrolls_sideways(browser: Browser, page: Path, width: int) -> None:
    browser.open(page, width=width)
    assert browser.run("return document.documentElement.scrollWidth") <= width
    cut = "return [...document.querySelectorAll('h1, h2, p, .fact, figure, .box')].filter((each) => "
    assert browser.run(cut + "each.getBoundingClientRect().right > innerWidth + 1).map((each) => each.outerHTML)") == []


def test_tab_reaches_every_control_visibly(browser: Browser, page: Path) -> None:
    browser.open(page)
    controls = browser.run(
        "return [...document.querySelectorAll('a, button, [tabindex]')].filter((each) => each.checkVisibility()).map("
        "(each) => each.getAttribute('aria-label') || each.textContent.trim())"
    )
    reached = []
    for _ in controls:
        browser.press(TAB)
        focused = browser.run(FOCUSED)
        assert focused["shown"]
        assert focused["outline"], focused
        assert focused["inside"], focused
        assert focused["name"]
        reached.append(focused["name"])
    assert reached == controls
    assert {"Dark theme", "Classes", "Zoom in: prefill"} <= set(controls)


def test_arrow_keys_go_from_grant_to_grant(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.run("document.querySelectorAll('.view')[2].focus()")
    said = "return document.querySelectorAll('.timeline output')[2].textContent"
    browser.press(RIGHT)
    assert browser.run(said) == "other: load, finished; 10 ms from 0 µs, waited 0 µs. Grant 1 of 5."
    browser.press(RIGHT)
    what = "foreground: prefill for g1, suspended after it was told to give way"
    assert browser.run(said) == f"{what}; 10 ms from 20 ms, waited 0 µs. Grant 2 of 5."
    browser.press(END)
    assert "Grant 5 of 5." in browser.run(said)
    browser.press(LEFT, LEFT)
    assert f"decision for {EVIL}, finished" in browser.run(said)
    browser.press(HOME)
    assert "Grant 1 of 5." in browser.run(said)


def test_the_timeline_zooms_to_what_is_chosen(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.run("document.querySelectorAll('.view')[0].focus()")
    browser.press(END, "+", "+", "+")
    sizes = "const v = document.querySelectorAll('.view')[0]; return [v.scrollWidth / v.clientWidth, v.scrollLeft > 0]"
    assert browser.run(sizes) == [pytest.approx(8, rel=0.01), True]
    inside = """
      const view = document.querySelectorAll('.view')[0].getBoundingClientRect();
      const at = document.querySelectorAll('.cursor')[0].getBoundingClientRect();
      return at.width > 0 && at.right > view.left && at.left < view.right;
    """
    assert browser.run(inside)
    browser.run("document.querySelector('[data-zoom=all]').click()")
    assert browser.run(sizes) == [1, False]


def test_everything_but_the_tools_is_there_without_scripts(browser: Browser, page: Path) -> None:
    browser.open(page, scripts=False)
    try:
        shown = "return [...document.querySelectorAll('section')].every((each) => each.checkVisibility())"
        assert browser.run(shown)
        assert browser.run("return document.querySelectorAll('.lane path').length") > 10
        assert (
            browser.run("return [...document.querySelectorAll('button')].some((each) => each.checkVisibility())")
            is False
        )
    finally:
        browser.open(page)


def test_it_prints_light_and_without_tools(browser: Browser, page: Path) -> None:
    browser.open(page, dark=True)
    browser.media(dark=True, kind="print")
    try:
        assert browser.run("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        ratios = browser.run(CONTRAST)
        assert {name: ratio for name, ratio in ratios.items() if ratio < 4.5} == {}
        assert (
            browser.run("return [...document.querySelectorAll('button, nav')].some((e) => e.checkVisibility())")
            is False
        )
    finally:
        browser.media(dark=False)
