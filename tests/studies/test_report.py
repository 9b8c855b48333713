"""Reports are files of their own: they need nothing from elsewhere, run nothing, and replace reports alone."""

import json
import re
from html.parser import HTMLParser

import numpy as np

from penstock.cli import main
from penstock.runs.descriptions import charts_of
from penstock.runs.drawing import chart_html
from penstock.runs.labels import Labels, change_labels
from penstock.runs.reading import find_runs
from penstock.studies.report import report_html
from penstock.studies.searches import search_page
from tests.studies.recorded import record

EVIL = "<img src=x onerror=alert(1)>\"'</script><script>alert(1)</script>"


def append(run, name="metrics.jsonl", **line):
    with open(run.directory.path / name, "a") as file:
        file.write(json.dumps({"time": 1.7e9, **line}) + "\n")


class Tags(HTMLParser):
    """Tags, attributes and text of a page."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.attributes, self.text = set(), [], []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        self.attributes += attributes

    def handle_data(self, data):
        self.text.append(data)


def test_a_report_has_what_the_runs_have_and_what_differs(tmp_path, capsys):
    one = record(tmp_path / "one", [(100, 5.0), (200, 7.0)], gamma=0.9, target=9.0)
    record(tmp_path / "two", [(100, 6.0)], gamma=0.5)
    append(one, steps=200, seconds=20, **{"loss/entropy": 0.25, "time/rollout/env": 0.5, "time/rollout/wait": 0.5})
    append(one, "hardware.jsonl", steps=200, seconds=20, **{"cpu/0": 0.5})
    one.directory.log("it has begun")
    one.directory.record_parent(0, tmp_path.parent / "base", {"steps": 10_000})
    change_labels(one.directory.path, lambda _: Labels(("baseline",), "the first one"))
    out = tmp_path / "report.html"
    assert main(["report", str(tmp_path), "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}: 2 runs\n"
    page = Tags(out.read_text())
    text = " ".join(page.text)
    assert str(tmp_path / "one") not in text.partition("Settings")[0], "a run has the name of its directory"
    told = ("baseline; the first one", "Differences", "gamma", "Entropy", "it has begun", "Busy cores", "target 9.000",
            "weights from base at step 10,000")  # fmt: skip
    for words in ("Report of 2 runs", *told):
        assert words in text, words
    assert "Return, evaluations on CartPole-v1" in text, "runs of an environment are compared"
    assert "Share of runs above a final return, CartPole-v1" in text
    assert text.count("dashed, with rings: the front") == 2
    assert "Final return, CartPole-v1" in text and "Best return, CartPole-v1" in text and "interval" in text
    assert {"table", "svg", "polyline", "polygon"} <= page.tags


def test_a_population_has_its_lineage(tmp_path):
    run = record(tmp_path / "run", [(1, 1.0)])
    events = [
        {"event": "start", "policy": "a", "steps": 0, "after": {}},
        {"event": "start", "policy": EVIL, "steps": 0, "after": {}},
        {"event": "exploit", "policy": EVIL, "steps": 100, "parent": "a", "parent_steps": 50, "after": {"gamma": 0.9}},
        {"event": "exploit", "policy": "a", "steps": 100, "parent": "unknown", "after": {}},
    ]
    (run.directory.path / "lineage.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    page = report_html([run]).decode()
    # Lanes of 44 below 14, from 110 to 880: a copy at 100 of 100 steps, of weights of 50 steps, with an arrow of 9.
    assert 'x1="495.0" y1="36.0" x2="880.0" y2="71.0"' in page and 'd="M 880.0 80.0 l -5 -9 l 10 0 z"' in page
    assert page.count("<circle") == 4, "two beginnings, a change of settings, and the evaluation"
    assert "<script" not in page
    text = re.sub(r"\s+", " ", " ".join(Tags(page).text))
    assert f"policy steps event copied from settings {EVIL} 100 exploit a gamma 0.900" in text, "print has no tooltips"


def test_games_and_past_versions_of_policies_are_tables_and_a_rating_has_its_interval(tmp_path):
    run = record(tmp_path / "run", [(100, 1.0)], target=5.0)
    games = {"seat": "a", "mean_return": 0.0, "opponent": EVIL}
    versions = [{"steps": 64, "rating": 1.0, "score": 0.5, "wins": 2, "draws": 1, "losses": 1, "policy": "red"}]
    policies = [
        {"name": "red", "steps": 1, "eval_matches": [{**games, "wins": 3, "draws": 1, "losses": 0}]},
        {"name": "blue", "steps": 1, "opponents": versions, "rating": 50.0, "rating_error": 12.0},
    ]
    path = run.directory.path / "status.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"policies": policies}))
    for at, rating in ((100, 10.0), (200, 50.0)):
        ends = {"": rating, "/low": rating - 12, "/high": rating + 12}
        append(run, steps=at, seconds=at, **{f"policy/blue/opponents/rating{end}": ends[end] for end in ends})
    page = report_html(find_runs([tmp_path])).decode()
    text = re.sub(r"\s+", " ", " ".join(Tags(page).text))
    assert f"policy against {EVIL} against past versions of red".replace("  ", " ") in text
    assert "75 % won, 25 % drawn of 4 games" in text and "50 % won, 25 % drawn of 4 games" in text
    assert page.count('<svg class="games"') == 2 and 'c0" x="0.0" width="75.0"' in page
    assert "Past versions policy against steps rating score now won drawn lost blue red 64 1 0.50 2 1 1" in text
    assert "bands: 95 % interval" in text and page.count('<polygon class="band') == 1
    assert "steps 100 of 1,000" in text and "evaluation 1.000 of 5.000" in text and "Limited by learner" in text


def test_a_report_runs_nothing_and_asks_for_nothing(tmp_path):
    run = record(tmp_path / "evil<b>", [(1, 1.0)], env=EVIL, algorithm=EVIL, state="failed", reason=EVIL, note=EVIL)
    append(run, steps=2, seconds=2, **{f"loss/{EVIL}": 1.0, f"policy/{EVIL}/loss/x": 2.0, "__proto__": 1.0})
    run.directory.log(EVIL)
    page = report_html([run]).decode()
    tags = Tags(page)
    assert not tags.tags & {"script", "img", "iframe", "object", "link", "base", "form", "a"}
    assert not [name for name, _ in tags.attributes if name.startswith("on") or name in ("style", "src", "href")]
    policy = next(value for name, value in tags.attributes if name == "content" and "default-src" in value)
    assert policy.startswith("default-src 'none'; style-src 'sha256-") and "unsafe" not in policy
    assert EVIL in "".join(tags.text) and not re.search(r"https?://|@import|url\(", re.sub(r"&[^;]+;", "", page))


def test_a_search_has_its_figures_and_the_runs_of_its_best_trials(tmp_path, capsys):
    search, out = tmp_path / "search", tmp_path / "report.html"
    operations = []
    for n in range(9):
        record(search / f"trial-{n}-seed-0", [(100, float(n))], gamma=0.9 + 0.01 * n, api_token="SECRET")
        operations += [
            {"op_code": 4, "study_id": 0},
            {"op_code": 5, "trial_id": n, "param_name": "gamma", "param_value_internal": 0.9 + 0.01 * n},
            {"op_code": 6, "trial_id": n, "state": 3 if n == 8 else 1, "values": [float(n)]},
        ]
    (search / "search.json").write_text(json.dumps({"space": {"gamma": {"low": 0.9, "high": 0.99}}}))
    (search / "journal.log").write_text("".join(f"{json.dumps(line)}\n" for line in operations))
    other = record(tmp_path / EVIL[:9], [(100, 1.0)])
    assert main(["report", str(search), str(other.directory.path), "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}: 6 runs\n"
    text = " ".join(Tags(out.read_text()).text)
    assert "Report of search search, 6 runs" in text and "9 trials: 8 done, 1 failed" in text
    for words in ("Value of each trial", "Best trials", "importance of settings gamma", "trial-7-seed-0"):
        assert words in re.sub(r"\s+", " ", text.replace("share", "")), words
    assert "trial-2-seed-0" not in text and "SECRET" not in text, "runs of the five best trials"
    assert out.read_text().count('class="trial v') == 9 and "Lineage" not in text


def test_a_population_of_runs_has_a_lineage_of_its_members(tmp_path):
    for member in ("0", "1"):
        record(tmp_path / "pbt" / f"member-{member}", [(100, 5.0)])
    events = [
        {"event": "start", "policy": "0", "steps": 0, "after": {"gamma": 0.9}},
        {"event": "start", "policy": "1", "steps": 0, "after": {"gamma": 0.95}},
        {"event": "exploit", "policy": "0", "steps": 50, "parent": "1", "parent_steps": 60,
         "scores": {"0": 1.0, "1": 2.0}, "before": {"gamma": 0.9}, "after": {"gamma": 0.97}},
    ]  # fmt: skip
    (tmp_path / "pbt" / "lineage.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    page = search_page(tmp_path / "pbt", find_runs([tmp_path / "pbt"]))
    assert [event["change"] for event in page["lineage"]["events"]][-1] == "gamma 0.900 → 0.970"
    assert page["lineage"]["picture"].count('x1="110.0" x2="880.0"') == 2, "lanes end at the steps of the members"
    assert main(["report", str(tmp_path / "pbt"), "--out", str(tmp_path / "report.html")]) == 0
    report = (tmp_path / "report.html").read_text()
    assert page["lineage"]["picture"] in report and "0 at 50 steps: exploit copies 1; gamma 0.900 → 0.970" in report
    assert "member-0" in report and "member-1" in report


def test_films_lie_in_the_report_where_there_is_room(tmp_path, monkeypatch):
    run = record(tmp_path / "run", [(1, 1.0)])
    videos = run.directory.path / "videos"
    videos.mkdir()
    for name, data in (("step-900.mp4", b"large"), ("step-1000.mp4", b"new"), (f"{EVIL[:9]}.mp4", b"")):
        (videos / name).write_bytes(data)
    (tmp_path / "secret.mp4").write_text("x")
    (videos / "step-1.mp4").symlink_to(tmp_path / "secret.mp4")
    monkeypatch.setattr("penstock.studies.report._MOST_VIDEO_NBYTES", 7)
    page = report_html([run]).decode()
    assert [value for name, value in Tags(page).attributes if name == "src"] == [
        "data:video/mp4;base64,bmV3", "data:video/mp4;base64,"
    ]  # fmt: skip
    assert page.index("Step 900") < page.index("not in this file") < page.index("Step 1,000")
    assert EVIL[:9] not in page and "Step 1<" not in page


def test_secrets_are_masked(tmp_path):
    run = record(tmp_path / "run", [(1, 1.0)], env_kwargs={"api_token": "SECRET", "size": 3})
    assert b"SECRET" not in report_html([run]) and b"api_token" in report_html([run])


def test_nothing_is_replaced(tmp_path, capsys):
    record(tmp_path / "runs" / "run", [(1, 1.0)])
    out, link = tmp_path / "report.html", tmp_path / "link.html"
    assert main(["report", str(tmp_path / "runs"), "--out", str(out)]) == 0
    written = out.read_bytes()
    link.symlink_to(tmp_path / "nothing")
    for file in (out, link, tmp_path / "runs"):
        assert main(["report", str(tmp_path / "runs"), "--out", str(file)]) == 2
        assert "it exists; give another name, or remove it first" in capsys.readouterr().err
    assert out.read_bytes() == written and not link.exists()
    assert main(["report", str(tmp_path / "runs"), "--out", str(tmp_path / "no" / "report.html")]) == 2
    (tmp_path / "empty").mkdir()
    assert main(["report", str(tmp_path / "empty")]) == 2
    assert "0 runs in" in capsys.readouterr().err
    assert main(["report"]) == 2
    assert "no run is given: penstock report RUN... --out FILE" in capsys.readouterr().err


def test_points_of_a_chart_are_where_their_values_are():
    (chart,) = charts_of(["loss/x"])
    shown = chart_html(chart, {"steps": [0.0, 50.0, 100.0, 100.0], "loss/x": [0.0, 1.0, None, 2.0]})
    (points,) = re.findall(r'<polyline[^>]* points="([^"]*)"', shown)
    x, y = np.array([[float(each) for each in point.split(",")] for point in points.split()]).T
    # 480 wide with margins of 58 and 8; 220 high with 8 and 24, of which 5 % of the range of 2 above and below.
    np.testing.assert_allclose(x, [58, 58 + 414 / 2, 472])
    np.testing.assert_allclose(y, [196 - 188 * 0.1 / 2.2, 196 - 188 * 1.1 / 2.2, 196 - 188 * 2.1 / 2.2], atol=0.06)


def test_a_band_lies_between_its_ends_behind_the_line_of_the_median():
    names = [f"evaluation/return/{name}" for name in ("min", "median", "max")]
    (chart,) = charts_of(names)
    values = dict(zip(names, ([0.0, None, 1.0], [1.0, 1.0, 1.5], [2.0, 2.0, 2.0]), strict=True))
    shown = chart_html(chart, {"steps": [0.0, 50.0, 100.0], **values})
    # 5 % of the range of 2 above and below; at 50 one end is not known.
    band, top, bottom = "58.0,16.5 472.0,16.5 472.0,102.0 58.0,187.5", "58.0,102.0", "472.0,59.3"
    (polygon,), (line,) = (
        re.findall(rf'<{tag} class="[^"]*"[^>]* points="([^"]*)"', shown) for tag in ("polygon", "polyline")
    )
    assert polygon == band and line.startswith(top) and line.endswith(bottom)
    assert shown.index("<polygon") < shown.index("<polyline") and "bands: min to max" in shown


def test_areas_are_stacked_and_parts_that_are_never_there_are_left_out():
    (chart,) = charts_of(["time/learner/learn", "time/learner/gather", "time/learner/wait for data"])
    columns = {
        "steps": [0.0, 100.0], "time/learner/learn": [0.25, 0.5], "time/learner/gather": [0.0, 0.0],
        "time/learner/wait for data": [0.75, 0.25],
    }  # fmt: skip
    shown = chart_html(chart, columns)
    first, second = re.findall(r'<polygon[^>]* points="([^"]*)"', shown)
    assert first == "58.0,149.0 472.0,102.0 472.0,196.0 58.0,196.0", "0.25 and 0.5 of 188, above 0"
    assert second == "58.0,8.0 472.0,55.0 472.0,102.0 58.0,149.0"
    assert "gather" not in shown
    assert chart_html(chart, {name: [0.0] for name in columns}) == ""


def test_the_lines_of_twenty_runs_differ_in_color_or_dashes(tmp_path):
    runs = [record(tmp_path / f"run-{number}", [(0, 1.0), (100, 2.0)]) for number in range(20)]
    comparison = report_html(runs).decode().partition("<h2>Comparison</h2>")[2].partition("</div></figure>")[0]
    lines = re.findall(r'<polyline class="line (c\d)" stroke-dasharray="([\d ]*)"', comparison)
    assert len(lines) == len(set(lines)) == 20
