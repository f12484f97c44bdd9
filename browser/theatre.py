"""The theatre: a page in one file that plays recordings, without a server and without a network."""

from __future__ import annotations

import json
from html import escape

from fanin.browser.server import BUILT
from fanin.experiments.virtual.recording_document import Document

# Nothing is loaded, not even by a recording that somebody has tampered with.
_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>
{style}
</style>
</head>
<body>
<div id="page"></div>
<script type="application/json" id="recording">{recording}</script>
<script>
{script}
</script>
</body>
</html>
"""


def theatre_page(document: Document) -> str:
    """Return the page that plays a recording document, as HTML."""
    folder = BUILT / "theatre"
    # JSON in a script ends at the first "</script", wherever that is; all of "<" can be written otherwise.
    recording = json.dumps(document, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return _PAGE.format(
        policy=_POLICY,
        title=escape(f"{document['name']}: packets of a run"),
        style=(folder / "theatre.css").read_text(),
        script=(folder / "theatre.js").read_text(),
        recording=recording,
    )
