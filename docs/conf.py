"""Settings of Sphinx for the documentation site: `make docs` builds it into ``docs/_build/html``."""

import os
import sys
from importlib.metadata import version as installed_version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))

project = "Penstock"
author = "Penstock contributors"
project_copyright = "Penstock contributors"
release = os.environ.get("PENSTOCK_DOCS_VERSION", installed_version("penstock"))
version = release
language = "en"
smartquotes = False
suppress_warnings = ["ref.python"]  # single backquotes of docstrings may name members of several classes

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "figures",
    "mathml",
    "repository_files",
]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]

myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence", "dollarmath"]
html_math_renderer = "mathml"

default_role = "py:obj"
autodoc_default_options = {"member-order": "bysource"}
autodoc_typehints = "none"  # types stand in the signature's defaults and in the text, with shapes and units
autodoc_class_signature = "mixed"
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True

html_theme = "furo"
html_title = f"Penstock {release}"
html_static_path = ["_static"]
templates_path = ["_templates"]
html_css_files = ["penstock.css"]
html_show_sourcelink = False
html_copy_source = False
html_last_updated_fmt = None
html_theme_options = {"navigation_with_keys": True}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
copybutton_exclude = ".linenos, .gp, .go"

html_js_files = ["accessible.js"]
if versions := os.environ.get("PENSTOCK_DOCS_VERSIONS"):  # the address of versions.json, on a published site alone
    html_js_files += [("versions.js", {"defer": "defer", "data-versions": versions, "data-here": release})]
