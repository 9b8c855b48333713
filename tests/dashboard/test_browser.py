"""The dashboard in a real browser: Debian's Chromium, with every other host out of reach."""

import hashlib
import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from penstock.runs.descriptions import NO_FRAMES, QUANTILES
from penstock.runs.reading import find_runs
from penstock.studies.report import report_html
from penstock.studies.statistics import interquartile_mean, interval
from tests.dashboard.serving import dashboard_of
from tests.studies.recorded import record

pytest.importorskip("uvicorn", reason="the extra dashboard is not installed")
pytest.importorskip("selenium", reason="selenium is not installed")

from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

pytestmark = pytest.mark.timeout(180)
AXE = Path(sys.prefix) / "axe" / "node_modules" / "axe-core" / "axe.min.js"  # of set_up_browser.sh
AXE_HASH = "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c"
EVIL = "<img src=x onerror=\"document.title='evil'\"><script>document.title='evil'</script>"


@pytest.fixture(autouse=True)
def with_a_clean_console(browser):
    """Drop messages of another test's page."""
    browser.get("about:blank")
    browser.get_log("browser")


@pytest.fixture
def runs(tmp_path):
    return tmp_path / "runs"


@pytest.fixture
def live(runs):
    """A run that is made by hand, line by line."""
    run = record(runs / "live", [(100, 1.0), (200, 4.0)], target=9.0, hidden_sizes=[64, 64])
    for n in range(20):
        append(run, steps=300 + n, seconds=30 + n, **{"episode/mean_return": n, "time/learner/learn": 0.5})
    run.directory.log("it has begun")
    return run


def append(run, name="metrics.jsonl", **line):
    with open(run.directory.path / name, "a") as file:
        file.write(json.dumps({"time": 1.7e9 + line["seconds"], **line}) + "\n")


def waited(browser, what):
    return WebDriverWait(browser, 60, poll_frequency=0.05).until(lambda _: what())


def text_of(browser, css):
    return browser.execute_script(
        "return [...document.querySelectorAll(arguments[0])].map((element) => element.textContent).join(' | ')", css
    )


def open_run(browser, served, name):
    browser.get(served.address)
    waited(browser, lambda: browser.find_elements(By.LINK_TEXT, name))[0].click()
    waited(browser, lambda: browser.find_elements(By.CSS_SELECTOR, ".charts figure canvas"))


def complaints(browser):
    return [entry["message"] for entry in browser.get_log("browser")]


def show_table(browser, title):
    browser.execute_script(
        "[...document.querySelectorAll('figure')].find((figure) => figure.textContent.startsWith(arguments[0]))"
        ".querySelector('.tools button').click()",
        title,
    )


def drawn_colors(browser):
    """Return the number of colours of the first chart's canvas."""
    return browser.execute_script(
        "const canvas = document.querySelector('.charts canvas');"
        "const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;"
        "return new Set(new Uint32Array(data.buffer)).size"
    )


@pytest.mark.long
def test_the_overview_shows_runs_as_they_come_and_change(browser, runs):
    record(runs / "first", [(100, 5.0)], algorithm="ppo")
    record(runs / "second", [(100, 7.0)], algorithm="dqn", state="failed", reason="boom")
    with dashboard_of(runs) as served:
        browser.get(served.address)
        assert "token" not in browser.current_url
        waited(browser, lambda: "2 of 2 runs" in text_of(browser, "main"))
        assert "failed" in text_of(browser, ".state") and "7.000" in text_of(browser, "tbody")
        record(runs / "third", [(100, 3.0)])
        waited(browser, lambda: "third" in text_of(browser, "tbody"))
        record(runs / "search" / "trial-0-seed-0", [(100, 3.0)])
        (runs / "search" / "search.json").write_text('{"space": {}}')
        record(runs / "search" / "trial-1-seed-0", [(100, 3.0)])
        waited(browser, lambda: browser.find_elements(By.LINK_TEXT, "search"))
        shutil.rmtree(runs / "search")
        waited(browser, lambda: "Searches" not in text_of(browser, "main"))
        waited(browser, lambda: "3 of 3 runs" in text_of(browser, "main"))
        browser.find_element(By.ID, "filter").send_keys("dqn failed")
        assert text_of(browser, "tbody th") == "second" and "1 of 3 runs" in text_of(browser, "main")
        browser.find_element(By.ID, "filter").clear()
        browser.execute_script("document.getElementById('filter').dispatchEvent(new Event('input'))")
        browser.find_element(By.XPATH, "//button[text()='eval']").click()
        assert text_of(browser, "tbody th") == "second | first | third"
        browser.find_element(By.XPATH, "//button[text()='eval']").click()
        assert text_of(browser, "tbody th") == "third | first | second"
        assert browser.find_element(By.CSS_SELECTOR, "[aria-sort=ascending]").text.startswith("eval")
        target = browser.find_element(By.XPATH, "//th[.='target']")
        assert not target.is_displayed(), "no run has a target"
        record(runs / "fourth", [(100, 3.0)], target=9.0)
        waited(browser, target.is_displayed)
        assert complaints(browser) == []


@pytest.mark.long
def test_a_comparison_follows_the_runs(browser, runs):
    record(runs / "first", [(100, 5.0)], gamma=0.9)
    with dashboard_of(runs) as served:
        browser.get(served.address)
        browser.execute_script("location.hash = '#/compare?words='")
        waited(browser, lambda: "1 of 1 runs are compared" in text_of(browser, "main"))
        browser.execute_script("document.querySelector('main .wide').focus()")
        record(runs / "second", [(100, 7.0)], gamma=0.5)
        time.sleep(2.5)  # two looks of the page: nothing is taken from the focus
        assert "1 of 1 runs are compared" in text_of(browser, "main")
        browser.execute_script("document.activeElement.blur()")
        waited(browser, lambda: "2 of 2 runs are compared" in text_of(browser, "main"))
        assert "7.000" in text_of(browser, "main td") and complaints(browser) == []


def test_a_run_is_drawn_and_follows_its_files(browser, runs, live):
    with dashboard_of(runs) as served:
        open_run(browser, served, "live")
        assert "Return" in text_of(browser, "figcaption") and "Time of learner" in text_of(browser, "figcaption")
        assert waited(browser, lambda: drawn_colors(browser) > 3)
        assert "it has begun" in text_of(browser, ".log") and "hidden_sizes" in text_of(browser, "details")
        assert "4.000 of 9.000" in text_of(browser, "dd")

        append(live, steps=400, seconds=60, masked_steps=0, **{"episode/mean_return": 777.0, "loss/new_one": 1.0})
        append(live, "hardware.jsonl", steps=400, seconds=60, **{"cpu/0": 0.5})
        live.directory.log("something happened")
        waited(browser, lambda: "New one" in text_of(browser, "figcaption"))
        assert text_of(browser, ".zero") == "Always 0: Masked steps"
        append(live, steps=500, seconds=61, masked_steps=3)
        waited(browser, lambda: "Masked steps" in text_of(browser, "figcaption") and not text_of(browser, ".zero"))
        waited(browser, lambda: "Busy cores" in text_of(browser, "figcaption"))
        waited(browser, lambda: "something happened" in text_of(browser, ".log"))
        show_table(browser, "Return")
        waited(browser, lambda: "777.0" in text_of(browser, "figure table"))
        assert complaints(browser) == []


@pytest.mark.long
def test_a_range_of_a_long_run_is_read_in_full_and_the_page_keeps_its_tables(browser, runs):
    run = record(runs / "long")
    lines = ({"steps": n, "seconds": n, "time": n, "loss/policy": n % 7} for n in range(20_000))
    run.directory.metrics.write_text("".join(f"{json.dumps(each)}\n" for each in lines))
    points = "return document.querySelector('figure tbody').lastElementChild.firstElementChild.textContent"
    with dashboard_of(runs) as served:
        open_run(browser, served, "long")
        show_table(browser, "Policy")
        assert browser.execute_script(points) == "19,999"
        rows = "return [...document.querySelectorAll('figure tbody tr td:first-child')].map((cell) => cell.textContent)"
        assert browser.execute_script(rows)[-2:] != ["19,998", "19,999"]
        choose(browser, "from", "19900")
        choose(browser, "to", "20000")
        waited(browser, lambda: browser.execute_script(rows)[-3:] == ["19,997", "19,998", "19,999"])
        assert complaints(browser) == []


@pytest.mark.long
def test_a_film_plays_beside_the_curve_at_whose_steps_it_was_taken(browser, runs, live):
    (live.directory.path / "videos").mkdir()
    for name in ("step-100.mp4", "step-200-2.mp4", "other.mp4"):
        (live.directory.path / "videos" / name).write_bytes(b"no film")
    marks = "return [...document.querySelectorAll('.mark:not([hidden])')].map((mark) => [mark.title, mark.offsetLeft])"
    with dashboard_of(runs) as served:
        open_run(browser, served, "live")
        shown = waited(browser, lambda: browser.execute_script(marks))
        assert [title for title, _ in shown] == ["Video of step 100", "Video of step 200, step-200-2.mp4"]
        assert shown[0][1] + 20 < shown[1][1]
        mark = browser.find_element(By.CSS_SELECTOR, ".mark")
        mark.send_keys(Keys.ENTER)
        film = mark.find_element(By.XPATH, "ancestor::figure/following-sibling::figure[1]")
        name, video = film.find_element(By.CSS_SELECTOR, ".title"), film.find_element(By.TAG_NAME, "video")
        assert name.text == "step-100.mp4" and video.get_attribute("src").endswith("/videos/step-100.mp4")
        film.find_element(By.TAG_NAME, "button").send_keys(Keys.ENTER)
        assert not browser.find_elements(By.CSS_SELECTOR, ".video") and browser.switch_to.active_element == mark
        mark.send_keys(Keys.ENTER)
        (live.directory.path / "videos" / "step-200-2.mp4").unlink()
        (live.directory.path / "videos" / "step-302.mp4").write_bytes(b"no film")
        waited(browser, lambda: [title for title, _ in browser.execute_script(marks)] == [
            "Video of step 100", "Video of step 302"
        ])  # fmt: skip
        assert browser.switch_to.active_element == mark
        assert browser.find_element(By.CSS_SELECTOR, ".video").is_displayed()
        waited(browser, lambda: text_of(browser, "[data-video] figcaption").endswith("step-302.mp4 | other.mp4"))
        choose(browser, "x", "seconds")
        choose(browser, "from", "15")
        choose(browser, "to", "35")
        waited(browser, lambda: len(browser.execute_script(marks)) == 1)
        assert complaints(browser) == []


@pytest.mark.long
def test_the_run_that_weights_came_from_is_a_link(browser, runs, live):
    base = record(runs / "base", [(100, 1.0)])
    live.directory.record_parent(0, base.directory.path, {"run": base.directory.info["id"], "steps": 100})
    with dashboard_of(runs) as served:
        open_run(browser, served, "live")
        browser.find_element(By.LINK_TEXT, "base at step 100").click()
        waited(browser, lambda: text_of(browser, "h1").startswith("base"))
        assert not browser.find_elements(By.CSS_SELECTOR, ".parent") and complaints(browser) == []


@pytest.mark.long
def test_what_a_resume_undoes_goes_from_the_page(browser, runs, live):
    append(live, steps=900, seconds=90, **{"episode/mean_return": 555.0})
    with dashboard_of(runs) as served:
        open_run(browser, served, "live")
        show_table(browser, "Return")
        waited(browser, lambda: "555.0" in text_of(browser, "figure table"))
        append(live, steps=310, seconds=40, resumed=True)
        append(live, steps=320, seconds=41, **{"episode/mean_return": 444.0})
        waited(browser, lambda: "555.0" not in text_of(browser, "figure table"))
        waited(browser, lambda: browser.find_elements(By.CSS_SELECTOR, ".charts figure canvas"))
        show_table(browser, "Return")
        waited(browser, lambda: "444.0" in text_of(browser, "figure table"))
        assert "555.0" not in text_of(browser, "figure table")


@pytest.mark.long
def test_a_hidden_page_asks_for_nothing_and_a_seen_one_catches_up(browser, runs, live):
    hide = (
        "Object.defineProperty(document, 'hidden', {configurable: true, get: () => arguments[0]});"
        "document.dispatchEvent(new Event('visibilitychange'))"
    )
    with dashboard_of(runs) as served:
        open_run(browser, served, "live")
        waited(browser, lambda: connections(served) == 1)
        browser.execute_script(f"const hide = function () {{ {hide} }}; hide(true)")
        waited(browser, lambda: connections(served) == 0)
        live.directory.log("while nobody looked")
        assert "while nobody looked" not in text_of(browser, ".log")
        browser.execute_script(f"const hide = function () {{ {hide} }}; hide(false)")
        waited(browser, lambda: "while nobody looked" in text_of(browser, ".log"))


def connections(served):
    """Streams that the server has open: other connections are closed when they are idle."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(line[1].endswith(f":{served.port:04X}") and line[3] == "01" for line in lines)


def test_what_a_copied_run_holds_is_text(browser, runs):
    run = record(runs / "evil<b>", [(1, 1.0)], env=EVIL, algorithm=EVIL, state="failed", reason=EVIL, note=EVIL)
    append(run, steps=2, seconds=2, **{f"loss/{EVIL}": 1.0, "__proto__": 1.0, "constructor": 2.0})
    run.directory.log(EVIL)
    with dashboard_of(runs) as served:
        open_run(browser, served, "evil<b>")
        waited(browser, lambda: EVIL in text_of(browser, "figcaption"))
        assert all(EVIL in text_of(browser, place) for place in (".log", "details", "dd"))
        assert "evil<b>" in browser.title and browser.title != "evil"
        assert not browser.find_elements(By.CSS_SELECTOR, "img, main script, main b")
        assert complaints(browser) == []


def test_a_server_that_is_gone_is_told(browser, runs, live):
    with dashboard_of(runs) as served:
        open_run(browser, served, "live")
        served.process.send_signal(signal.SIGKILL)
        assert waited(browser, lambda: "no connection" in text_of(browser, "#connection"))


def test_a_page_that_cannot_be_read_says_why(browser, runs, live):
    with dashboard_of(runs) as served:
        open_run(browser, served, "live")
        served.process.kill()
        served.process.wait()
        browser.find_element(By.LINK_TEXT, "All runs").click()
        waited(browser, lambda: "the dashboard does not answer: is penstock dashboard" in text_of(browser, "main"))
        assert text_of(browser, "#connection") == "", "that of the page before"
        with dashboard_of(runs, "--port", str(served.port)):  # with another token
            words = "Open the address that penstock dashboard printed."
            waited(browser, lambda: words in text_of(browser, "main"))


def test_a_server_that_was_started_again_is_named_as_the_reason(browser, runs, live):
    with dashboard_of(runs) as served:
        open_run(browser, served, "live")
        served.process.kill()
        served.process.wait()
        with dashboard_of(runs, "--port", str(served.port)):
            assert waited(browser, lambda: "Open the address that penstock" in text_of(browser, "#connection"))


def test_a_run_that_is_gone_is_told_and_one_in_its_place_is_shown(browser, runs, live):
    with dashboard_of(runs) as served:
        open_run(browser, served, "live")
        shutil.rmtree(live.directory.path)
        waited(browser, lambda: "there is no such run in the folders of this dashboard" in text_of(browser, "body"))
        run = record(runs / "live", [(5, 1.0)], seed=77, gamma=0.123)
        append(run, steps=6, seconds=6, **{"loss/entropy": 0.5})
        waited(browser, lambda: "seed 77" in text_of(browser, "main") and "0.123" in text_of(browser, "details"))
        waited(browser, lambda: "Entropy" in text_of(browser, "figcaption"))
        assert waited(browser, lambda: "there is no such run" not in text_of(browser, "body"))


def test_metrics_that_are_not_finite_are_named(browser, runs, live):
    path = live.directory.path / "status.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"losses": {"policy_loss": None, "entropy": 1.0}}))
    with dashboard_of(runs) as served:
        open_run(browser, served, "live")
        words = "not finite, and are missing in charts: policy_loss"
        assert waited(browser, lambda: words in text_of(browser, "main"))


def test_the_progress_of_reading_does_not_stay(browser, runs, live):
    slow = (
        "const fetched = window.fetch; window.fetch = async (path, ...more) => {"
        " if (String(path).endsWith('/episode')) await new Promise((done) => setTimeout(done, 2500));"
        " return fetched(path, ...more); }"
    )
    script = browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": slow})
    try:
        with dashboard_of(runs) as served:
            open_run(browser, served, "live")
            waited(browser, lambda: "so far: 100 %" in text_of(browser, "[role=status]"))
            assert waited(browser, lambda: "so far" not in text_of(browser, "[role=status]"))
    finally:
        browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", script)


def test_the_address_of_the_overview_holds_words_and_order(browser, runs):
    record(runs / "first", [(100, 5.0)])
    record(runs / "second", [(100, 7.0)])
    record(runs / "third", [(100, 9.0)], algorithm="dqn")
    with dashboard_of(runs) as served:
        browser.get(served.address)
        waited(browser, lambda: "3 of 3 runs" in text_of(browser, "main"))
        browser.find_element(By.ID, "filter").send_keys("ppo")
        browser.find_element(By.XPATH, "//button[text()='eval']").click()
        browser.find_element(By.LINK_TEXT, "second").click()
        waited(browser, lambda: "second" in text_of(browser, "h1"))
        browser.back()
        waited(browser, lambda: "2 of 3 runs" in text_of(browser, "main"))
        assert text_of(browser, "tbody th") == "second | first"
        assert browser.find_element(By.CSS_SELECTOR, "[aria-sort=descending]").text.startswith("eval")


@pytest.mark.parametrize(
    ("low", "step"), [(0.0004, 0.00005), (100_000, 100), (2e-7, 2.5e-8), (1e33, 1e32), (123.4, 0.0002), (0.99951, 1e-5)]
)
def test_no_tick_looks_like_its_neighbour(browser, runs, low, step):
    record(runs / "run")
    words = (
        "const [low, step, done] = arguments, shownIn = (looks, unit) =>"
        " looks.ticks(low, low + 6 * step, step).map((at) => looks.shortened(at, unit));"
        "import('/static/looks.js').then((looks) => done(['', 'share', 'bytes'].map((unit) => shownIn(looks, unit))))"
    )
    with dashboard_of(runs) as served:
        browser.get(served.address)
        for shown in browser.execute_async_script(words, low, step):
            assert len(set(shown)) == len(shown) >= 6 and max(map(len, shown)) < 14, shown


def looks_of_legends(browser):
    return browser.execute_script(
        "return [...document.querySelectorAll('.legend button')].map((one) => [one.textContent.split(' ')[0],"
        " one.querySelector('.swatch').className, one.querySelector('.swatch').style.color])"
    )


def test_a_group_has_one_colour_in_all_charts_of_curves(browser, runs):
    for seed in range(3):
        record(runs / f"cart-{seed}", [(100, 5.0), (200, 6.0)], seed=seed)
    record(runs / "pendulum", [(100, 5.0), (200, 6.0)], seed=2, env="Pendulum-v1")
    with dashboard_of(runs) as served:
        browser.get(served.address)
        browser.execute_script("location.hash = '#/curves?by=seed,nothing'")
        waited(browser, lambda: len(browser.find_elements(By.CSS_SELECTOR, "figure canvas")) == 2)
        looks = [tuple(look) for look in looks_of_legends(browser)]
        assert len(looks) == 4 and len(set(looks)) == 3 and len({color for *_, color in looks}) == 3
        assert text_of(browser, ".by").startswith("Grouped by seed") and "nothing" not in text_of(browser, ".by")
        browser.execute_script("location.hash = '#/compare?by=seed'")
        waited(browser, lambda: len(browser.find_elements(By.CSS_SELECTOR, "figure.chart")) == 6)
        marks = browser.execute_script(
            "return [...document.querySelectorAll('figure.chart .legend > span:has(svg)')].map((one) =>"
            " [one.title, [...one.querySelector('svg').firstChild.classList].find((look) => /c\\d/.test(look))])"
        )
        assert {tuple(mark) for mark in marks} == {("seed=0", "c0"), ("seed=1", "c1"), ("seed=2", "c2")}


def test_the_dashes_of_a_legend_are_those_of_its_line(browser, runs):
    for seed in range(8):
        record(runs / f"cart-{seed}", [(100, 5.0), (200, 6.0)], seed=seed)
    with dashboard_of(runs) as served:
        browser.get(served.address)
        browser.execute_script("location.hash = '#/curves?by=seed'")
        waited(browser, lambda: browser.find_elements(By.CSS_SELECTOR, "figure canvas"))
        looks = {name: tuple(look) for name, *look in looks_of_legends(browser)}
        assert looks["seed=6"] == ("swatch dash3", looks["seed=0"][1]), "dash 6 % 4, one on as colours come again"
        assert len(set(looks.values())) == 8


def test_numbers_of_any_size_are_readable(browser, runs):
    run = record(runs / "run", [(100, 5.0)])
    for n in range(4):
        append(run, steps=200 + n, seconds=20 + n, **{"metrics/huge": 1e20 * (n + 1), "metrics/tiny": 1e-8 * (n + 1)})
    with dashboard_of(runs) as served:
        open_run(browser, served, "run")
        waited(browser, lambda: "huge" in text_of(browser, "figcaption"))
        assert "4.00e+20" in text_of(browser, "figcaption") and "000,000" not in text_of(browser, "figcaption")
        for title, power in (("huge", "e+20"), ("tiny", "e-8")):
            assert saved_picture(browser, title, "SVG")[1].count(power) > 2


def test_an_address_of_an_old_dashboard_is_refused_in_words(browser, runs, live):
    with dashboard_of(runs) as served:
        browser.get(f"http://127.0.0.1:{served.port}/?token=old")
        assert "open the address that this dashboard printed" in browser.find_element(By.TAG_NAME, "body").text


@pytest.mark.long
def test_themes_are_chosen_and_kept(browser, runs, live):
    with dashboard_of(runs) as served:
        browser.get(served.address)
        seen = {}
        for _ in range(3):
            theme = browser.find_element(By.ID, "theme").text
            seen[theme] = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
            browser.find_element(By.ID, "theme").click()
        assert seen.keys() == {"Theme: auto", "Theme: light", "Theme: dark"}
        assert seen["Theme: light"] != seen["Theme: dark"]
        browser.find_element(By.ID, "theme").click()
        browser.refresh()
        assert browser.find_element(By.ID, "theme").text == "Theme: light"
        for theme in ("dark", "auto"):
            browser.find_element(By.ID, "theme").click()
            assert browser.find_element(By.ID, "theme").text == f"Theme: {theme}"


@pytest.mark.long
def test_the_stop_button_is_there_with_control_only(browser, runs, live):
    with dashboard_of(runs) as served:
        open_run(browser, served, "live")
        assert not browser.find_elements(By.ID, "stop")
    with dashboard_of(runs, "--control") as served:
        open_run(browser, served, "live")
        assert not browser.find_element(By.ID, "stop").is_displayed(), "the run has ended"
        os.remove(live.directory.path / "status.json")
        waited(browser, browser.find_element(By.ID, "stop").is_displayed)
        browser.find_element(By.ID, "stop").click()
        browser.switch_to.alert.accept()
        waited(browser, lambda: "It is not running here." in text_of(browser, "main"))


@pytest.mark.long
def test_tags_and_a_note_are_changed_with_control_and_archived_runs_are_hidden(browser, runs, live):
    with dashboard_of(runs) as served:
        open_run(browser, served, "live")
        assert not browser.find_elements(By.ID, "tags")
    with dashboard_of(runs, "--control") as served:
        open_run(browser, served, "live")
        browser.find_element(By.XPATH, "//summary[text()='Change tags and note']").click()
        browser.find_element(By.ID, "tags").send_keys("two words")
        browser.find_element(By.ID, "save").click()
        waited(browser, lambda: "is not a tag" in text_of(browser, "form [role=status]"))
        browser.get_log("browser")  # the refusal is there
        choose(browser, "tags", "baseline, lr-1")
        browser.find_element(By.ID, "note").send_keys(EVIL)
        browser.find_element(By.CSS_SELECTOR, ".choices label input[type=checkbox]").click()
        browser.find_element(By.ID, "save").click()
        waited(browser, lambda: text_of(browser, ".labels .tag") == "baseline | lr-1")
        assert text_of(browser, ".labels .text") == EVIL
        browser.find_element(By.LINK_TEXT, "All runs").click()
        waited(browser, lambda: "0 of 1 runs" in text_of(browser, "main"))
        browser.find_element(By.ID, "archived").click()
        waited(browser, lambda: text_of(browser, "tbody .tag") == "baseline | lr-1")
        assert not browser.find_elements(By.CSS_SELECTOR, "main img, main script") and complaints(browser) == []


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """Runs of two algorithms and six seeds on two environments, a film and hostile settings among them."""
    folder = tmp_path_factory.mktemp("study")
    for algorithm, gain in (("ppo", 1.0), ("dqn", 2.0)):
        for seed in range(6):
            points = [(steps, gain * steps + seed) for steps in (0, 100, 200)]
            run = record(folder / f"{algorithm}{seed}", points, algorithm=algorithm, seed=seed, gamma=0.9)
            append(run, steps=210, seconds=21, **{"episode/mean_return": 1.0, "loss/value_loss": 2.0})
    run = record(folder / "other", [(0, 1.0), (100, 2.0)], env="Acrobot-v1", gamma=0.5, note=EVIL)
    append(run, steps=100, seconds=1, **{f"policy_lag/{name}": 1.0 for name in QUANTILES})
    (run.directory.path / "episode.jsonl").write_text('{"steps": 0, "seconds": 1, "reward/given": 1}\n')
    run.directory.log("it has begun")
    (run.directory.path / "videos").mkdir()
    (run.directory.path / "videos" / "step-1.mp4").write_bytes(b"no film")
    with dashboard_of(folder) as served:
        yield served


def choose(browser, id_, value):
    browser.execute_script(
        "const control = document.getElementById(arguments[0]); control.value = arguments[1];"
        "for (const name of ['input', 'change']) control.dispatchEvent(new Event(name))",
        id_, value,
    )  # fmt: skip


@pytest.mark.long
def test_curves_of_many_runs_are_grouped_with_seeds_as_one_band(browser, study):
    browser.get(study.address)
    waited(browser, lambda: browser.find_elements(By.LINK_TEXT, "Curves of these runs"))[0].click()
    waited(browser, lambda: "13 of 13 runs have this metric" in text_of(browser, "main"))
    assert text_of(browser, "figcaption .title") == (
        "evaluation/mean_return on Acrobot-v1 | evaluation/mean_return on CartPole-v1"
    )
    assert waited(browser, lambda: drawn_colors(browser) > 3)
    show_table(browser, "evaluation/mean_return on CartPole")
    heads = waited(browser, lambda: text_of(browser, "figure table thead th"))
    assert heads == "steps | dqn (6) | dqn low | dqn high | ppo (6) | ppo low | ppo high"
    low, high = interval(interquartile_mean, [np.arange(400.0, 406.0)], resamples=2000)
    assert f"402.5 | {low:.1f} | {high:.1f}" in text_of(browser, "figure table tr:last-child td")
    choose(browser, "words", "ppo cart")
    waited(browser, lambda: "6 of 6 runs have this metric" in text_of(browser, "main"))
    browser.find_element(By.CSS_SELECTOR, ".group summary").click()
    browser.find_element(By.ID, "sought").send_keys("gam")
    assert not browser.find_element(By.CSS_SELECTOR, "input[value=seed]").is_displayed()
    assert browser.find_element(By.CSS_SELECTOR, "input[value=algorithm]").is_displayed(), "it is chosen"
    choose(browser, "sought", "see")
    browser.find_element(By.CSS_SELECTOR, "input[value=seed]").click()
    waited(browser, lambda: "ppo, seed=5 (1)" in text_of(browser, ".legend"))
    choose(browser, "y", "loss/value_loss")
    waited(browser, lambda: text_of(browser, "figcaption .title") == "loss/value_loss on CartPole-v1")
    choose(browser, "from", "0")
    choose(browser, "to", "100")
    browser.find_element(By.CSS_SELECTOR, "[data-pan=later]").click()
    assert [browser.find_element(By.ID, end).get_property("value") for end in ("from", "to")] == ["50", "150"]
    waited(browser, lambda: "zoom=50%2C150" in browser.current_url)
    address = browser.current_url
    browser.get("about:blank")
    browser.get(address)
    waited(browser, lambda: "ppo, seed=5 (1)" in text_of(browser, ".legend"))
    assert complaints(browser) == []


def saved_picture(browser, title, kind):
    """Media type and text of the picture that a button of a chart or drawing saves."""
    return browser.execute_async_script(
        "const [title, kind, done] = arguments, make = URL.createObjectURL;"
        "URL.createObjectURL = (blob) => {"
        "  if (blob.type.includes(kind.toLowerCase())) blob.text().then((text) => done([blob.type, text]));"
        "  return make(blob); };"
        "const chart = [...document.querySelectorAll('figure')].find((each) =>"
        "each.textContent.includes(title) || each.querySelector(`[aria-label='${title}']`));"
        "[...chart.querySelectorAll('button')].find((button) => button.textContent === kind).click();",
        title, kind,
    )  # fmt: skip


def test_distributions_are_bands_and_a_recent_episode_has_charts_of_its_own(browser, runs):
    run = record(runs / "spread", state="running")
    values = {name: [low, low + 2.0] for name, low in zip(QUANTILES, (1.0, 2.0, 3.0, 5.0, 9.0), strict=True)}
    for row, steps in enumerate((600, 700)):
        line = {f"evaluation/return/{name}": each[row] for name, each in values.items()}
        append(run, steps=steps, seconds=steps / 10, **line)
    steps = [{"steps": n, "seconds": 1.0, "reward/given": float(n == 4), f"reward/{EVIL}": 0.2} for n in range(5)]
    (run.directory.path / "episode.jsonl").write_text("".join(f"{json.dumps(step)}\n" for step in steps))
    sooner = "const make = setInterval; window.setInterval = (act, pause) => make(act, Math.min(pause, 300));"
    hurried = browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": sooner})
    with dashboard_of(runs) as served:
        open_run(browser, served, "spread")
        browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", hurried)
        waited(browser, lambda: "Recent episode" in text_of(browser, ".index button"))
        title = "Returns within an evaluation"
        find = f"[...document.querySelectorAll('figure')].find((each) => each.textContent.startsWith('{title}'))"
        browser.execute_script(f"{find}.scrollIntoView()")
        legend = waited(browser, lambda: browser.execute_script(f"return {find}.querySelector('.legend').textContent"))
        assert legend == "median 5 (3 to 11)bands: min to max, 25 to 75 %"
        assert saved_picture(browser, title, "SVG")[1].count("<polygon") == 2
        browser.execute_script(f"{find}.querySelector('.legend button').click()")
        assert saved_picture(browser, title, "SVG")[1].count("<polygon") == 0, "a hidden median has no bands"
        browser.execute_script("document.querySelector('[aria-label^=Rewards]').scrollIntoView()")
        waited(browser, lambda: f"given 1.000 | {EVIL} 0.200" in text_of(browser, ".legend button"))
        (run.directory.path / "episode.jsonl").write_text('{"steps": 0, "seconds": 2.0, "reward/given": 7.0}\n')
        waited(browser, lambda: "given 7" in text_of(browser, "[aria-label^=Rewards], figcaption .value"))
        assert not browser.find_elements(By.CSS_SELECTOR, "main img, main script") and complaints(browser) == []


def test_a_picture_is_what_the_chart_shows(browser, study):
    browser.get(study.address)
    shown = "#/curves?y=evaluation/mean_return&by=algorithm&band=minmax&logY=1&zoom=50,250"
    browser.get(f"{study.address.partition('?')[0]}{shown}")
    waited(browser, lambda: browser.find_elements(By.CSS_SELECTOR, "figure canvas"))
    kind, picture = saved_picture(browser, "CartPole", "SVG")
    drawn = ElementTree.fromstring(picture)
    space = {"": "http://www.w3.org/2000/svg"}
    words = [text.text for text in drawn.findall(".//text", space)]
    assert kind == "image/svg+xml" and words[0] == "evaluation/mean_return on CartPole-v1 over steps"
    assert {"ppo (6)", "dqn (6)"} < set(words)
    of_y = {text.text: float(text.get("y")) for text in drawn.findall(".//text[@text-anchor='end']", space)}
    assert of_y["100"] - of_y["200"] == pytest.approx(of_y["200"] - of_y["400"], abs=0.3), "logarithms have equal steps"
    assert len(drawn.findall(".//polygon", space)) == len(drawn.findall(".//polyline", space)) == 2
    assert saved_picture(browser, "CartPole", "PNG")[0] == "image/png" and complaints(browser) == []


@pytest.mark.long
def test_charts_are_printed_light_and_whole_even_those_never_in_view(browser, runs):
    ended = record(runs / "paper", state="finished")
    append(ended, steps=600, seconds=60.0, **{"loss/policy": 1.0, "loss/value": 2.0})
    append(ended, steps=700, seconds=70.0, **{"loss/policy": 0.5, "loss/value": 1.0})
    with dashboard_of(runs) as served:
        open_run(browser, served, "paper")
        waited(browser, lambda: browser.find_elements(By.CSS_SELECTOR, "figure canvas"))
        browser.execute_script("document.documentElement.dataset.theme = 'dark'; localStorage.setItem('theme', 'dark')")
        count = (
            "return [document.documentElement.dataset.theme,"
            " ...['figure', 'figure canvas', '.on-paper polyline'].map((css) => document.querySelectorAll(css).length)]"
        )
        seeing = f"window.addEventListener('beforeprint', () => {{ window.seen = (() => {{ {count}; }})(); }})"
        browser.execute_script(seeing)
        browser.execute_cdp_cmd("Page.printToPDF", {})
        theme, figures, drawn, lines = browser.execute_script("return window.seen")
        assert theme == "light" and figures == drawn <= lines
        assert browser.execute_script(count)[::3] == ["dark", 0] and complaints(browser) == []


def test_chosen_runs_are_compared_with_the_keyboard_alone(browser, study):
    browser.get(study.address)
    waited(browser, lambda: browser.find_elements(By.CSS_SELECTOR, "tbody input"))
    for name in ("ppo0", "other"):
        browser.find_element(By.CSS_SELECTOR, f"[aria-label='Choose {name}']").send_keys(Keys.SPACE)
    waited(browser, lambda: "2 chosen runs" in text_of(browser, ".ways"))
    link = browser.find_element(By.PARTIAL_LINK_TEXT, "What differs")
    link.send_keys(Keys.ENTER)
    waited(browser, lambda: "Differences" in text_of(browser, "h1"))
    rows = text_of(browser, "tbody tr")
    assert "gamma0.90.5" in rows and EVIL in rows and "run_dir" not in rows
    assert not browser.find_elements(By.CSS_SELECTOR, "main img, main script") and complaints(browser) == []


def of_kinds(runs):
    """A population of two with games, a node, and hostile names."""
    run = record(runs / "kinds")
    matches = [{"opponent": EVIL, "seat": "a", "wins": 3, "draws": 1, "losses": 0, "mean_return": 0.5}]
    policies = [
        {"name": name, "steps": 600, "mean_return": 4.25, "rating": rating, "rating_error": 12.0,
         "eval_matches": matches, "tuned": {"gamma": 0.97}, "exploits": 1,
         "opponents": [{"steps": 64, "rating": 1.0, "score": 0.5, "wins": 1, "draws": 0, "losses": 1, "policy": EVIL}]}
        for name, rating in (("red", 50.0), (EVIL, -7.0))
    ]  # fmt: skip
    node = {"name": "node-0", "host": EVIL, "is_connected": True, "policy_lag": 1.0, "faults": 2, "missing": 0}
    node |= {"lanes": 8, "steps_per_second": 123.0, "bytes_per_second": 5e3, "stale": 1, "duplicates": 0, "learner": 0}
    path = run.directory.path / "status.json"
    left = node | {"name": "node-1", "is_connected": False, "has_left": True}
    gateway = node | {"name": "gateway-0", "nodes": 2, "nodes_connected": 1}
    changes = {"policies": policies, "gateways": [gateway], "nodes": [node, left], "nodes_requested": "1 to 2"}
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    config = json.loads((run.directory.path / "config.json").read_text())
    config["run"]["policies"] = ["red", EVIL]
    (run.directory.path / "config.json").write_text(json.dumps(config))
    for n in range(3):
        line = {f"policy/{policy}/loss/entropy": float(n) for policy in ("red", EVIL)}
        line |= {f"policy/{policy}/episode/mean_return": float(n) for policy in ("red", EVIL)}
        line |= {"time/rollout/env": 0.5, "node/node-0/steps_per_second": 5.0, "nodes/connected": 1 + n // 2}
        lags = zip(QUANTILES, (0.0, 0.0, 0.5, 1.5, 60.0), strict=True)
        line |= {f"policy/red/policy_lag/{name}": value for name, value in lags}
        append(run, steps=600 + n, seconds=60 + n, **line)
    (run.directory.path / "videos").mkdir()
    (run.directory.path / "videos" / "step-601.mp4").write_bytes(b"no film")
    events = [
        {"event": "start", "policy": "red", "steps": 0, "after": {"gamma": 0.9}},
        {"event": "exploit", "policy": EVIL, "steps": 300, "parent": "red", "parent_steps": 310,
         "scores": {"red": 5.0, EVIL: 1.0}, "before": {"gamma": 0.95}, "after": {"gamma": 0.97}},
    ]  # fmt: skip
    (run.directory.path / "lineage.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))


@pytest.mark.long
def test_whole_numbers_have_whole_ticks_and_an_end_without_its_band_is_not_in_the_range(browser, runs):
    of_kinds(runs)
    with dashboard_of(runs) as served:
        open_run(browser, served, "kinds")
        ticks = {}
        for title in ("Number of connected nodes", "Policy lag"):
            find = f"[...document.querySelectorAll('figure')].find((each) => each.textContent.startsWith('{title}'))"
            waited(browser, lambda find=find: browser.execute_script(f"return Boolean({find})"))
            browser.execute_script(f"{find}.scrollIntoView()")
            waited(browser, lambda find=find: browser.execute_script(f"return {find}.querySelector('canvas') !== null"))
            drawn = ElementTree.fromstring(saved_picture(browser, title, "SVG")[1])
            ends = drawn.iterfind(".//{http://www.w3.org/2000/svg}text[@text-anchor='end']")
            ticks[title] = {float(text.text) for text in ends}
        assert ticks["Number of connected nodes"] == {1.0, 2.0} and max(ticks["Policy lag"]) < 3.0


@pytest.mark.long
def test_policies_games_nodes_and_lineage_have_parts_of_the_page(browser, runs):
    of_kinds(runs)
    with dashboard_of(runs) as served:
        open_run(browser, served, "kinds")
        waited(browser, lambda: browser.find_elements(By.CSS_SELECTOR, ".lineage path"))
        index = text_of(browser, ".index button").split(" | ")
        assert index[:3] == ["Learning", "Policies", "Nodes"] and {"Population", "Speed", "Settings"} <= set(index)
        mark = ".mark[title='Video of step 601']:not([hidden])"
        waited(browser, lambda: browser.find_elements(By.CSS_SELECTOR, mark))
        rows = text_of(browser, "[aria-label=Policies] tbody tr")
        assert "red6004.25050 ± 121" in rows and f"{EVIL}6004.250-7 ± 121" in rows
        assert "75 % won, 25 % drawnof 4 games" in text_of(browser, "[aria-label^='Games won'] td")
        versions = "details [aria-label='Past versions'] tbody tr"
        assert text_of(browser, versions).startswith(f"red{EVIL}6410.50101 | rednow50 ± 12 | ")
        assert "0 of 1,000" in text_of(browser, ".facts dd") and "ended by" in text_of(browser, ".facts dt")
        rows = text_of(browser, "[aria-label=Nodes] tbody tr").split(" | ")
        assert rows[0].startswith(f"gateway-0{EVIL}connected1 of 2 nodes")
        assert rows[1].startswith(f"node-0{EVIL}connected") and rows[2].startswith(f"node-1{EVIL}left")
        assert "1 of 1 to 2 nodes are connected" in text_of(browser, "main p")
        assert len(browser.find_elements(By.CSS_SELECTOR, "[aria-label=Nodes] svg polyline")) == 1
        titles = text_of(browser, ".lineage title").split(" | ")
        kind, drawn = saved_picture(browser, "Lineage", "SVG")
        paths = [each for each in ElementTree.fromstring(drawn).iter() if each.tag.endswith("}path")]
        assert kind == "image/svg+xml" and paths
        assert all(path.get("stroke").startswith("rgb") or path.get("fill").startswith("rgb") for path in paths)
        kind, drawn = saved_picture(browser, "Lineage", "PNG")
        assert kind == "image/png" and len(drawn) > 4_000, "no more than paper"
        assert titles[1] == f"{EVIL} at 300 steps: exploit copies red; gamma 0.950 → 0.970"
        events = text_of(browser, "[aria-label='Events of the lineage'] tbody tr")
        assert events == f"{EVIL}300exploitred1.000, 5.000gamma 0.950 → 0.970"
        browser.find_element(By.XPATH, "//summary[text()='Past versions (4)']").click()
        path = runs / "kinds" / "status.json"
        path.write_text(path.read_text().replace('"score": 0.5', '"score": 0.75'))
        waited(browser, lambda: f"red{EVIL}6410.75101" in text_of(browser, versions))
        assert browser.find_element(By.CSS_SELECTOR, versions).is_displayed(), "details stay open"
        browser.execute_script("document.querySelector('.charts').scrollIntoView()")
        waited(browser, lambda: EVIL in text_of(browser, ".legend") and "red" in text_of(browser, ".legend"))
        assert not browser.find_elements(By.CSS_SELECTOR, "main img, main script") and complaints(browser) == []


@pytest.mark.long
def test_outliers_are_left_out_axes_are_logarithmic_and_the_mouse_moves_a_range(browser, runs):
    run = record(runs / "spiky")
    for n in range(1, 301):
        append(run, steps=n, seconds=n, **{"loss/policy": 1e6 if n == 150 else n % 5 + 1.0})

    def ends(side):
        drawn = ElementTree.fromstring(saved_picture(browser, "Policy", "SVG")[1])
        anchor = "end" if side == "y" else "middle"
        return [text.text for text in drawn.iterfind(f".//{{http://www.w3.org/2000/svg}}text[@text-anchor='{anchor}']")]

    def dragged(shift):
        browser.execute_script(
            "const over = document.querySelector('.u-over'), at = over.getBoundingClientRect();"
            "const send = (where, kind, x) => where.dispatchEvent(new MouseEvent(kind,"
            "  { bubbles: true, shiftKey: arguments[0], button: 0, clientX: at.left + x, clientY: at.top + 40 }));"
            "send(over, 'mousedown', 100); send(document, 'mousemove', 60); send(document, 'mouseup', 60);",
            shift,
        )

    with dashboard_of(runs) as served:
        open_run(browser, served, "spiky")
        assert any("k" in label or "M" in label for label in ends("y"))
        browser.execute_script("document.getElementById('clip').click()")
        waited(browser, lambda: not any("k" in label or "M" in label for label in ends("y")))
        browser.execute_script("document.getElementById('logX').click()")
        waited(browser, lambda: "100" in ends("x") and "10" in ends("x"))
        browser.execute_script("document.getElementById('logX').click()")
        choose(browser, "from", "100")
        choose(browser, "to", "200")
        waited(browser, lambda: "zoom=100%2C200" in browser.current_url)
        dragged(shift=True)
        waited(browser, lambda: "zoom=" in browser.current_url and "zoom=100%2C200" not in browser.current_url)
        low, high = map(float, browser.current_url.partition("zoom=")[2].partition("&")[0].split("%2C"))
        assert low > 100.0 and high - low == pytest.approx(100.0), "the range has moved"
        double = "document.querySelector('.canvas').dispatchEvent(new MouseEvent('dblclick', {bubbles: true}))"
        browser.execute_script(double)
        waited(browser, lambda: "zoom=" not in browser.current_url)
        assert complaints(browser) == []


@pytest.mark.long
def test_choices_of_drawing_are_kept_in_the_address(browser, runs, live):
    with dashboard_of(runs) as served:
        open_run(browser, served, "live")
        browser.execute_script("document.getElementById('logY').click()")
        choose(browser, "smooth", "0.9")
        choose(browser, "from", "305")
        choose(browser, "to", "315")
        waited(browser, lambda: "zoom=305%2C315" in browser.current_url)
        address = browser.current_url
        browser.get("about:blank")
        browser.get(address)
        waited(browser, lambda: browser.find_elements(By.CSS_SELECTOR, ".charts figure canvas"))
        assert browser.find_element(By.ID, "logY").is_selected()
        assert browser.find_element(By.ID, "from").get_property("value") == "305"
        assert browser.find_element(By.ID, "smooth").get_property("value") == "0.9"
        waited(browser, lambda: "not above 0" in text_of(browser, ".note"))
        browser.find_element(By.XPATH, "//button[text()='Whole range']").click()
        waited(browser, lambda: "zoom" not in browser.current_url)
        assert complaints(browser) == []


@pytest.mark.long
def test_frames_are_an_axis_where_a_run_has_them_and_pages_say_where_not(browser, runs, live):
    framed = record(runs / "framed", [(100, 1.0)])
    append(framed, steps=200, seconds=20, frames=800, **{"evaluation/mean_return": 2.0})
    append(framed, steps=300, seconds=30, frames=1200, **{"evaluation/mean_return": 3.0})
    options = "[...(document.getElementById('x')?.options ?? [])]"
    choices = f"return {options}.map((option) => [option.textContent, option.disabled])"
    with dashboard_of(runs) as served:
        open_run(browser, served, "live")
        waited(browser, lambda: ["frames (none)", True] in browser.execute_script(choices))
        browser.get(served.address + f"#/run/{browser.current_url.partition('#/run/')[2].partition('?')[0]}?x=frames")
        waited(browser, lambda: f"no frames: {NO_FRAMES}" in text_of(browser, "main"))
        browser.get("about:blank")
        open_run(browser, served, "framed")
        waited(browser, lambda: ["frames", False] in browser.execute_script(choices))
        choose(browser, "x", "frames")
        show_table(browser, "Return")
        waited(browser, lambda: text_of(browser, "figure table td") == "800.0 | 2.000 | 1,200 | 3.000")
        browser.get("about:blank")
        browser.get(served.address)
        waited(browser, lambda: browser.find_elements(By.LINK_TEXT, "Curves of these runs"))[0].click()
        waited(browser, lambda: ["frames", False] in browser.execute_script(choices))
        choose(browser, "x", "frames")
        waited(browser, lambda: f"1 of 2 runs have this metric over frames: {NO_FRAMES}" in text_of(browser, "main"))
        assert complaints(browser) == []


@pytest.mark.parametrize("place", ["#/run/nothing", "#/run/0123456789abcdef", "#/elsewhere"])
def test_an_unknown_place_is_told_and_is_not_the_overview(browser, runs, live, place):
    with dashboard_of(runs) as served:
        browser.get(served.address)
        waited(browser, lambda: "1 of 1 runs" in text_of(browser, "main"))
        browser.execute_script("location.hash = arguments[0]", place)
        waited(browser, lambda: "there is no such" in text_of(browser, "[role=alert]"))
        assert "of 1 runs" not in text_of(browser, "main")


def test_runs_without_a_common_stretch_are_single_lines_with_a_note(browser, runs):
    record(runs / "early", [(0, 1.0), (100, 2.0)])
    record(runs / "late", [(200, 3.0), (300, 4.0)])
    with dashboard_of(runs) as served:
        browser.get(served.address)
        waited(browser, lambda: browser.find_elements(By.LINK_TEXT, "Curves of these runs"))[0].click()
        waited(browser, lambda: "ppo: its 2 runs have no stretch in common" in text_of(browser, ".note"))
        show_table(browser, "evaluation/mean_return")
        rows = waited(browser, lambda: text_of(browser, "figure tbody tr"))
        assert rows == "0.01.000 | 100.02.000 | 200.03.000 | 300.04.000"


def test_chosen_runs_are_compared(browser, study):
    browser.get(study.address)
    waited(browser, lambda: "13 of 13 runs" in text_of(browser, "main"))
    for name in ("ppo0", "ppo1", "dqn0"):
        browser.find_element(By.CSS_SELECTOR, f"[aria-label='Choose {name}']").send_keys(Keys.SPACE)
    browser.find_element(By.LINK_TEXT, "Comparison of the 3 chosen runs").send_keys(Keys.ENTER)
    waited(browser, lambda: "3 of 3 runs are compared, in 2 groups" in text_of(browser, "[role=status]"))
    assert "dqn over ppo1.00" in text_of(browser, "section tbody tr")
    assert len(browser.find_elements(By.CSS_SELECTOR, "figure.chart svg[role=img]")) == 3
    _, drawn = saved_picture(browser, "Share of runs above a final return", "SVG")
    words = [each.text for each in ElementTree.fromstring(drawn).iter() if each.tag.endswith("}text")]
    assert words[0].startswith("Share of runs above a final return") and {"dqn", "ppo"} < set(words)
    assert len(saved_picture(browser, "Share of runs above a final return", "PNG")[1]) > 4_000
    assert "dqn0donedqnCartPole-v1400.0400.020.0 s200seconds, stepsdqn0" in text_of(browser, "[aria-label=Runs] tr")
    choose(browser, "first", "ppo")
    waited(browser, lambda: "ppo over dqn0.00" in text_of(browser, "section tbody tr"))
    browser.execute_script("document.querySelector('.keys input[value=seed]').click()")
    waited(browser, lambda: "in 3 groups" in text_of(browser, "[role=status]"))
    address = browser.current_url
    browser.get("about:blank")
    browser.get(address)
    waited(browser, lambda: "in 3 groups" in text_of(browser, "[role=status]"))
    assert not browser.find_elements(By.CSS_SELECTOR, "main img, main script") and complaints(browser) == []


@pytest.fixture(scope="module")
def search(tmp_path_factory):
    """A search of three trials, with a hostile setting; beside it a run and a population of runs with everything."""
    folder = tmp_path_factory.mktemp("searched") / "search"
    record(folder / "trial-0-seed-0", [(1, 1.0)])
    space = {"gamma": {"low": 0.9, "high": 0.99}, EVIL: {"values": [EVIL, [64, 64]]}}
    (folder / "search.json").write_text(json.dumps({"space": space}))
    lines = [{"op_code": 4}] * 3
    for n, gamma in enumerate((0.9, 0.95, 0.99)):
        lines += [{"op_code": 5, "trial_id": n, "param_name": "gamma", "param_value_internal": gamma}]
        lines += [{"op_code": 5, "trial_id": n, "param_name": EVIL, "param_value_internal": n % 2}]
        lines += [{"op_code": 6, "trial_id": n, "state": 1, "values": [10.0 * n]}]
    (folder / "journal.log").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    of_kinds(folder.parent)
    population_of_runs(folder.parent)
    with dashboard_of(folder.parent, "--control") as served:
        yield served


def population_of_runs(runs):
    for member in ("0", "1"):
        record(runs / "pbt" / f"member-{member}", [(100, 5.0)])
    events = [
        {"event": "start", "policy": "0", "steps": 0, "after": {"gamma": 0.9}},
        {"event": "start", "policy": EVIL, "steps": 0, "after": {"gamma": 0.95}},
        {"event": "exploit", "policy": "0", "steps": 50, "parent": EVIL, "scores": {"0": 1.0, EVIL: 2.0},
         "after": {"gamma": 0.97}},
    ]  # fmt: skip
    (runs / "pbt" / "lineage.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))


@pytest.mark.long
def test_a_search_follows_its_trials(browser, runs):
    folder = runs / "search"
    record(folder / "trial-0-seed-0", [(100, 5.0)])
    (folder / "search.json").write_text('{"space": {"gamma": {"low": 0.9, "high": 0.99}}}')
    (folder / "journal.log").write_text('{"op_code": 4}\n')
    with dashboard_of(runs) as served:
        (searched,) = json.loads(served.ask("/api/runs")[2])["searches"]
        browser.get(served.address)
        browser.execute_script("location.hash = arguments[0]", f"#/search/{searched['id']}")
        waited(browser, lambda: "1 of 1 trials" in text_of(browser, "main"))
        with open(folder / "journal.log", "a") as file:
            file.write('{"op_code": 4}\n')
        record(folder / "trial-1-seed-0", [(100, 7.0)])
        waited(browser, lambda: "2 of 2 trials" in text_of(browser, "main"))
        assert complaints(browser) == []


@pytest.mark.long
def test_trials_of_a_search_are_narrowed_by_the_keyboard(browser, search):
    browser.get(search.address)
    waited(browser, lambda: browser.find_elements(By.LINK_TEXT, "search"))[0].send_keys(Keys.ENTER)
    waited(browser, lambda: "3 of 3 trials: 3 done" in text_of(browser, "[role=status]"))
    rows = "[aria-label='Best trials'] tbody tr:not([hidden])"
    assert text_of(browser, rows) == f"2done20.00.99{EVIL} | 1done10.00.95[64, 64] | 0done0.00.9{EVIL}trial-0-seed-0 "
    low = browser.find_element(By.CSS_SELECTOR, "[aria-label='gamma, lowest']")
    low.send_keys(Keys.ARROW_RIGHT * 10)
    waited(browser, lambda: "2 of 3 trials" in text_of(browser, "[role=status]"))
    assert low.get_attribute("aria-valuetext") == "0.909" and "0done" not in text_of(browser, rows)
    assert browser.find_element(By.CSS_SELECTOR, ".trial.out").get_attribute("data-trial") == "0"
    assert not browser.find_elements(By.CSS_SELECTOR, "main img, main script") and complaints(browser) == []


@pytest.mark.long
def test_a_population_of_runs_shows_who_copied_whom(browser, runs):
    population_of_runs(runs)
    with dashboard_of(runs) as served:
        (population,) = json.loads(served.ask("/api/runs")[2])["searches"]
        browser.get(f"{served.address}#/search/{population['id']}")
        waited(browser, lambda: text_of(browser, "h1") == "Population pbt")
        waited(browser, lambda: "Arrows lead from a member to its copy" in text_of(browser, "main"))
        browser.find_element(By.CSS_SELECTOR, "details summary").send_keys(Keys.ENTER)
        rows = "[aria-label='Events of the lineage'] tbody tr"
        waited(browser, lambda: f"050exploit{EVIL}" in text_of(browser, rows))
        assert "gamma 0.970" in text_of(browser, rows)
        assert not browser.find_elements(By.CSS_SELECTOR, "main img, main script") and complaints(browser) == []


def test_files_are_listed_and_their_text_is_shown(browser, study):
    browser.get(study.address)
    waited(browser, lambda: browser.find_elements(By.LINK_TEXT, "other"))[0].click()
    waited(browser, lambda: "step-1.mp4" in text_of(browser, "figcaption"))
    browser.find_element(By.LINK_TEXT, "Files").click()
    waited(browser, lambda: browser.find_elements(By.CSS_SELECTOR, "[aria-label='Show log.txt']"))[0].click()
    waited(browser, lambda: "it has begun" in text_of(browser, ".log"))
    assert not browser.find_elements(By.CSS_SELECTOR, "[aria-label='Show videos/step-1.mp4']")
    browser.find_element(By.CSS_SELECTOR, "[aria-label='Show config.json']").click()
    waited(browser, lambda: EVIL.replace('"', '\\"') in text_of(browser, ".log"))
    assert not browser.find_elements(By.CSS_SELECTOR, "main img, main script") and complaints(browser) == []


CONTROLS = """[...document.querySelectorAll(
"a[href], button, input, select, textarea, summary, video, [tabindex='0']")]"""
TABBED = f"""
window.reached = new Set(), window.bare = [];
document.addEventListener("focusin", ({{ target }}) => {{
  window.reached.add(target);
  const hasNone = getComputedStyle(target).outlineStyle === "none";
  if (hasNone && target.matches(":focus-visible")) window.bare.push(target.outerHTML);
}});
document.activeElement.blur();
return {CONTROLS}.filter((each) => each.checkVisibility()).length;
"""
"""Begins to note which controls are focused; returns the number of visible ones."""
UNREACHED = f"""
const missed = {CONTROLS}.filter((each) => each.checkVisibility() && !each.disabled && !window.reached.has(each));
return [...missed.map((each) => each.outerHTML.slice(0, 200)), ...window.bare];
"""
"""Controls that were not focused, or show no outline with the focus."""


needs_axe = pytest.mark.skipif(not AXE.is_file(), reason="axe-core is not installed: make browser")


@needs_axe
@pytest.mark.parametrize("is_search", [pytest.param(False, marks=pytest.mark.long), True])
def test_every_page_is_accessible_in_both_themes(browser, study, search, is_search):
    source = AXE.read_text()
    assert hashlib.sha256(source.encode()).hexdigest() == AXE_HASH
    browser.get((search if is_search else study).address)
    ids = {run["run"]: run["id"] for run in json.loads(study.ask("/api/runs")[2])["runs"]}
    one, other = ids["ppo0"], ids["other"]
    told = json.loads(search.ask("/api/runs")[2])
    searched = {each["name"]: each["id"] for each in told["searches"]}
    (kinds,) = [run["id"] for run in told["runs"] if run["run"] == "kinds"]
    pages = {
        f"#/search/{searched['search']}": "3 of 3 trials", f"#/search/{searched['pbt']}": "Arrows lead from a member",
        f"#/run/{kinds}": "Arrows lead from a policy",
    } if is_search else {
        "#/": "13 of 13 runs", f"#/run/{other}": "it has begun", "#/curves": "runs have this metric",
        "#/compare?words=": "13 of 13 runs are compared",
        f"#/differences?runs={one},{other}": "gamma", f"#/run/{other}/files": "config.json",
    }  # fmt: skip
    for theme in ("light", "dark"):
        browser.execute_script("localStorage.setItem('theme', arguments[0])", theme)
        browser.refresh()
        for page, words in pages.items():
            browser.execute_script("location.hash = arguments[0]", page)
            waited(browser, lambda words=words: words in text_of(browser, "main"))
            browser.execute_script("document.querySelectorAll('.tools [aria-pressed]').forEach((it) => it.click())")
            browser.execute_script(f"if (!window.axe) {{ {source} }}")
            found = browser.execute_async_script("const done = arguments[0]; axe.run().then(done)")
            complaints_of = [(one["id"], [node["html"][:200] for node in one["nodes"]]) for one in found["violations"]]
            assert complaints_of == [], f"{page} in {theme}"
            assert len(found["passes"]) > 10
            if theme == "light":
                count = browser.execute_script(TABBED)
                assert count > 3
                browser.find_element(By.TAG_NAME, "body").send_keys(Keys.TAB * (2 * count + 10))
                assert browser.execute_script(UNREACHED) == [], f"the tab key does not reach this on {page}"


@needs_axe
def test_a_report_is_accessible(browser, tmp_path):
    of_kinds(tmp_path / "runs")
    record(tmp_path / "runs" / "other", [(100, 2.0), (200, 3.0)], gamma=0.5)
    page = tmp_path / "report.html"
    page.write_bytes(report_html(find_runs([tmp_path / "runs"])))
    browser.get(page.as_uri())
    browser.execute_script(AXE.read_text())
    found = browser.execute_async_script("const done = arguments[0]; axe.run().then(done)")
    assert [(one["id"], [node["html"][:200] for node in one["nodes"]]) for one in found["violations"]] == []
    assert len(found["passes"]) > 10
