"""What the site has beside docs/*.md: the README, its neighbours and the examples; links to them lead into the site.

On the pages themselves the links are those of the repository, so that they also work where the repository is browsed.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
BESIDE = {name: f"{name.lower()}" for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")}
WIDE = {"docs/scale.md"}
"""Its tables need the place of the table of contents, as the long lines of the examples do."""
LANGUAGES = {".py": "python", ".yaml": "yaml", ".json": "json"}
LINK = re.compile(r"(```.*?```)|(\]\()([^)\s#:]+)((?:#[^)\s]*)?\))", re.DOTALL)


def _examples() -> list[str]:
    paths = (path for path in (ROOT / "examples").rglob("*") if path.suffix in LANGUAGES)
    files = [path for path in paths if path.read_text().strip()]
    return sorted(path.relative_to(ROOT).as_posix() for path in files)


def _page(example: str) -> str:
    return Path(example).with_suffix(".md").as_posix()


def _places() -> dict[str, str]:
    """Where the site has what the repository has elsewhere: by path from the repository's root."""
    places = {name: page for name, page in BESIDE.items() if (ROOT / name).exists()}
    places |= {name: _page(name) for name in _examples()}
    return places | {"examples": "examples/index.md"}


def _text(name: str) -> str:
    if name == "examples":
        rows = [f"- [{each}]({_page(each).removeprefix('examples/')})" for each in _examples()]
        return "\n".join(["# Examples", "", *rows])
    text = (ROOT / name).read_text()
    return text if name.endswith(".md") else f"# {name}\n\n```{LANGUAGES[Path(name).suffix]}\n{text}```\n"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not in docs/."""
    for name, page in _places().items():
        files.append(File.generated(config, page, content=_text(name)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Let links of the repository lead to the site's pages."""
    places = _places()
    uri = page.file.src_uri
    source = next((name for name, each in places.items() if each == uri), f"docs/{uri}")
    if source == "examples":
        return markdown
    if source.endswith(".py") or source in WIDE:
        page.meta["hide"] = ["toc"]

    def replaced(found: re.Match[str]) -> str:
        block, before, target, after = found.groups()
        if block:
            return block
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        there = places.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else None)
        if there is None:  # the strict build says so
            return found.group()
        return f"{before}{posixpath.relpath(there, posixpath.dirname(uri) or '.')}{after}"

    return LINK.sub(replaced, markdown)
