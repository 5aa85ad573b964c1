"""Put pages that lie outside of docs/ on the site, and lead links between pages to where they are there.

mkdocs calls the functions. In the repository, links are paths from file to file; what the site does not hold, such as
sources, is named there without a link.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
#: Pages of the site by their files in the repository.
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    **{
        str(path.relative_to(ROOT)): f"plugins/{path.parent.name}.md"
        for path in sorted([*ROOT.glob("plugins/*/README.md"), *ROOT.glob("examples/plugins/*/README.md")])
    },
}
_LINK = re.compile(r"\[([^\]]+)\]\(([^)\s#]+)(#[^)\s]*)?\)")
_FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that lie outside of docs/."""
    for name, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / name).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead the links of a page, fenced blocks aside, to where things are on the site."""
    path = page.file.src_uri
    source = next((name for name, made in PAGES.items() if made == path), f"docs/{path}")
    pieces = _FENCED.split(markdown)
    return "".join(
        piece.replace("```spec\n", "```morello\n", 1)
        if piece.startswith("```")
        else _LINK.sub(lambda link: _led(link, source, path), piece)
        for piece in pieces
    )


def _led(link: re.Match[str], source: str, page: str) -> str:
    text, target, anchor = link[1], link[2], link[3] or ""
    file = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
    if not (ROOT / file).exists():
        return link[0]
    there = PAGES.get(file) or (file.removeprefix("docs/") if file.startswith("docs/") else None)
    if there is None:
        return text
    return f"[{text}]({posixpath.relpath(there, posixpath.dirname(page) or '.')}{anchor})"
