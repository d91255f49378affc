"""Add the generated part to the pages of the API reference while mkdocs builds the site (`hooks` in mkdocs.yml)."""

from pathlib import PurePosixPath
from typing import Any

from monolect.cli import api


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return the text of a page; under reference/api/ it goes on with what `monolect api NAME --markdown` prints."""
    path = PurePosixPath(page.file.src_uri)
    if path.parent.as_posix() != "reference/api" or path.stem not in api.PAGES:
        return markdown
    return f"{markdown}\n\n{api.page(path.stem)}"
