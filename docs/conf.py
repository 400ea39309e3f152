"""Sphinx settings of the HTML book: README, the notebooks with their stored outputs, and the library's reference.

`make html` builds it into build/html (see build_html.py). Nothing is executed and nothing is fetched.
"""

import importlib.metadata
import re
import sys
from pathlib import Path

from sphinx.util.nodes import make_refnode

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "notebooks")]  # document this checkout, whatever is installed

from flashtrace_lib import __version__  # noqa: E402 - after the path above is set

project = "FlashTrace, the book"
author = "FlashTrace book authors"
copyright = "FlashTrace book authors, MIT licence"
version = release = __version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.mathjax"]
include_patterns = [
    "index.md", "api.rst", "C*.md", "data/README.md", "data/*/README.md", "docs/*.md", "figures/claims.md",
    "notebooks/*.ipynb",
]  # fmt: skip

# Notebooks show what is stored in them; warnings of their text are errors like all others.
nb_execution_mode = "off"
myst_enable_extensions = ["amsmath", "colon_fence", "dollarmath"]
myst_heading_anchors = 3

# One self-contained file of a pinned package, so that formulas need no network.
_MATHJAX = importlib.metadata.distribution("sphinx-mathjax-offline").locate_file("sphinx-mathjax-offline/static")
mathjax_path = "tex-svg.js"
mathjax3_config = {"svg": {"fontCache": "local"}}  # that package ships MathJax 3

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings give types, with shapes and units
autodoc_class_signature = "mixed"
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_preprocess_types = False  # it would split "(int, int)" at the comma
default_role = "py:obj"  # `name` links where the reference has it, and is code elsewhere

html_theme = "sphinx_book_theme"
html_title = project
html_static_path = ["_static", str(Path(_MATHJAX) / "mathjax" / "tex-svg.js")]
html_css_files = ["book.css"]
html_favicon = "_static/favicon.svg"
html_js_files = ["book.js"]
html_context = {"default_mode": "auto"}  # as the reader's system has it; unset, the theme complains on a first visit
html_domain_indices = False  # the index lists functions and classes; one of modules would repeat the headings
html_copy_source = False
html_show_sphinx = False
html_theme_options = {
    "show_toc_level": 2,
    "use_download_button": False,
    "use_fullscreen_button": False,
    "show_navbar_depth": 1,
    "navbar_persistent": [],  # a second search button, in a bar of its own
}


def escape_bars(app, what, name, obj, options, lines):
    """Keep lengths and absolute values, |I| and |r - d|, from being read as substitutions; literals stay whole."""
    lines[:] = [re.sub(r"(``.*?``)|\|", lambda found: found[1] or r"\|", line) for line in lines]


def find_by_its_end(app, env, node, content):
    """Link a name that a docstring gives as its reader knows it, `build_sample` or `text.build_sample`."""
    if node.get("reftype") != "obj":
        return None
    matches = env.domains.python_domain.find_obj(env, None, None, node["reftarget"], None, 1)
    places = {(entry.docname, entry.node_id) for _, entry in matches}
    if len(places) != 1:
        return None
    page, place = places.pop()
    return make_refnode(app.builder, node["refdoc"], page, place, content)


def setup(app):
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", escape_bars, priority=900)  # after napoleon, which has 500
    app.connect("missing-reference", find_by_its_end)
