"""The documentation site builds without a warning, needs no other server, and can be used by everybody."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.algorithms import ALGORITHMS
from tests.browsing import resize, served
from tests.places import DOC_PAGES, DOCS, ROOT

pytest.importorskip("furo", reason="the extra docs is not installed")

AXE = Path(sys.prefix) / "axe" / "node_modules" / "axe-core" / "axe.min.js"  # of tests/dashboard/set_up_browser.sh
WINDOWS = ((390, "light"), (900, "dark"), (1400, "light"))
"""Widths, each with a layout of its own, and themes, each with colours of its own."""
LOOKED_AT = (
    "index", "reference/settings", "start/tutorial", "algorithms/ppo", "reference/python/trainer", "how-it-works/map",
    "benchmarks/speed", "repository/penstock/algorithms/ppo.py", "search", "algorithms/impala",
)  # fmt: skip
pytestmark = [pytest.mark.timeout(300), pytest.mark.long]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the site, built as `make docs` builds it."""
    place = tmp_path_factory.mktemp("site")
    subprocess.run(
        [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "--quiet", "--builder", "html",
         "--doctree-dir", str(place / "doctrees"), str(DOCS), str(place / "html")],
        check=True, cwd=ROOT,
    )  # fmt: skip
    return place / "html"


def test_every_page_is_there_with_its_search_index(site):
    names = [page.relative_to(DOCS).with_suffix(".html") for page in DOC_PAGES]
    assert [str(name) for name in names if not (site / name).is_file()] == []
    assert (site / "searchindex.js").is_file()


def test_pages_load_nothing_from_elsewhere(site):
    loads = re.compile(r'<(?:script|img|iframe|source)[^>]* src="(?:https?:)?//|<link[^>]* href="(?:https?:)?//')
    assert [str(page) for page in site.rglob("*.html") if loads.search(page.read_text())] == []


def test_every_algorithm_has_equations_as_mathml_and_no_script_draws_them(site):
    pages = [page.stem for page in (DOCS / "algorithms").glob("*.md") if "## Equation" in page.read_text()]
    assert {*ALGORITHMS} == {name.replace("-", "") for name in pages}
    for name in pages:
        text = (site / "algorithms" / f"{name}.html").read_text()
        assert '<div class="equation"><math ' in text, name
        assert "MathJax" not in text and "katex" not in text, name


@pytest.fixture(scope="module")
def address(site):
    with served(site) as found:
        yield found


def show(browser, address: str, page: str, width: int, theme: str) -> None:
    """Open a page in a window of this width, in the light or the dark theme."""
    resize(browser, width)
    browser.get(f"{address}/{page}.html")
    browser.execute_script("localStorage.setItem('theme', arguments[0])", theme)
    browser.refresh()
    assert browser.find_element("tag name", "body").get_attribute("data-theme") == theme


@pytest.mark.parametrize("page", LOOKED_AT)
def test_a_page_fits_each_width_and_axe_finds_nothing(browser, address, page):
    if not AXE.is_file():
        pytest.skip("axe-core is not installed: make browser")
    for width, theme in WINDOWS:
        show(browser, address, page, width, theme)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width, width
        browser.execute_script(AXE.read_text())
        found = browser.execute_async_script("const done = arguments[0]; axe.run().then(done)")
        violations = [(each["id"], [node["html"] for node in each["nodes"]][:3]) for each in found["violations"]]
        assert violations == [], (width, theme)


def test_search_finds_a_page_without_any_other_server(browser, address):
    browser.get(f"{address}/search.html?q=recurrent")
    from selenium.webdriver.support.ui import WebDriverWait

    assert browser.find_element("tag name", "h1").text == "Search"
    found = WebDriverWait(browser, 30).until(lambda _: browser.find_elements("css selector", "ul.search li a"))
    assert any("policies" in link.get_attribute("href") for link in found)
