"""Pages of the site for files of the repository that pages link to, with their syntax highlighted.

A link such as ``[code](../penstock/algorithms/appo.py)`` leads out of ``docs/``. It becomes a link to a page of the
site that shows the file, so that the site needs no other server and shows the version it was built from.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.highlighting import PygmentsBridge
from sphinx.transforms import SphinxTransform

ROOT = Path(__file__).parents[2]
PAGES = "repository"
INCLUDED = ("contributing",)
"""Pages whose text lies in the root of the repository."""
LANGUAGES = {
    ".py": "python", ".toml": "toml", ".h": "cpp", ".cpp": "cpp", ".sh": "bash", ".md": "markdown", ".js": "js",
    ".html": "html", ".yaml": "yaml",
}  # fmt: skip


class LinksToFiles(SphinxTransform):
    """Replace links to files outside of ``docs/`` by links to their pages."""

    default_priority = 5

    def apply(self, **_: Any) -> None:
        """Replace every link of one document."""
        found: set[str] = set()
        for link in list(self.document.findall(lambda node: isinstance(node, nodes.Element))):
            if not isinstance(link, addnodes.pending_xref | addnodes.download_reference):
                continue
            target = link.get("reftarget", "")
            places = [Path(self.env.doc2path(self.env.docname)).parent]
            if self.env.docname in INCLUDED:
                places.append(ROOT)
            file = next(filter(None, (_file_of(target, place) for place in places)), None)
            if file is None:
                file = _file_of(f"{target}.md", Path(self.env.srcdir))  # MyST drops the suffix of pages
            if file is None:
                continue
            found.add(file)
            address = self.app.builder.get_relative_uri(self.env.docname, f"{PAGES}/{file}")
            link.replace_self(nodes.reference("", "", *link.children, refuri=address, internal=True))
        if found:
            vars(self.env).setdefault("repository_files", {})[self.env.docname] = found


def _file_of(target: str, folder: Path) -> str | None:
    """Return the path within the repository of a file or folder outside of ``docs/``, else None."""
    place = Path(os.path.normpath(folder / target.partition("#")[0]))
    inside = target and "://" not in target and place.is_relative_to(ROOT) and place.exists()
    if not inside or place.is_relative_to(ROOT / "docs"):
        return None
    return place.relative_to(ROOT).as_posix()


def collect_pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Make a page for each linked file; a folder's page lists its files, each with a page of its own."""
    by_page: dict[str, set[str]] = getattr(app.env, "repository_files", {})
    wanted = set().union(*by_page.values()) if by_page else set()
    for folder in [name for name in wanted if (ROOT / name).is_dir()]:
        wanted.update(path.relative_to(ROOT).as_posix() for path in (ROOT / folder).iterdir() if path.is_file())
    highlighter: PygmentsBridge = app.builder.highlighter
    for name in sorted(wanted):
        page = f"{PAGES}/{name}"
        if (ROOT / name).is_dir():
            files = sorted(each for each in wanted if Path(each).parent.as_posix() == name)
            links = [f'<li><a href="{escape(Path(name).name)}/{Path(file).name}.html">{escape(file)}</a></li>'
                     for file in files]  # fmt: skip
            body = f"<ul>{''.join(links)}</ul>"
        else:
            try:
                text = (ROOT / name).read_text()
            except UnicodeDecodeError as error:
                raise ExtensionError(f"{name} is linked to from a page and is no text file") from error
            body = highlighter.highlight_block(text, LANGUAGES.get(Path(name).suffix, "text"), linenos=False)
        yield page, {"title": name, "body": f"<h1>{escape(name)}</h1>{body}"}, "page.html"


def forget_page(_: Sphinx, env: Any, docname: str) -> None:
    """Drop the links of a document that is read anew."""
    getattr(env, "repository_files", {}).pop(docname, None)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the extension."""
    app.add_transform(LinksToFiles)
    app.connect("html-collect-pages", collect_pages)
    app.connect("env-purge-doc", forget_page)
    return {"parallel_read_safe": False, "version": "1"}
