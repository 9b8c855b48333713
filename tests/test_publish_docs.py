"""The folder that GitHub Pages serves has a site per version, and lists them."""

import json

import pytest

from tools.publish_docs import publish


@pytest.fixture
def built(tmp_path):
    (tmp_path / "built").mkdir()
    return tmp_path / "built"


def put(built, site, version):
    (built / "index.html").write_text(version)
    publish(built, site, version)


def test_the_newest_release_is_the_stable_one_whatever_the_order(built, tmp_path):
    site = tmp_path / "site"
    for version in ("dev", "v0.9.0", "v0.10.0", "v0.9.1"):
        put(built, site, version)
    assert json.loads((site / "versions.json").read_text()) == ["stable", "dev", "v0.10.0", "v0.9.1", "v0.9.0"]
    assert (site / "stable" / "index.html").read_text() == "v0.10.0"
    assert "url=stable/" in (site / "index.html").read_text()


def test_before_the_first_release_the_first_page_leads_to_the_development_version(built, tmp_path):
    put(built, tmp_path / "site", "dev")
    assert "url=dev/" in (tmp_path / "site" / "index.html").read_text()


def test_pages_that_are_gone_from_a_version_are_gone_from_its_folder(built, tmp_path):
    (built / "old.html").touch()
    put(built, tmp_path / "site", "dev")
    (built / "old.html").unlink()
    put(built, tmp_path / "site", "dev")
    assert not (tmp_path / "site" / "dev" / "old.html").exists()
