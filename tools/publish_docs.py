"""Put a built documentation site into the folder that GitHub Pages serves, beside the sites of other versions.

    python tools/publish_docs.py docs/_build/html SITE VERSION

SITE gets a folder per version: ``dev``, and one per release (``v0.2.0``). ``stable`` is a copy of the newest release;
before the first release the site's first page leads to ``dev``. ``versions.json`` lists the folders for the menu of
versions, the newest release first.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

from packaging.version import Version

_FIRST_PAGE = """<!doctype html>
<meta charset="utf-8">
<title>Penstock</title>
<meta http-equiv="refresh" content="0; url={folder}/">
<a href="{folder}/">Penstock's documentation</a>
"""


def publish(built: Path, site: Path, version: str) -> None:
    """Copy a built site to ``site/version`` and write ``stable``, ``versions.json`` and the first page anew."""
    _replace(built, site / version)
    releases = sorted((Version(found.name), found) for found in site.glob("v*") if found.is_dir())
    if releases and releases[-1][1].name == version:
        _replace(built, site / "stable")
    folders = [*(["stable"] if releases else []), *(["dev"] if (site / "dev").is_dir() else [])]
    folders += [found.name for _, found in reversed(releases)]
    (site / "versions.json").write_text(json.dumps(folders) + "\n")
    (site / "index.html").write_text(_FIRST_PAGE.format(folder=folders[0]))
    (site / ".nojekyll").touch()  # without it GitHub leaves out folders such as _static


def _replace(source: Path, place: Path) -> None:
    if place.exists():
        shutil.rmtree(place)
    shutil.copytree(source, place)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("built", type=Path, help="the site that make docs has built")
    parser.add_argument("site", type=Path, help="the folder that is served")
    parser.add_argument("version", help='"dev", or the tag of a release such as v0.2.0')
    asked = parser.parse_args()
    publish(asked.built, asked.site, asked.version)
