"""Draws the results of bench/peers/compare as an SVG bar chart.

SPDX-License-Identifier: Apache-2.0
"""
import math
from xml.sax.saxutils import escape

LABELS = 190  # pixels left of the plot
PLOT = 480
RIGHT = 180
ROW = 20
TOP = 62
BETTER, WORSE, NOT_JUDGED = "#2a7f62", "#b5523b", "#9a9a9a"


def text(x, y, content, anchor="start", style=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{style}>{escape(content)}</text>'


def line(x1, y1, x2, y2, style):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" {style}/>'


def bar(result, y, x_of):
    """Returns the bar of one result, from 1 to its ratio, with the spread as a line."""
    color = NOT_JUDGED if not result["judged"] else BETTER if result["ratio"] >= 1 else WORSE
    left, right = sorted((x_of(1), x_of(result["ratio"])))
    middle = y + ROW / 2
    note = f"{result['ratio']:.2f} to {result['best_peer']}" + ("" if result["judged"] else ", not judged")
    return [text(LABELS - 8, middle + 4, result["figure"], "end"),
            f'<rect x="{left:.1f}" y="{y + 4:.1f}" width="{max(right - left, 1):.1f}" height="{ROW - 8}" fill="{color}"/>',
            line(x_of(result["low"]), middle, x_of(result["high"]), middle, 'stroke="#222" stroke-width="1.5"'),
            text(LABELS + PLOT + 8, middle + 4, note)]


def svg(results):
    """Returns an SVG document: a row for each result, the ratios on a logarithmic axis."""
    corpora = list(dict.fromkeys(result["corpus"] for result in results))
    height = TOP + ROW * (len(results) + 1.5 * len(corpora)) + 24
    reach = max([1.0] + [abs(math.log2(result[key])) for result in results for key in ("low", "high")])
    steps = math.ceil(reach)

    def x_of(ratio):
        return LABELS + PLOT * (math.log2(ratio) + steps) / (2 * steps)

    width = LABELS + PLOT + RIGHT
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height:.0f}" '
           'font-family="sans-serif" font-size="12">', f'<rect width="{width}" height="{height:.0f}" fill="white"/>',
           text(LABELS, 20, "kvcast beside the indexes of dynamo-kv-router", style=' font-size="15"'),
           text(LABELS, 38, "ratio to the best peer; right of 1: kvcast is better; black line: from the lowest to the highest round")]
    for step in range(-steps, steps + 1):
        x = x_of(2.0 ** step)
        out.append(line(x, TOP, x, height - 16, f'stroke="{"#222" if step == 0 else "#ddd"}"'))
        out.append(text(x, TOP - 6, f"{2.0 ** step:g}", "middle"))
    y = TOP
    for corpus in corpora:
        out.append(text(12, y + ROW, corpus, style=' font-weight="bold"'))
        y += 1.5 * ROW
        for result in (result for result in results if result["corpus"] == corpus):
            out += bar(result, y, x_of)
            y += ROW
    return "\n".join(out + ["</svg>", ""])
