"""Print the notes of a release from CHANGELOG.md, after checking that the files of the repository name its version.

    python tools/release/notes.py v0.1.0

The tag is "v" and the version of pyproject.toml, CITATION.cff names the same version, and CHANGELOG.md has a section
for it, with its date. On GitHub, the repository is that of [project.urls]. Otherwise the exit code is 1, and a message
names the file to change.
"""

from __future__ import annotations

import os
import re
import sys
import tomllib
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
KINDS = ("Breaking", "New", "Fixes", "Deprecations", "Learning results changed")
_TITLE = re.compile(r"^## (\S+) \((unreleased|\d{4}-\d{2}-\d{2})\)$", re.MULTILINE)


class ReleaseError(Exception):
    """File that does not fit the tag, with the change to make."""


def sections(changelog: str) -> dict[str, tuple[str, str]]:
    """Return (date or "unreleased", text) of each version of a changelog, the newest first."""
    parts = _TITLE.split(changelog)[1:]
    return {version: (date, text.strip()) for version, date, text in zip(*[iter(parts)] * 3, strict=True)}


def notes(tag: str, repository: Path = REPOSITORY) -> str:
    """Return the text of the changelog on the version that a tag names.

    Raises
    ------
    ReleaseError
        Tag, pyproject.toml, CITATION.cff and CHANGELOG.md do not name one version, or its section has no date.
    """
    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    version, source = project["version"], project["urls"]["Source"]
    if (here := os.environ.get("GITHUB_REPOSITORY")) and source != f"https://github.com/{here}":
        raise ReleaseError(f"this is the repository {here}, and [project.urls] in pyproject.toml names {source}")
    if tag != f"v{version}":
        raise ReleaseError(f"the tag is {tag!r}, and the version in pyproject.toml {version!r}: tag v{version}")
    cited = re.search(r'^version: "?([^"\n]+)"?$', (repository / "CITATION.cff").read_text(), re.MULTILINE)
    if cited is None or cited[1] != version:
        found = cited[1] if cited else "none"
        raise ReleaseError(f"CITATION.cff has version {found!r}, expected {version!r}: change it there")
    date, text = sections((repository / "CHANGELOG.md").read_text()).get(version, ("", ""))
    if not text:
        raise ReleaseError(f'CHANGELOG.md has no section "## {version} (DATE)": write it')
    if date == "unreleased":
        raise ReleaseError(f'CHANGELOG.md says "## {version} (unreleased)": put the date there, as YYYY-MM-DD')
    return text


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(f"usage: python tools/release/notes.py vX.Y.Z, found {len(sys.argv) - 1} arguments")
    try:
        print(notes(sys.argv[1]))
    except ReleaseError as error:
        sys.exit(f"error: {error}")
