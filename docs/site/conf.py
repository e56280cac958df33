"""Settings of the site; `python docs/site/build.py` runs the build and says what is wrong."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from sphinx.domains.python import PyObject
from sphinx.ext.napoleon import Config, GoogleDocstring

project = "tokenloom"
author = "the tokenloom authors"
copyright = author
extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["src", "tests", "examples", "benchmarks"]  # there for links only
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
highlight_language = "none"  # a fence without a language is no Python
default_role = "py:obj"  # `name` links to the name if there is one, and is code otherwise
myst_heading_anchors = 4

autodoc_mock_imports = [
    "lightning"
]  # takes 10 s to import; two base classes are all that is needed
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 80
GOOGLE = Config(napoleon_use_ivar=True, napoleon_attr_annotations=False)
# NDArray[int64], as Python spells it out
ARRAY = re.compile(
    r"~?(?:numpy\.)?ndarray\[tuple\[~?(?:typing\.)?Any, \.\.\.\], "
    r"~?(?:numpy\.)?dtype\[(~?[\w.]+)\]\]"
)
SHORT = r"~numpy.typing.NDArray[\1]"
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = "tokenloom"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False


def _read(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Google's sections; for Sphinx the words before a colon of a property would be its type."""
    kind = "method" if what in ("attribute", "property") else what
    lines[:] = GoogleDocstring(lines, GOOGLE, app, kind, name, obj, options).lines()


def _signature(
    app: Any,
    what: str,
    name: str,
    obj: Any,
    options: Any,
    signature: str | None,
    returns: str | None,
) -> tuple[str, str | None] | None:
    """Arrays by their short name; classes that nobody makes by hand without their arguments."""
    told = "Args:" in (obj.__doc__ or "") or dataclasses.is_dataclass(obj)
    if what == "class" and not told:
        return "", None
    if signature is None:
        return None
    return ARRAY.sub(SHORT, signature), returns and ARRAY.sub(SHORT, returns)


def _resolve(app: Any, env: Any, node: Any, words: Any) -> Any:
    """`Store.pack` in a docstring is `tokenloom.Store.pack`."""
    if node.get("refdomain") != "py" or "reftarget" not in node:
        return None
    name = f"tokenloom.{node['reftarget'].removesuffix('()')}"
    python = env.domains.python_domain
    page = node.get("refdoc", env.docname)
    return python.resolve_xref(env, page, app.builder, "obj", name, node, words)


def setup(app: Any) -> None:
    """Called by Sphinx."""
    fields = {field.name: field for field in PyObject.doc_field_types}
    fields["variable"].label = "Attributes"
    app.connect("autodoc-process-docstring", _read)
    app.connect("autodoc-process-signature", _signature)
    app.connect("missing-reference", _resolve)
