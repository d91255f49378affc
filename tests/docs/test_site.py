"""The site: it builds without a warning, loads nothing from another host, and its chart is that of the table."""

import importlib.util
import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from benchmarks.chart import chart, ratios

ROOT = Path(__file__).resolve().parents[2]
LOADED = re.compile(r"""<(?:link|script|img|iframe)\b[^>]*?\b(?:href|src)=["']?(?:https?:)?//""")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    missing = [name for name in ("mkdocs", "material") if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}; `make site` installs what the site needs")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stdout + run.stderr
    return folder


def test_every_page_is_built_and_loads_nothing_from_another_host(site):
    for page in (ROOT / "docs").rglob("*.md"):
        name = page.relative_to(ROOT / "docs").with_suffix(".html")
        built = site / (name.with_name("index.html") if page.name == "README.md" else name)
        assert not LOADED.search(built.read_text(encoding="utf-8")), name
    for style in site.rglob("*.css"):
        assert not re.search(r"(?:url\(|@import )[\"']?(?:https?:)?//", style.read_text(encoding="utf-8")), style.name


def test_the_api_is_on_the_site(site):
    assert 'id="tensorsoftmax"' in (site / "reference/api/tensor.html").read_text(encoding="utf-8")
    assert 'id="linear"' in (site / "reference/api/nn.html").read_text(encoding="utf-8")


def test_decisions_and_results_are_not_searched(site):
    pages = {entry["location"] for entry in json.loads((site / "search/search_index.json").read_text())["docs"]}
    assert {"index.html", "quickstart.html", "reference/api/tensor.html#tensorsoftmax"} <= pages
    assert not [page for page in pages if page.startswith(("adr/", "results/"))]


def test_the_chart_is_that_of_the_table():
    found = ratios((ROOT / "docs/results/cpu.md").read_text(encoding="utf-8"))
    drawn = (ROOT / "docs/images/cpu.svg").read_text(encoding="utf-8")
    assert drawn == chart(found), "run `make docs`"
    assert sum(map(len, found.values())) == drawn.count("<circle") > 50
    assert "0.47 of NumPy" in (ROOT / "docs/index.md").read_text(encoding="utf-8")
    assert min(ratio for section in found.values() for ratio in section) == 0.47


@pytest.mark.parametrize("name", ["cpu", "pipeline"])
def test_drawings_are_whole_and_stand_alone(name):
    drawing = ElementTree.parse(ROOT / f"docs/images/{name}.svg").getroot()
    assert drawing.get("viewBox") and not [x for x in drawing.iter() if x.tag.endswith(("script", "image"))]
