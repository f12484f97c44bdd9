"""The documentation site, as Sphinx builds it: `make docs` writes build/site.

The documents are Markdown that GitHub renders as well. What only the site has is generated while it is built
(generated_reference.py) and put where a page has a comment `<!-- generated: NAME -->`.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tomllib
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx

DOCS = Path(__file__).parent
ROOT = DOCS.parent
sys.path.insert(0, str(DOCS))

from generated_reference import GENERATORS  # noqa: E402  (found by the line above)

project = "fanin"
author = "the fanin authors"
root_doc = "README"
smartquotes = False  # they would make a dash of the two in --option
extensions = ["myst_parser", "sphinx_design"]
exclude_patterns = ["**/.*"]

myst_enable_extensions = ["attrs_block", "colon_fence"]
myst_heading_anchors = 6  # by GitHub's rules: links to headings work in both places

html_theme = "furo"
html_title = "fanin"
html_static_path = ["_static"]
html_css_files = ["fanin.css"]
html_copy_source = False
html_show_copyright = False
pygments_style = "friendly"
pygments_dark_style = "github-dark"
highlight_language = "text"
suppress_warnings = ["misc.highlighting_failure"]  # "…" in code stands for lines that are left out

# Links to source files and folders lead to this address, such as https://github.com/OWNER/NAME/blob/COMMIT. Without it
# the site has copies of the files, which MyST makes of links to files that are no documents.
SOURCE = os.environ.get("FANIN_SOURCE_URL", "").rstrip("/")

# The documents, in the order of the site's menu. In a document GitHub would show this as code.
MENUS = {
    "README": {
        "Start here": "overview",
        "Tutorials": "tutorials/tutorial tutorials/labs tutorials/*",
        "How-to guides": "how-to/launch how-to/calls how-to/torch how-to/jobs how-to/inside how-to/faults "
        "how-to/scenario how-to/results how-to/diagnose how-to/own how-to/*",
        "Reference": "reference/commands reference/scenarios reference/scenario-keys reference/protocol reference/*",
        "Explanation": "explanation/architecture explanation/* explanation/decisions/README",
        "Measurements": "measurements/*",
        "The project": "contributing security code-of-conduct",
    },
    "tutorials/lessons": {"Lessons": "lessons/*"},
    "explanation/decisions/README": {"Decisions": "0*"},
}

# Pages that stand for documents of the root folder. For GitHub they only link to them; the site puts their text there.
STAND_FOR = {
    DOCS / "overview.md": ROOT / "README.md",
    DOCS / "contributing.md": ROOT / "CONTRIBUTING.md",
    DOCS / "security.md": ROOT / "SECURITY.md",
    DOCS / "code-of-conduct.md": ROOT / "CODE_OF_CONDUCT.md",
}
_PAGE_OF = {file: page for page, file in STAND_FOR.items()}

_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s#:]+)(#[^)\s]*)?\)")
_GENERATED = re.compile(r"<!-- generated: ([\w-]+) -->")
# How the first line of an indented block, which has no language of its own, shows what it is.
_LANGUAGES = {
    "bash": re.compile(r"(\$ )?(fanin|make|sudo|python3?|pip|git|cd|\. |\.venv/|export|tc|curl) ?"),
    "pycon": re.compile(r">>> "),
    "python": re.compile(r"import |from \w|def |class |\"\"\""),
    "toml": re.compile(r"\[+[\w.]+\]+$|\w+ = "),
    "json": re.compile(r"\{$"),
}


def _link_to_source(file: Path, page: Path, link: re.Match[str]) -> str:
    """Return a link of a file as the site needs it on a page.

    Pages and pictures are those of the site; everything else is where the source is.
    """
    picture, text, target, fragment = link.groups()
    found = (file.parent / target).resolve()
    if not found.exists():
        return link[0]
    found = _PAGE_OF.get(found, found)
    there = f"{picture}[{text}]({os.path.relpath(found, page.parent)}{fragment or ''})"
    if picture:
        return there
    if found.is_relative_to(DOCS) and found.suffix == ".md":
        return there
    if SOURCE:
        return f"[{text}]({SOURCE}/{found.relative_to(ROOT)}{fragment or ''})"
    return there if found.is_file() and found.suffix != ".md" else text


def _prepare(app: Sphinx, docname: str, content: list[str]) -> None:
    page = Path(app.env.doc2path(docname))
    file = STAND_FOR.get(page, page)
    text = content[0] if file == page else file.read_text()
    text = _LINK.sub(lambda link: _link_to_source(file, page, link), text)
    text = _GENERATED.sub(lambda comment: GENERATORS[comment[1]](), text)
    for caption, documents in MENUS.get(docname, {}).items():
        listed = "\n".join(documents.split())
        text += f"\n```{{toctree}}\n:hidden:\n:glob:\n:caption: {caption}\n\n{listed}\n```\n"
    content[0] = text


def _choose_languages(_: Sphinx, document: nodes.document) -> None:
    for block in document.findall(nodes.literal_block):
        if block.get("language", "text") in ("text", "none", "default"):
            first = block.astext().lstrip()
            fitting = (
                name for name, beginning in _LANGUAGES.items() if beginning.match(first.split("\n")[0])
            )
            language = next(fitting, "text")
            block["language"] = "text" if language == "toml" and not _is_toml(block.astext()) else language


def _is_toml(text: str) -> bool:
    """Return whether a text is TOML, and not a formula or Python, which begin alike."""
    try:
        tomllib.loads(text.replace("…", ""))
    except tomllib.TOMLDecodeError:
        return False
    return True


def _add_index(app: Sphinx, error: Exception | None) -> None:
    """Have the root document where servers look for it."""
    if error is None and app.builder.name == "html":
        shutil.copy(Path(app.outdir, "README.html"), Path(app.outdir, "index.html"))


def setup(app: Sphinx) -> None:
    """Connect the functions above to the events of a build."""
    app.connect("source-read", _prepare)
    app.connect("doctree-read", _choose_languages)
    app.connect("build-finished", _add_index)
