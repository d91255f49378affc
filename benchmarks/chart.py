"""Draw the chart of docs/index.md, docs/images/cpu.svg, from the table of docs/results/cpu.md.

    python -m benchmarks.chart

One dot a row of the table: the time of the fastest other library over that of monolect, on a logarithmic axis.
"""

from __future__ import annotations

import math
import re
from pathlib import Path

from benchmarks.cpu.table import BEGIN, END

DOCS = Path(__file__).parents[1] / "docs"
NAMES = {
    "matmul": "matrix products, f32", "narrow": "matrix products, bf16 and int8", "rows": "softmax, norms, sums",
    "movement": "gather, sort, transpose", "conv": "convolutions, pools", "attention": "attention",
    "models": "inference of models", "training": "training",
}  # section of the table -> label of the chart  # fmt: skip
WIDTH, LEFT, RIGHT, TOP, ROW = 440, 8, 14, 62, 40  # units of the drawing
LEAST, MOST = 0.4, 20.0  # ends of the axis
TICKS = (0.5, 1, 2, 5, 10, 20)
RADIUS = 5


def ratios(page: str) -> dict[str, list[float]]:
    """Section -> the column "ratio to best peer" of its rows, from the text of docs/results/cpu.md."""
    found: dict[str, list[float]] = {}
    for line in page.split(BEGIN)[1].split(END)[0].splitlines():
        if line.startswith("### "):
            section = found.setdefault(line[4:], [])
        elif line.startswith("| work"):
            column = [cell.strip() for cell in line.split("|")].index("ratio to best peer")
        elif match := re.match(r"\**([\d.]+) ", line.split("|")[column].strip() if line.startswith("| ") else ""):
            section.append(float(match[1]))
    return found


def at(ratio: float) -> float:
    """The x of a ratio."""
    return LEFT + (WIDTH - LEFT - RIGHT) * math.log(ratio / LEAST) / math.log(MOST / LEAST)


def chart(found: dict[str, list[float]]) -> str:
    """The drawing as SVG."""
    height, count = TOP + ROW * len(found) + 44, sum(map(len, found.values()))
    bottom = TOP + ROW * len(found)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="system-ui, sans-serif"'
        ' font-size="13">',
        "<style>text { fill: #222 } .grid { stroke: #ddd } .one { stroke: #222 } .faster { fill: #3949ab }"
        " .slower { fill: #d84315 } @media (prefers-color-scheme: dark) { text { fill: #ddd } .grid { stroke: #444 }"
        " .one { stroke: #ddd } .faster { fill: #9fa8da } .slower { fill: #ff8a65 } }</style>",
        '<text x="0" y="16" font-weight="600">Time of the fastest other library / time of monolect</text>',
        f'<text x="0" y="34">{count} programs, two threads of an AMD EPYC;</text>',
        '<text x="0" y="52">to the right of 1, monolect is faster</text>',
    ]
    for tick in TICKS:
        out.append(f'<line class="{"one" if tick == 1 else "grid"}" x1="{at(tick):.1f}" x2="{at(tick):.1f}"'
                   f' y1="{TOP}" y2="{bottom}"/>')  # fmt: skip
        out.append(f'<text x="{at(tick):.1f}" y="{bottom + 18}" text-anchor="middle">{tick:g}</text>')
    for k, (section, values) in enumerate(found.items()):
        y = TOP + ROW * k + 28
        out.append(f'<text x="{at(1) + 6:.1f}" y="{y - 10}" class="name">{NAMES[section]}</text>')
        for value in values:
            kind = "slower" if value < 1 else "faster"
            out.append(f'<circle class="{kind}" cx="{at(value):.1f}" cy="{y}" r="{RADIUS}" fill-opacity="0.6"/>')
    return "\n".join([*out, "</svg>", ""])


if __name__ == "__main__":
    (DOCS / "images").mkdir(exist_ok=True)
    text = chart(ratios((DOCS / "results/cpu.md").read_text(encoding="utf-8")))
    (DOCS / "images/cpu.svg").write_text(text, encoding="utf-8")
    print("docs/images/cpu.svg")
