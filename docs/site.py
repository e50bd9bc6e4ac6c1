"""Hook of MkDocs: the files of the site, and a check of its links.

A page of the site has the path of its document in the repository, so relative links work in both.
The API reference is made from the docstrings during the build.
"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import get_plugin_logger
from mkdocs.structure.files import File, Files

from fuser.inspect.manual import manual

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("docs", "benchmarks", "examples")
LINK = re.compile(r"\b(?:href|src|srcset)=\"?([^\"\s>]+)")

log = get_plugin_logger("site")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Replaces the files of docs_dir by the documents and pictures of the repository."""
    for file in list(files):
        if file.src_dir == config.docs_dir:
            files.remove(file)
    paths = list(ROOT.glob("*.md"))
    for folder in FOLDERS:
        paths += [p for p in (ROOT / folder).rglob("*") if p.suffix in (".md", ".svg")]
    for path in sorted(paths):
        name = path.relative_to(ROOT).as_posix()
        files.append(File(name, str(ROOT), config.site_dir, config.use_directory_urls))
    files.append(File.generated(config, "docs/api.md", content=manual()))
    return files


def on_post_build(config: MkDocsConfig) -> None:
    """Warns of links to files that the site lacks; MkDocs checks links in Markdown alone."""
    site = Path(config.site_dir)
    for page in site.rglob("*.html"):
        for link in LINK.findall(page.read_text(encoding="utf-8")):
            parts = urlsplit(link)
            target = page.parent / unquote(parts.path)
            if not parts.scheme and not parts.path.startswith("/") and not target.exists():
                log.warning("%s links to %s", page.relative_to(site), link)
