"""Legal requests of the dashboard; all others are refused."""

import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest

from penstock.dashboard.files import RunFile, pieces_of, text_of
from penstock.redaction import masked, masked_command
from penstock.runs.lock import LOCK
from penstock.studies.searches import importance_of
from tests.dashboard.serving import dashboard_of, event
from tests.studies.recorded import record

pytest.importorskip("uvicorn", reason="the extra dashboard is not installed")
pytest.importorskip("starlette", reason="the extra dashboard is not installed")

EVIL = "<script>document.title='evil'</script>"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with an ordinary run, a copied one that means harm, and secrets beside it."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "secret.json").write_text('{"state": "SECRET", "algorithm": "SECRET", "run": {}}')
    runs = folder / "runs"
    secrets = {"api_token": "SECRET", "deep": [{"password": "SECRET"}], "plain": "shown"}
    good = record(runs / "good", [(100, 5.0), (200, 7.0)], env_kwargs=secrets, target=9.0)
    (good.directory.path / "videos").mkdir()
    (good.directory.path / "videos" / "step-1.mp4").write_bytes(b"film")
    (good.directory.path / "videos" / "z.mp4").symlink_to(folder / "secret.json")
    (good.directory.path / "videos" / "notes.txt").write_text("SECRET")
    config = json.loads((runs / "good" / "config.json").read_text())
    config["run"]["command"] = "penstock train ppo --api-token SECRET --env-kwargs password=SECRET --gamma 0.9"
    evil = record(runs / "evil", [(1, 1.0)], env=EVIL, algorithm=EVIL).directory
    evil.info["parents"] = [{"path": EVIL, "run": {"a": 1}, "steps": "9"}, {"path": 3}]
    evil.record_resumption(1, {})
    parent = {"path": "/away/evil", "run": evil.info["id"], "steps": 1000, "password": "SECRET"}
    config["run"]["parents"] = [parent]
    (runs / "good" / "config.json").write_text(json.dumps(config))
    for name in ("log.txt", "hardware.jsonl"):
        (runs / "evil" / name).symlink_to(folder / "secret.json")
    for name, link in (("a", "config.json"), ("b", "status.json"), ("c", "metrics.jsonl")):
        record(runs / name)
        (runs / name / link).unlink()
        (runs / name / link).symlink_to(folder / "secret.json")
    (runs / "out").symlink_to(folder, target_is_directory=True)
    return runs


@pytest.fixture(scope="module")
def served(folder):
    with dashboard_of(folder) as served:
        yield served


@pytest.fixture
def ids(served):
    code, _, body = served.ask("/api/runs")
    assert code == 200
    return {run["run"]: run["id"] for run in json.loads(body)["runs"]}


def test_the_token_in_the_address_becomes_a_cookie_and_leaves_the_address(served):
    code, headers, _ = served.ask(f"/?token={served.token}", Cookie=None)
    assert (code, headers["location"]) == (303, "/")
    assert headers["set-cookie"] == f"{served.cookie}; Path=/; HttpOnly; SameSite=Strict"
    assert served.ask("/")[0] == 200


@pytest.mark.parametrize("path", ["/", "/static/app.js", "/api/runs", "/api/stream", "/api/runs/x/history", "/nowhere"])
@pytest.mark.parametrize("cookie", [None, "", "penstock=x", "PORT=wrong", "PORT=", "=;;\x7f"])
def test_without_the_token_nothing_is_answered(served, path, cookie):
    given = None if cookie is None else cookie.replace("PORT", f"penstock-{served.port}")
    code, _, body = served.ask(path, Cookie=given)
    assert code == 403 and b"penstock dashboard" in body
    assert served.ask("/?token=wrong", Cookie=None)[0] == 403


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "", None, "[::2]", "10.0.0.1"]
)
def test_another_host_is_refused_even_with_the_token(served, host):
    assert served.ask("/api/runs", Host=host)[0] in (400, 421)
    assert served.ask(f"/?token={served.token}", Host=host)[0] in (400, 421)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:PORT", "LOCALHOST", "[::1]:PORT"])
def test_this_machine_has_several_names(served, host):
    assert served.ask("/api/runs", Host=host.replace("PORT", str(served.port)))[0] == 200


def test_a_name_that_was_allowed_is_answered(folder):
    with dashboard_of(folder, "--allow-host", "box.example,other") as served:
        assert served.ask("/api/runs", Host="box.example")[0] == 200
        assert served.ask("/api/runs", Host="evil.example")[0] == 421


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_what_another_site_asks_for_is_refused(served, site):
    assert served.ask("/api/runs", Sec_Fetch_Site=site)[0] == 403
    _, headers, _ = served.ask("/api/runs", Origin="http://evil.example", Sec_Fetch_Site="same-origin")
    assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "CONNECT", "TRACE"])
def test_nothing_but_reading_is_allowed(served, ids, method):
    for path in ("/", "/api/runs", f"/api/runs/{ids['good']}"):
        assert served.ask(path, method)[0] == 405


def test_without_control_no_run_can_be_stopped_or_labelled(served, ids):
    assert served.ask(f"/api/runs/{ids['good']}/stop", "POST")[0] == 405
    labels = json.dumps({"tags": ["a"], "note": "", "archived": True}).encode()
    assert served.ask(f"/api/runs/{ids['good']}/labels", "POST", labels)[0] == 405
    assert json.loads(served.ask("/api/runs")[2])["control"] is None


@pytest.mark.parametrize(
    "path",
    [
        "/static/../server.py", "/static/..%2fserver.py", "/static/%2e%2e/server.py", "/static/..\\server.py",
        "/static//etc/passwd", "/static/index.html", "/static/app.js%00", "/../../etc/passwd", "//etc/passwd",
        "/api/runs/..%2f..%2fsecret", "/api/runs/../runs/x", "/api/runs/good", "/api/runs/good/history",
        "/api/runs/ID/videos/1", "/api/runs/ID/videos/-1", "/api/runs/ID/videos/..%2f..%2fconfig.json",
        "/api/runs/ID/files/config.json", "/api/runs/ID/files/..%2f..%2fsecret.json",
        "/api/runs/ID/files/../config.json",
        "/api/runs/ID/videos/z.mp4", "/api/runs/x/lineage", "/api/runs/x/episode", "/api/runs/ID/episode/x",
        "/api/runs/..%2f..%2fsecret/episode", "/api/runs/ID/lineage/..%2fconfig.json",
        "/api/runs/..%2f..%2fsecret/lineage", "/api/runs/ID/config.json", "/api/runs/ID%2f..%2fgood",
    ],
)  # fmt: skip
def test_no_path_leads_out(served, ids, path):
    code, _, body = served.ask(path.replace("ID", ids["good"]))
    assert code in (400, 404) and b"SECRET" not in body and b"root:" not in body


def test_links_lead_out_of_no_run(served, ids):
    assert set(ids) == {"good", "evil"}, "runs whose config, status or metrics are links are not shown"
    code, _, body = served.ask(f"/api/runs/{ids['evil']}/history")
    assert code == 200 and b"SECRET" not in body
    about = json.loads(served.ask(f"/api/runs/{ids['good']}")[2])
    assert about["videos"] == ["step-1.mp4"]
    code, headers, film = served.ask(f"/api/runs/{ids['good']}/videos/step-1.mp4")
    assert (code, film, headers["content-type"]) == (200, b"film", "video/mp4")


def test_a_parent_is_a_link_only_where_a_run_of_the_folders_has_its_id(served, ids):
    parents = {name: json.loads(served.ask(f"/api/runs/{ids[name]}")[2])["parent"] for name in ids}
    assert parents["good"] == {"id": ids["evil"], "words": "evil at step 1,000"}
    assert parents["evil"] == {"id": None, "words": "script>"}


def test_what_may_be_a_secret_is_masked(served, ids):
    body = served.ask(f"/api/runs/{ids['good']}")[2]
    assert b"SECRET" not in body and b"shown" in body
    assert "--gamma 0.9" in json.loads(body)["made"]["command"]
    assert masked({"token": None, "tokens": 3, "a": {"secret": ["x", 1]}}) == {
        "token": None, "tokens": 3, "a": {"secret": "***"},
    }  # fmt: skip


def test_secrets_are_masked_by_name_in_commands_json_and_addresses():
    given = """penstock train ppo --env-kwargs '{"api_key": "SECRET", "a": 1}' --token my SECRET --seed 3"""
    given += " --pwd=SECRET --address redis://user:SECRET@host:1 --env-kwargs private_key=SECRET size=4"
    shown = masked_command(given)
    assert "SECRET" not in shown and "my" not in shown
    assert all(part in shown for part in ("--seed 3", '"a": 1', "user:***@host:1", "size=4"))
    deep = {"auth": {"user": "SECRET"}, "n": [{"access_key": "SECRET"}], "text": '{"pwd": "SECRET"}', "x": 1}
    assert masked(deep) == {"auth": "***", "n": [{"access_key": "***"}], "text": '{"pwd": "***"}', "x": 1}


@pytest.mark.parametrize("path", ["/", "/static/app.js", "/api/runs", "/nowhere", "/?token=wrong"])
@pytest.mark.parametrize("host", ["127.0.0.1", "evil.example"])
def test_every_answer_forbids_foreign_code(served, path, host):
    _, headers, _ = served.ask(path, Host=host)
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy
    assert "script-src 'self';" in policy and "img-src 'self' blob:;" in policy
    assert headers["x-content-type-options"] == "nosniff" and headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-store" and "server" not in headers


def test_what_a_run_holds_is_never_html(served, ids):
    for path in ("/api/runs", f"/api/runs/{ids['evil']}", f"/api/runs/{ids['evil']}/history"):
        _, headers, body = served.ask(path)
        assert headers["content-type"] == "application/json"
        json.loads(body)


def test_history_is_what_stands_small_enough_to_draw(served, ids):
    history = json.loads(served.ask(f"/api/runs/{ids['good']}/history")[2])
    assert history["metrics"]["steps"] == [100, 200]
    assert history["metrics"]["evaluation/mean_return"] == [5.0, 7.0]
    assert (history["most_names"], history["left_out"], history["is_reduced"]) == (4096, 0, False)
    for query in ("zoom=100,x", "zoom=1", "zoom=2,1", "zoom=nan,inf", "x=loss&zoom=1,2", f"x={EVIL}&zoom=1,2&zoom=3"):
        path = f"/api/runs/{ids['good']}/history?{quote(query, safe='=&,')}"
        assert json.loads(served.ask(path)[2])["metrics"] == history["metrics"], "no range is the whole one"
    assert json.loads(served.ask(f"/api/runs/{ids['good']}/progress")[2]) == {"share": 1.0}
    assert served.ask("/api/runs/x/progress")[0] == 404


def test_a_lineage_is_read_with_limits_and_through_no_link(served, folder):
    run = record(folder / "population")
    event = {"event": "exploit", "policy": "a", "steps": 5, "parent": "b", "parent_steps": 4, "after": {"gamma": 0.9}}
    wrong = [
        {**event, "steps": "5"}, {**event, "after": {"gamma": EVIL}}, {**event, "after": {"gamma": 10**400}}, [], "x",
        {**event, "scores": {"a": [1]}}, {**event, "before": 3}, {**event, "parent_steps": {}}, {"policy": "a"},
    ]  # fmt: skip
    start = {"event": "start", "policy": "b", "steps": 0, "after": {}}
    many = [{**event, "policy": f"p{number}", "parent": None} for number in range(100)]
    path = run.directory.path / "lineage.jsonl"
    lines = [*map(json.dumps, [*wrong, start, event, *many]), "[" * 100_000, "{"]
    path.write_text("".join(f"{line}\n" for line in lines))
    id_ = {each["run"]: each["id"] for each in json.loads(served.ask("/api/runs")[2])["runs"]}["population"]
    code, headers, body = served.ask(f"/api/runs/{id_}/lineage")
    found = json.loads(body)
    assert (code, headers["content-type"]) == (200, "application/json")
    assert found["events"][1] == event | {"scores": None, "before": None, "change": "gamma 0.900"}
    assert found["left_out"] == 0 and found["picture"].count("<title>") == 64
    assert found["policies"][:2] == [{"name": "b", "steps": 0}, {"name": "a", "steps": 5}]
    assert len(found["policies"]) == len(found["events"]) == 64
    path.unlink()
    path.symlink_to(folder.parent / "secret.json")
    assert json.loads(served.ask(f"/api/runs/{id_}/lineage")[2]) == {
        "policies": [], "events": [], "left_out": 0, "picture": "",
    }  # fmt: skip
    assert json.loads(served.ask(f"/api/runs/{id_}")[2])["has_lineage"] is False
    shutil.rmtree(run.directory.path)


def test_a_recent_episode_is_read_with_limits_and_through_no_link(served, folder):
    run = record(folder / "episodic")
    path = run.directory.path / "episode.jsonl"
    lines = [json.dumps({"steps": n, "seconds": 1.0, "reward/given": n, EVIL: n, "return/x": "1"}) for n in range(50)]
    path.write_text("".join(f"{line}\n" for line in ["[" * 100_000, '{"steps": 1e999, "seconds": {}}', *lines]))
    id_ = {each["run"]: each["id"] for each in json.loads(served.ask("/api/runs")[2])["runs"]}["episodic"]
    code, headers, body = served.ask(f"/api/runs/{id_}/episode")
    found = json.loads(body)
    assert (code, headers["content-type"]) == (200, "application/json")
    assert found["columns"]["reward/given"] == list(range(50)) and "return/x" not in found["columns"]
    assert [chart["title"] for chart in found["charts"]] == ["Rewards of a recent episode", EVIL]
    path.write_text("\n".join([" " * (1 << 22), *lines]))
    assert json.loads(served.ask(f"/api/runs/{id_}/episode")[2]) == {"columns": {}, "charts": []}, "it is too large"
    path.unlink()
    (folder.parent / "episode.jsonl").write_text(f"{lines[0]}\n")
    path.symlink_to(folder.parent / "episode.jsonl")
    assert json.loads(served.ask(f"/api/runs/{id_}/episode")[2]) == {"columns": {}, "charts": []}
    shutil.rmtree(run.directory.path)


def files_in(served, id_):
    """Rows of the page of files, by their names."""
    code, _, body = served.ask(f"/api/runs/{id_}/files")
    assert code == 200
    return {file["name"]: file for file in json.loads(body)["files"]}


def test_files_of_a_run_are_listed_without_links_and_text_is_shown(served, ids):
    there = files_in(served, ids["good"])
    assert {"config.json", "metrics.jsonl", "status.json", "videos/step-1.mp4", "videos/notes.txt"} <= set(there)
    assert "videos/z.mp4" not in there and there["metrics.jsonl"]["size"] > 100
    assert [there[name]["is_text"] for name in ("videos/notes.txt", "videos/step-1.mp4")] == [True, False]
    path = f"/api/runs/{ids['good']}/files"
    code, headers, body = served.ask(f"{path}/{there['metrics.jsonl']['id']}")
    assert (code, headers["content-type"]) == (200, "application/json")
    assert json.loads(body)["text"].startswith('{"steps": 100') and json.loads(body)["left_out"] == 0
    assert served.ask(f"{path}/{there['videos/step-1.mp4']['id']}")[0] == 404, "only text is shown"
    assert set(files_in(served, ids["evil"])).isdisjoint({"log.txt", "hardware.jsonl"})


def test_a_file_is_had_as_a_download_that_no_browser_runs(served, ids):
    there = files_in(served, ids["good"])
    code, headers, body = served.ask(f"/api/runs/{ids['good']}/files/{there['metrics.jsonl']['id']}?download")
    assert (code, headers["content-type"]) == (200, "application/octet-stream")
    assert headers["content-disposition"] == "attachment; filename*=UTF-8''metrics.jsonl"
    assert body.startswith(b'{"steps": 100')
    for query in ("", "?download"):
        code, _, body = served.ask(f"/api/runs/{ids['good']}/files/{there['config.json']['id']}{query}")
        assert code == 200 and b"shown" in body and b"SECRET" not in body


EVERY_ROUTE = {
    "/": "/", "/static/{name}": "/static/app.js", "/api/runs": "/api/runs", "/api/stream": "/api/stream",
    "/api/differences": "/api/differences?runs=GOOD,EVIL", "/api/comparison": "/api/comparison?runs=GOOD,EVIL",
    "/api/searches/{id}": "/api/searches/SEARCH",
    "/api/curves": "/api/curves?by=api_token,env_kwargs,env,plain&y=evaluation/mean_return",
    "/api/runs/{id}": "/api/runs/GOOD", "/api/runs/{id}/history": "/api/runs/EVIL/history",
    "/api/runs/{id}/stream": "/api/runs/EVIL/stream?cursor=CURSOR", "/api/runs/{id}/lineage": "/api/runs/GOOD/lineage",
    "/api/runs/{id}/episode": "/api/runs/GOOD/episode", "/api/runs/{id}/progress": "/api/runs/GOOD/progress",
    "/api/runs/{id}/files": "/api/runs/EVIL/files", "/api/runs/{id}/files/{file}": "/api/runs/GOOD/files/CONFIG",
    "/api/runs/{id}/videos/{name}": "/api/runs/GOOD/videos/step-1.mp4",
    "/api/runs/{id}/stop": "/api/runs/GOOD/stop", "/api/runs/{id}/labels": "/api/runs/GOOD/labels",
}  # fmt: skip
"""A legal request of each route; capitals stand for ids."""
CHANGES = ("/api/runs/{id}/stop", "/api/runs/{id}/labels")
STREAMS = {"/api/stream": "runs", "/api/curves": "curves", "/api/runs/{id}/stream": "status"}


def test_every_route_is_attacked():
    from penstock.dashboard.catalogue import Catalogue
    from penstock.dashboard.server import make_app

    routes = make_app(Catalogue([]), token="x")._app.routes
    assert {route.path for route in routes} == set(EVERY_ROUTE), "a new route has its request in EVERY_ROUTE"
    assert {route.path for route in routes if "POST" in route.methods} == set(CHANGES)


@pytest.fixture(scope="module")
def attacked(folder):
    """A dashboard that may change runs; yields it and a function that fills in a request of `EVERY_ROUTE`."""
    search = folder / "searched"
    record(search / "trial-0-seed-0", [(1, 1.0)], env=EVIL, api_token="SECRET")
    space = {"gamma": {"low": 0.9, "high": 0.99}, "api_token": {"values": ["SECRET"]}, EVIL: {"values": [EVIL]}}
    (search / "search.json").write_text(json.dumps({"space": space}))
    (search / "journal.log").write_text('{"op_code": 4}\n')
    event = {"event": "start", "policy": EVIL, "steps": 0, "after": {}}
    (folder / "good" / "lineage.jsonl").write_text(json.dumps(event) + "\n")
    (folder / "good" / "episode.jsonl").write_text(json.dumps({"steps": 0, f"reward/{EVIL}": 1.0}) + "\n")
    with dashboard_of(folder, "--control") as served:
        told = json.loads(served.ask("/api/runs")[2])
        words = {run["run"].upper(): run["id"] for run in told["runs"]}
        (words["SEARCH"],) = [each["id"] for each in told["searches"] if each["name"] == "searched"]
        words["CONFIG"] = files_in(served, words["GOOD"])["config.json"]["id"]
        words["CURSOR"] = json.loads(served.ask(f"/api/runs/{words['EVIL']}/history")[2])["cursor"]

        def filled(request):
            for word in ("GOOD", "EVIL", "SEARCH", "CONFIG", "CURSOR"):
                request = request.replace(word, words[word])
            return request

        yield served, filled, told["control"]
    for left in ("lineage.jsonl", "episode.jsonl"):
        (folder / "good" / left).unlink()
    shutil.rmtree(search)


@pytest.mark.parametrize("route", EVERY_ROUTE)
def test_a_route_refuses_strangers_and_forbids_foreign_code(attacked, folder, route):
    served, filled, control = attacked
    path, how = filled(EVERY_ROUTE[route]), "POST" if route in CHANGES else "GET"
    given = {"X_Penstock_Control": control} if route in CHANGES else {}
    strangers = [{"Cookie": None}, {"Host": "evil.example"}, {"Sec_Fetch_Site": "cross-site"}]
    for code, refused in zip((403, 421, 403), strangers, strict=True):
        answer, headers, body = served.ask(path, how, **given, **refused)
        assert (answer, b"SECRET" in body) == (code, False)
        assert "default-src 'none'" in headers["content-security-policy"]
    for wrong in ("PUT", "DELETE", "GET" if route in CHANGES else "POST"):
        assert served.ask(path, wrong, **given)[0] == 405
    if how == "GET":
        connection, answer = served.stream(path)
        kind, policy = answer.headers["content-type"], answer.headers["content-security-policy"]
        body = event(answer, STREAMS[route])["data"].encode() if route in STREAMS else answer.read()
        connection.close()
        assert answer.status == 200 and "default-src 'none'" in policy and "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "html" not in kind or route == "/", "what a run holds is no markup"
        assert b"SECRET" not in body and os.fsencode(folder.parent / "secret.json") not in body
        if kind == "application/json":
            json.loads(body)


@pytest.mark.parametrize("route", [route for route in EVERY_ROUTE if "{" in route])
def test_no_part_of_a_path_leads_out(attacked, route):
    served, filled, control = attacked
    how, given = ("POST", {"X_Penstock_Control": control}) if route in CHANGES else ("GET", {})
    parts, places = filled(EVERY_ROUTE[route].partition("?")[0]).split("/"), route.split("/")
    for place in (n for n, part in enumerate(places) if part.startswith("{")):
        for word in ("..%2f..%2fsecret.json", "%2e%2e", "%00", "..\\secret.json", "%ff", "x" * 5000, "{}", "-1", "*"):
            tried = "/".join([*parts[:place], word, *parts[place + 1 :]])
            code, _, body = served.ask(tried, how, **given)
            assert code in (400, 404, 405) and b"SECRET" not in body, tried


@pytest.mark.parametrize("route", ["/api/curves", "/api/comparison", "/api/differences", "/api/runs/{id}/stream"])
def test_a_query_is_read_with_limits(attacked, route):
    served, filled, _ = attacked
    path = filled(EVERY_ROUTE[route]).partition("?")[0]
    long = ("words=" + "%ff" * 5000, "by=" + "x," * 5000, "cursor=" + "9" * 9000, "%00=%00")
    for query in ("runs=" + "x," * 20_000, *long):
        connection, answer = served.stream(f"{path}?{query}")
        assert answer.status in ((400,) if "stream" in route else (200, 400)), query[:20]
        assert b"SECRET" not in answer.readline()
        connection.close()
    assert served.ask("/api/runs")[0] == 200, "it is still there"


def test_of_a_long_file_the_last_whole_lines_are_shown(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("".join(f"line {n}\n" for n in range(100)))
    file = RunFile("x", "a.txt", path, 0, 0.0)
    found = text_of(file, most=20)
    assert found == {"text": "line 98\nline 99\n", "left_out": path.stat().st_size - 16}
    path.unlink()
    path.symlink_to("/etc/passwd")
    assert text_of(file)["text"] == "" and list(pieces_of(file)) == [], "what became a link is not followed"


def test_differences_between_runs_are_shown_without_secrets(served, folder, ids):
    record(folder / "another", [(100, 5.0)], gamma=0.5, env_kwargs={"api_token": "SECRET2"})
    named = {run["run"]: run["id"] for run in json.loads(served.ask("/api/runs")[2])["runs"]}
    body = served.ask(f"/api/differences?runs={named['good']},{named['another']},nothing")[2]
    found = json.loads(body)
    assert found["runs"] == ["good", "another"] and b"SECRET" not in body
    assert {"name": "gamma", "values": [None, 0.5]} in found["rows"]
    assert "seed" not in [row["name"] for row in found["rows"]]


def test_runs_are_compared_without_secrets_paths_or_markup(served, folder):
    for seed in range(3):
        for name, gain in (("quick", 1.0), (EVIL, 2.0)):
            path = folder / f"versus-{gain}-{seed}"
            points = [(100, 9.0), (200 * gain, 5.0 * gain + seed)]
            record(path, points, seed=seed, name=name, api_token="SECRET", env_kwargs={"password": "SECRET"})
    known = {run["run"]: run["id"] for run in json.loads(served.ask("/api/runs")[2])["runs"]}
    chosen = [id_ for name, id_ in known.items() if name.startswith("versus")]
    code, headers, body = served.ask(f"/api/comparison?runs={','.join(chosen)},nothing,..%2f..%2fsecret")
    assert (code, headers["content-type"]) == (200, "application/json")
    found = json.loads(body)
    assert b"SECRET" not in body and str(folder).encode() not in body
    assert found["keys"] == ["algorithm", "seed", "name"] and found["by"] == ["algorithm", "name"]
    assert found["groups"] == [f"ppo, name={EVIL}", "ppo, name=quick"]
    (part,) = found["envs"]
    assert [row[1:3] for row in part["tables"]["Final return"][1:]] == [["3", "11.0"], ["3", "6.000"]]
    assert part["tables"]["Probability of improvement"][1][1] == "1.00"
    fronts = {row["run"]: row["fronts"] for row in part["runs"]}
    assert fronts["versus-1.0-2"] == fronts["versus-2.0-2"] == ["seconds", "steps"] and fronts["versus-1.0-1"] == []
    assert all(known[row["run"]] == row["id"] for row in part["runs"])
    figures = "".join(part["figures"])
    assert "<script" not in figures and figures.count("<figure") == 3 and figures.count(" front\"") == 4
    best = json.loads(served.ask(f"/api/comparison?runs={','.join(chosen)}&score=best&by=&first=x")[2])
    assert best["groups"] == ["all"] and {row["score"] for row in best["envs"][0]["runs"]} == {9.0, 10.0, 11.0, 12.0}
    first = json.loads(served.ask(f"/api/comparison?runs={','.join(chosen)}&first=ppo,%20name%3Dquick")[2])
    assert first["groups"][0] == "ppo, name=quick"
    assert json.loads(served.ask("/api/comparison?words=nothing-such")[2])["envs"] == []
    assert served.ask("/api/comparison?score=../x")[0] == 400
    assert served.ask(f"/api/comparison?runs={'x,' * 201}")[0] == 400
    for path in folder.glob("versus-*"):
        shutil.rmtree(path)


OPERATIONS = [
    {"op_code": 0, "study_name": "penstock", "directions": [2]}, [], "x", 3,
    *({"op_code": 4, "study_id": 0} for _ in range(3)),
    {"op_code": 5, "trial_id": 0, "param_name": "gamma", "param_value_internal": 0.9},
    {"op_code": 5, "trial_id": 1, "param_name": "gamma", "param_value_internal": 0.99},
    *({"op_code": 5, "trial_id": n, "param_name": "hidden", "param_value_internal": n} for n in (0, 1, 2)),
    {"op_code": 5, "trial_id": 0, "param_name": "api_token", "param_value_internal": 1.0},
    {"op_code": 5, "trial_id": 0, "param_name": [], "param_value_internal": 1.0},
    {"op_code": 5, "trial_id": 0, "param_name": "gamma", "param_value_internal": "SECRET"},
    {"op_code": 6, "trial_id": 0, "state": 1, "values": [7.0]}, {"op_code": 6, "trial_id": 0, "state": 1.0},
    {"op_code": 6, "trial_id": 0, "state": 99}, {"op_code": 6, "trial_id": 0, "state": True, "values": [10**400]},
    {"op_code": 7, "trial_id": 1, "step": 1, "intermediate_value": 3.0}, {"op_code": 6, "trial_id": 1, "state": 2},
    {"op_code": 7, "trial_id": 99, "intermediate_value": 9.0}, {"op_code": 7, "trial_id": "0"},
]  # fmt: skip
"""Operations of Optuna's journal, wrong ones among them."""


def searches_of(served):
    return {search["name"]: search["id"] for search in json.loads(served.ask("/api/runs")[2])["searches"]}


def test_a_search_is_read_with_limits_and_through_no_link(tmp_path):
    outside = tmp_path / "outside"
    search, copied = tmp_path / "runs" / "search", tmp_path / "runs" / "copied"
    for folder in (outside, search, copied):
        record(folder / "trial-0-seed-0", [(1, 1.0)], api_token="SECRET")
        space = {"gamma": {"low": 0.9, "high": 0.99}, "hidden": {"values": [EVIL, [64, 64]]}, "api_token": {"low": 0}}
        (folder / "search.json").write_text(json.dumps({"space": space}))
        lines = [*map(json.dumps, OPERATIONS), "[" * 100_000, "{"]
        (folder / "journal.log").write_text("".join(f"{line}\n" for line in lines))
    (copied / "journal.log").unlink()
    (copied / "journal.log").symlink_to(search / "journal.log")
    with dashboard_of(tmp_path / "runs") as served:
        known = searches_of(served)
        assert set(known) == {"search", "copied"}
        code, headers, body = served.ask(f"/api/searches/{known['search']}")
        assert (code, headers["content-type"]) == (200, "application/json") and b"SECRET" not in body
        found = json.loads(body)
        assert [axis["name"] for axis in found["axes"]] == ["gamma", "hidden", "value"]
        first, second, third = found["trials"]
        assert (first["state"], first["settings"], first["at"]) == ("done", ["0.9", EVIL, "7"], [0.0, 0.0, 1.0])
        assert (second["state"], second["settings"]) == ("pruned", ["0.99", "[64, 64]", "3"])
        assert second["at"] == [1.0, 1.0, 0.0]
        assert (third["state"], third["settings"], third["at"]) == ("under way", ["", "", ""], [None, 1.0, None])
        ids = {run["run"]: run["id"] for run in json.loads(served.ask("/api/runs")[2])["runs"]}
        assert first["runs"] == [{"run": "trial-0-seed-0", "id": ids["search/trial-0-seed-0"]}]
        assert "<script" not in found["picture"] and found["picture"].count("<polyline") == 2
        assert json.loads(served.ask(f"/api/searches/{known['copied']}")[2])["trials"] == []
        for path in ("nothing", ids["search/trial-0-seed-0"], "..%2f..%2foutside", f"{known['search']}/..", "%00"):
            assert served.ask(f"/api/searches/{path}")[0] in (400, 404)
        (search / "journal.log").write_text('{"op_code": 4}\n' * 1200)
        assert len(json.loads(served.ask(f"/api/searches/{known['search']}")[2])["trials"]) == 1000
        (search / "search.json").write_text("[" * 100_000)
        assert json.loads(served.ask(f"/api/searches/{known['search']}")[2])["axes"] == []
        (search / "search.json").unlink()
        (search / "search.json").symlink_to(outside / "search.json")
        assert set(searches_of(served)) == {"copied"}
    with dashboard_of(outside / "trial-0-seed-0") as served:
        assert searches_of(served) == {}, "only the run is shown, not the folder around it"


def test_members_of_a_population_are_trials_between_its_decisions(tmp_path):
    for member in ("0", "1"):
        record(tmp_path / "runs" / "pbt" / f"member-{member}", [(100, 5.0)])
    events = [
        {"event": "start", "policy": "0", "steps": 0, "after": {"gamma": 0.9}},
        {"event": "start", "policy": "1", "steps": 0, "after": {"gamma": 0.95}},
        {"event": "exploit", "policy": "0", "steps": 50, "parent": "1", "scores": {"0": 1.0, "1": 2.0},
         "after": {"gamma": 0.97}},
        {"event": "explore", "policy": "1", "steps": 90, "scores": {"0": 4.0, "1": None}, "after": {"gamma": 0.96}},
    ]  # fmt: skip
    (tmp_path / "runs" / "pbt" / "lineage.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    with dashboard_of(tmp_path / "runs") as served:
        found = json.loads(served.ask(f"/api/searches/{searches_of(served)['pbt']}")[2])
    assert [(trial["name"], *trial["settings"]) for trial in found["trials"]] == [
        ("0, 50 steps", "0.9", "1"), ("1, 50 steps", "0.95", "2"), ("0, 90 steps", "0.97", "4"),
    ]  # fmt: skip
    assert found["trials"][1]["runs"][0]["run"] == "member-1"
    assert [event["parent"] for event in found["lineage"]["events"]] == [None, None, "1", None]
    assert found["lineage"]["picture"].count("<path") == 1, "an arrow for the copy"


@pytest.mark.parametrize(
    ("setting", "least", "most"), [("decides", 0.8, 1.0), ("bends", 0.5, 1.0), ("nothing", 0.0, 0.1)]
)
def test_importance_is_the_share_of_the_ranks_that_a_setting_explains(setting, least, most):
    draws = np.random.default_rng(0).uniform(size=(200, 3))
    value = {"decides": draws[:, 0], "bends": -abs(draws[:, 0] - 0.5), "nothing": draws[:, 1]}[setting]
    trials = [{"settings": {"a": a}, "value": v, "state": "done"} for (a, *_), v in zip(draws, value, strict=True)]
    share = importance_of({"name": "a", "values": None}, trials)
    assert least <= share <= most
    assert importance_of({"name": "a", "values": None}, trials[:5]) is None, "too few"


def test_importance_of_choices_is_less_what_chance_explains():
    trials = [{"settings": {"a": n // 2}, "value": float(n), "state": "done"} for n in range(10)]
    trials += [{"settings": {"a": 0}, "value": 99.0, "state": "failed"}]
    choices = {"name": "a", "values": ["5", "6", "7", "8", "9"]}
    # Ranks 0 to 9: the sum of squares is 82.5 in all, 0.5 within each of the five choices.
    assert importance_of(choices, trials) == pytest.approx(1 - 9 / 5 * 2.5 / 82.5)
    assert importance_of({"name": "a", "values": None}, trials) == pytest.approx(1 - 9 / 6 * 6.5 / 82.5), "quarters"


def curves_of(served, query):
    connection, stream = served.stream(f"/api/curves?{query}")
    try:
        return json.loads(event(stream, "curves")["data"])
    finally:
        connection.close()


def test_runs_that_have_the_same_settings_are_one_curve(served, folder):
    for seed in range(6):
        settings = {"gamma": 0.9 if seed < 5 else 0.5, "deep": {"a": seed}}
        record(folder / f"set{seed}", [(0, 0.0), (100, 10.0 + seed)], seed=seed, **settings)
    found = curves_of(served, "words=set%20ppo&by=gamma&y=evaluation/mean_return")
    assert (found["count"], found["settings"]) == (6, ["algorithm", "seed", "gamma"])
    assert "evaluation/mean_return" in found["names"]
    (panel,) = found["panels"]
    alone, together = panel["groups"]
    assert (panel["name"], alone["name"], together["name"]) == ("CartPole-v1", "gamma=0.5", "gamma=0.9")
    assert [(group["count"], len(group["runs"]), group["low"] is None) for group in (alone, together)] == [
        (1, 0, True), (5, 0, False)
    ]  # fmt: skip
    assert together["middle"][-1] == 12.0 and together["low"][-1] < 12.0 < together["high"][-1]
    assert panel["x"][-1] == 100 and alone["middle"][-1] == 15.0
    (panel,) = curves_of(served, "words=set&by=gamma&band=quartiles")["panels"]
    assert (panel["groups"][1]["low"][-1], panel["groups"][1]["high"][-1]) == (11.0, 13.0)
    assert curves_of(served, "words=set&by=gamma&band=none")["panels"][0]["groups"][1]["low"] is None
    assert curves_of(served, "words=set&by=env_kwargs,nothing")["panels"][0]["groups"][0]["name"] == "all"
    assert curves_of(served, "words=nothing")["panels"] == []
    assert served.ask("/api/curves?band=x")[0] == 400


def test_the_stream_tells_what_is_new_behind_a_cursor(folder, served):
    run = record(folder / "grows", [(100, 5.0)])
    id_ = {each["run"]: each["id"] for each in json.loads(served.ask("/api/runs")[2])["runs"]}["grows"]
    cursor = json.loads(served.ask(f"/api/runs/{id_}/history")[2])["cursor"]
    connection, stream = served.stream(f"/api/runs/{id_}/stream?cursor={cursor}")
    try:
        first = json.loads(event(stream, "status")["data"])
        assert first["state"] == "done" and not any(first["shown"]["tables"].values())
        assert first["shown"]["facts"]["steps"] == "100 of 1,000" and first["shown"]["facts"]["ended by"] == "steps"
        path = run.directory.path / "status.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"policies": [{"name": EVIL, "steps": 1_000}]}))
        later = json.loads(event(stream, "status")["data"])
        assert later["shown"]["tables"]["policies"] == {"policy": [EVIL], "steps": ["1,000"], "updates": ["0"]}
        with open(run.directory.metrics, "a") as file:
            file.write('{"steps": 300, "seconds": 30, "a": 1}\n{"steps": 4')
        told = event(stream, "news")
        assert json.loads(told["data"]) == {"metrics": [{"steps": 300, "seconds": 30, "a": 1}]}
    finally:
        connection.close()
    with open(run.directory.metrics, "a") as file:
        file.write('00, "seconds": 40}\n')
    connection, stream = served.stream(f"/api/runs/{id_}/stream?cursor={cursor}", Last_Event_ID=told["id"])
    try:
        news = json.loads(event(stream, "news")["data"])
        assert news == {"metrics": [{"steps": 400, "seconds": 40}]}, "the browser's cursor is newer than the address"
        run.directory.log("something")
        assert json.loads(event(stream, "news")["data"])["log"][0].endswith("something")
        with open(run.directory.metrics, "a") as file:
            file.write('{"steps": 300, "seconds": 30, "resumed": true}\n')
        assert json.loads(event(stream, "news")["data"]) == {"reload": True}
    finally:
        connection.close()
    for wrong in ("", "x", "1:1", "1:1,2:2,x:3"):
        assert served.ask(f"/api/runs/{id_}/stream?cursor={wrong}")[0] == 400


def test_the_overview_tells_of_runs_that_come_and_go(folder, served):
    connection, stream = served.stream("/api/stream")
    try:
        known = json.loads(event(stream, "runs")["data"])["ids"]
        record(folder / "new")
        told = json.loads(event(stream, "runs")["data"])
        assert [run["run"] for run in told["changed"]] == ["new"] and len(told["ids"]) == len(known) + 1
        os.rename(folder / "new" / "config.json", folder / "new" / "gone")
        assert len(json.loads(event(stream, "runs")["data"])["ids"]) == len(known)
    finally:
        connection.close()


OWNER = """
import sys, time
from pathlib import Path
from penstock.runs.lock import RunLock
lock = RunLock.take(Path(sys.argv[1]))
print(lock.is_held, flush=True)
time.sleep(600)
"""


@contextmanager
def owner_of(path):
    """A process that owns a run."""
    process = subprocess.Popen([sys.executable, "-c", OWNER, path], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "True\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_with_control_and_the_pages_token_the_owner_of_a_run_is_asked_to_end(tmp_path):
    run = record(tmp_path / "run")
    with dashboard_of(tmp_path, "--control") as served:
        told = json.loads(served.ask("/api/runs")[2])
        stop, token = f"/api/runs/{told['runs'][0]['id']}/stop", told["control"]
        for wrong in (None, "", "wrong", served.token):
            assert served.ask(stop, "POST", X_Penstock_Control=wrong)[0] == 403
        assert served.ask(stop, "POST", X_Penstock_Control=token, Cookie=None)[0] == 403
        assert served.ask(stop, "POST", X_Penstock_Control=token, Sec_Fetch_Site="cross-site")[0] == 403
        assert served.ask(stop, "POST", X_Penstock_Control=token, Host="evil.example")[0] == 421
        assert served.ask(stop, X_Penstock_Control=token)[0] == 405, "reading stops nothing"
        assert served.ask("/api/runs", "POST", X_Penstock_Control=token)[0] == 405
        assert served.ask("/api/runs/x/stop", "POST", X_Penstock_Control=token)[0] == 404

        path = run.directory.path
        with owner_of(path) as owner:
            shutil.copytree(path, tmp_path / "copy")
            told = (path / LOCK).read_text()
            ids = {one["run"]: one["id"] for one in json.loads(served.ask("/api/runs")[2])["runs"]}
            copy = f"/api/runs/{ids['copy']}/stop"
            assert served.ask(copy, "POST", X_Penstock_Control=token)[0] == 409, "nobody owns the copy"
            with owner_of(tmp_path / "copy") as another:
                (tmp_path / "copy" / LOCK).write_text(told)  # it says that the owner of the other run owns it
                assert served.ask(copy, "POST", X_Penstock_Control=token)[0] == 409
                assert (owner.poll(), another.poll()) == (None, None)
            for other in ({"boot": "another"}, {"start": 1}, {"pid": 1}, {"pid": "x"}, {"pid": -1}, {"pid": 2**70}):
                (path / LOCK).write_text(json.dumps({**json.loads(told), **other}))
                assert served.ask(stop, "POST", X_Penstock_Control=token)[0] == 409
            (path / LOCK).write_text(told)
            assert served.ask(stop, "POST", X_Penstock_Control=token)[0] == 200
            assert owner.wait(timeout=20) == -signal.SIGTERM


def test_with_control_and_the_pages_token_a_run_is_labelled(tmp_path):
    run = record(tmp_path / "run")
    linked = record(tmp_path / "linked")
    path, aim = run.directory.path / "labels.json", tmp_path / "aim"
    aim.write_text("mine")
    legal = {"tags": ["b", "a"], "note": EVIL, "archived": True}
    body = json.dumps(legal).encode()
    with dashboard_of(tmp_path, "--control") as served:
        told = json.loads(served.ask("/api/runs")[2])
        ids, token = {one["run"]: one["id"] for one in told["runs"]}, told["control"]
        place = f"/api/runs/{ids['run']}/labels"
        for wrong in (None, "", "wrong", served.token):
            assert served.ask(place, "POST", body, X_Penstock_Control=wrong)[0] == 403
        assert served.ask(place, "POST", body, X_Penstock_Control=token, Cookie=None)[0] == 403
        assert served.ask(place, "POST", body, X_Penstock_Control=token, Sec_Fetch_Site="cross-site")[0] == 403
        assert served.ask(place, "POST", body, X_Penstock_Control=token, Host="evil.example")[0] == 421
        assert served.ask(place, X_Penstock_Control=token)[0] == 405, "reading changes nothing"
        for elsewhere in ("/api/runs/x/labels", "/api/runs/..%2frun/labels", f"{place}/labels", "/labels"):
            assert served.ask(elsewhere, "POST", body, X_Penstock_Control=token)[0] == 404
        illegal = [{"tags": ["<b>"]}, {"tags": "a"}, {"note": "x" * 5000}, {"archived": 1}]
        changed = [json.dumps({**legal, **one}).encode() for one in illegal]
        for wrong_body in (b"", b"x", b"[]", b"{}", b"[" * 9999, *changed):
            assert served.ask(place, "POST", wrong_body, X_Penstock_Control=token)[0] == 400
        assert served.ask(place, "POST", body + b" " * (1 << 17), X_Penstock_Control=token)[0] == 413
        assert not path.exists()
        code, headers, answer = served.ask(place, "POST", body, X_Penstock_Control=token)
        assert (code, headers["content-type"]) == (200, "application/json")
        assert json.loads(answer) == {**legal, "tags": ["a", "b"]}
        row = next(one for one in json.loads(served.ask("/api/runs")[2])["runs"] if one["run"] == "run")
        assert (row["tags"], row["note"], row["archived"]) == ("a,b", EVIL, True)
        (linked.directory.path / "labels.json").symlink_to(aim)
        assert served.ask(f"/api/runs/{ids['linked']}/labels", "POST", body, X_Penstock_Control=token)[0] in (400, 404)
    assert aim.read_text() == "mine"


def test_ctrl_c_ends_it_though_a_stream_is_open(tmp_path):
    record(tmp_path / "run")
    with dashboard_of(tmp_path) as served:
        connection, stream = served.stream("/api/stream")
        event(stream, "runs")
        served.process.send_signal(signal.SIGINT)
        said, _ = served.process.communicate(timeout=20)
        connection.close()
    assert said.strip() in ("", "Ctrl-C ends it")


def test_it_disturbs_no_other_process_and_loads_no_torch(served):
    lowest = 19  # of Linux, for tests that run at a low priority themselves
    assert os.getpriority(os.PRIO_PROCESS, served.process.pid) >= min(lowest, os.getpriority(os.PRIO_PROCESS, 0) + 10)
    assert "libtorch" not in Path(f"/proc/{served.process.pid}/maps").read_text()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["FILE"], "is a file: give runs"),
        (["runs", "NOTHERE"], "nothere does not exist: give runs, or folders that hold runs"),
        (["--port", "99999"], "--port 99999 is not legal: use 1 to 65535, or 0"),
        (["--port", "PORT"], "is not available: Address already in use"),
    ],
)
def test_what_cannot_be_served_is_told(served, tmp_path, args, message):
    (tmp_path / "file").touch()
    words = {"FILE": str(tmp_path / "file"), "NOTHERE": str(tmp_path / "nothere"), "PORT": str(served.port)}
    done = subprocess.run(
        [sys.executable, "-m", "penstock.cli", "dashboard", *(words.get(arg, arg) for arg in args)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2 and message in done.stderr
