"""Charts: for Markdown as mermaid with a text form beside it, for HTML as SVG, for a terminal as one line of blocks.

Mermaid and SVG hold numbers and words of ours. Names from outside stand beside a mermaid chart in Markdown, and in SVG as escaped text.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import ceil, floor, log10
from typing import TYPE_CHECKING, Final

from probes.evidence.words import Words, words

from .escape import Markdown, Ours, clip, fence, visible
from .figures import count, percent, short_length, size

if TYPE_CHECKING:
    from .view import Chart, HeatMap, Stack

_BLOCKS: Final = "▁▂▃▄▅▆▇█"
_BAR: Final = 24


def sparkline(values: Sequence[float | None]) -> str:
    """Give one character for each value, from the lowest line for zero to the full block for the greatest; a blank where there is none."""
    top = max((v for v in values if v is not None), default=0.0)
    if top <= 0:
        return "".join(" " if v is None else _BLOCKS[0] for v in values)
    return "".join(" " if v is None else _BLOCKS[min(7, round(v / top * 7))] for v in values)


def _scale(value: float, kind: str) -> float:
    return value / 2**30 if kind == "size" else value * 100 if kind == "share" else value


def _figure(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if value < 1000 else f"{value:.0f}"


COLOURS: Final[tuple[tuple[str, Words], ...]] = (
    ("#2f7fd6", words("blue")),
    ("#d4600f", words("orange")),
    ("#2b8a4a", words("green")),
    ("#9a5fd0", words("purple")),
    ("#b07a00", words("yellow")),
    ("#0f8a94", words("turquoise")),
    ("#c64a86", words("pink")),
    ("#7a828a", words("grey")),
)
"""Colours of a chart's lines in their order, each told from the ground in a light and in a dark page: mermaid's own first line is all but white."""
_MOST_TICKS: Final = 12
"""More lengths than these write over each other on mermaid's axis."""


def colour(at: int) -> Words:
    """Name the colour of the line at this place."""
    return COLOURS[at % len(COLOURS)][1]


def _drawn(chart: Chart, at: list[int]) -> list[int]:
    """Choose the lengths that are drawn where there are too many: both ends, where a step is, and evenly between."""
    if len(at) <= _MOST_TICKS:
        return at
    kept = {at[0], at[-1]}
    if chart.mark is not None and chart.mark.shape == "step" and chart.mark.after in at:
        place = at.index(chart.mark.after)
        kept |= {at[place], at[max(place - 1, 0)]}
    step = (len(at) - 1) / (_MOST_TICKS - 1)
    for i in range(_MOST_TICKS):
        if len(kept) < _MOST_TICKS:
            kept.add(at[round(i * step)])
    return sorted(kept)


def mermaid(chart: Chart) -> Markdown | None:
    """Give the chart as mermaid's ``xychart-beta``: only lengths where every line has a value, since it knows no gaps. None under two."""
    at = [i for i in range(len(chart.x)) if all(s.values[i] is not None for s in chart.series)]
    if len(at) < 2:
        return None
    at = _drawn(chart, at)
    rows = [[_scale(s.values[i] or 0.0, chart.kind) for i in at] for s in chart.series]
    top = 100.0 if chart.kind == "share" else _nice(max(max(row) for row in rows) or 1.0)
    unit = {"size": "GiB", "share": "%"}.get(chart.kind) or str(chart.unit)
    ticks = ", ".join('"' + short_length(chart.x[i]) + '"' for i in at)
    palette = ", ".join(COLOURS[i % len(COLOURS)][0] for i in range(len(rows)))
    lines = [
        f'%%{{init: {{"themeVariables": {{"xyChart": {{"plotColorPalette": "{palette}"}}}}}}}}%%',
        "xychart-beta",
        f'    title "{_label(chart.title)}"',
        f'    x-axis "{_label(words("input tokens"))}" [{ticks}]',
        f'    y-axis "{_label(unit)}" 0 --> {_figure(top)}',
        *(f"    line [{', '.join(_figure(v) for v in row)}]" for row in rows),
    ]
    return fence("\n".join(lines), "mermaid", whole=True)


def _label(text: Words | str) -> str:
    return str(text).replace('"', "'").replace("\n", " ")


def text_form(chart: Chart) -> Markdown:
    """Give the chart as lines of text: length, value, a bar, and the difference from the first length that has a value."""
    if len(chart.series) > 1:
        return fence(_columns(chart), "text chart", whole=True)
    lines: list[str] = []
    for series in chart.series:
        top = max([v for v in series.values if v is not None] + ([series.limit] if series.limit else []), default=0.0)
        if chart.top:
            top = chart.top
        base = next((v for v in series.values if v is not None), None)
        width = max(len(count(n)) for n in chart.x)
        shown = [chart.text(v) if v is not None else "–" for v in series.values]
        wide = max(len(t) for t in shown)
        for n, value, figure in zip(chart.x, series.values, shown, strict=True):
            bar = "█" * round((value or 0) / top * _BAR) if top else ""
            change = (
                f"  {_signed(value / base - 1)}"
                if value is not None and base and value != base and chart.kind == "speed"
                else ""
            )
            lines.append(f"{count(n):>{width}}  {figure:>{wide}}  {bar}{change}".rstrip())
        if series.limit and chart.kind == "size":
            lines.append(str(words("size of the device: {size}", size=size(series.limit))))
    if chart.mark is not None:
        lines.append(str(chart.mark.words))
    return fence("\n".join(lines), "text chart", whole=True)


def _columns(chart: Chart) -> str:
    names = [
        f"{i} = " + str(words("{line} ({colour})", line=clip(visible(str(series.name)), 60), colour=colour(i - 1)))
        for i, series in enumerate(chart.series, 1)
    ]
    table = [["", *(str(i) for i in range(1, len(chart.series) + 1))]]
    for at, n in enumerate(chart.x):
        values = [s.values[at] for s in chart.series]
        table.append([count(n), *(chart.text(v) if v is not None else "–" for v in values)])
    if any(s.limit for s in chart.series):
        table.append([str(words("in all")), *(chart.text(s.limit) if s.limit else "–" for s in chart.series)])
    return "\n".join([*names, "", _grid(table)])


def _signed(change: float) -> Ours:
    return Ours(f"+{percent(change)}" if change > 0 else percent(change))


def heat_text(heat: HeatMap) -> Markdown:
    """Give the heat map as a grid of hits and asked."""
    table = [[str(words("depth")), *(str(count(n)) for n in heat.lengths)]]
    for depth, row in zip(heat.depths, heat.cells, strict=True):
        table.append([percent(depth), *(f"{c[0]:g}/{c[1]}" if c is not None else "–" for c in row)])
    return fence(_grid(table), "text heat", whole=True)


def stack_text(stacks: Sequence[Stack]) -> Markdown:
    """Give each device's memory by component, and what of the device's size is left."""
    lines = []
    for stack in stacks:
        lines.append(clip(visible(str(stack.name)), 60))
        lines += [f"  {size(value):>11}  {name}" for name, value in stack.parts]
        used = sum(value for _, value in stack.parts)
        if stack.total:
            left = stack.total - used
            lines.append(
                f"  {size(used):>11}  " + str(words("of {size}; left: {left}", size=size(stack.total), left=size(left)))
            )
    return fence("\n".join(lines), "text stacks", whole=True)


def _grid(table: list[list[str]]) -> str:
    wide = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    return "\n".join("  ".join(f"{text:>{wide[i]}}" for i, text in enumerate(row)) for row in table)


# SVG -----------------------------------------------------------------------------------------------------------------

_W: Final = 640
_H: Final = 308
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 20, 28, 54


def _nice(value: float) -> float:
    """Give the next round number at or above."""
    if value <= 0:
        return 1.0
    power = 10.0 ** floor(log10(value))
    for step in (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10):
        if value <= step * power * 1.0000001:
            return step * power
    return 10 * power


def _xs(x: Sequence[int]) -> list[float]:
    low, high = min(x), max(x)
    # From zero where the shortest is near it: a length's place is its length.
    low = 0 if low < high * 0.5 else low
    room = _W - _LEFT - _RIGHT - 30
    return [_LEFT + 15 + (n - low) / ((high - low) or 1) * room for n in x]


def _head(id_: str, title: str, described: str, height: int = _H) -> str:
    return (
        f'<svg class="chart" viewBox="0 0 {_W} {height}" role="img" aria-labelledby="{id_}-t {id_}-d">'
        f'<title id="{id_}-t">{escape(title)}</title><desc id="{id_}-d">{escape(described)}</desc>'
    )


def _thin(places: Sequence[float], least: float) -> set[int]:
    """Choose labels that do not run into each other; the last always has its place."""
    chosen: list[int] = []
    for i in range(len(places)):
        if not chosen or places[i] - places[chosen[-1]] >= least:
            chosen.append(i)
    end = len(places) - 1
    if chosen and chosen[-1] != end:
        if places[end] - places[chosen[-1]] < least:
            chosen.pop()
        chosen.append(end)
    return set(chosen)


def svg(chart: Chart) -> str:
    """Draw a chart: axes from zero, a line for each series with its points, the step marked, a device's size as a broken line."""
    values = [v for s in chart.series for v in s.values if v is not None]
    limits = [s.limit for s in chart.series if s.limit and chart.kind == "size"]
    top_raw = chart.top or max([*values, *limits])
    top = 1.0 if chart.kind == "share" else _nice(_scale(top_raw, chart.kind))
    if chart.kind == "share":
        top = 100.0
    xs = _xs(chart.x)
    floor_y, roof_y = _H - _BOTTOM, _TOP

    def y(value: float) -> float:
        return floor_y - _scale(value, chart.kind) / top * (floor_y - roof_y)

    described = "; ".join(
        f"{visible(str(s.name))}: "
        + ", ".join(f"{count(n)} = {chart.text(v)}" for n, v in zip(chart.x, s.values, strict=True) if v is not None)
        for s in chart.series
    )
    out = [_head(f"chart-{chart.id}", str(chart.title), clip(described, 2_000))]
    if chart.mark is not None and chart.mark.shape == "step":
        at = chart.mark.after
        before = max((i for i in range(at) if chart.series[0].values[i] is not None), default=0)
        out.append(
            f'<rect class="mark" x="{xs[before]:.1f}" y="{roof_y}" width="{xs[at] - xs[before]:.1f}" height="{floor_y - roof_y}"/>'
            f'<text class="marked" x="{min(max((xs[before] + xs[at]) / 2, _LEFT + 40), _W - 60):.1f}" y="{roof_y - 8}" text-anchor="middle">'
            f"{escape(str(words('step')))}</text>"
        )
    ticks = 4
    for i in range(ticks + 1):
        value = top * i / ticks
        at_y = floor_y - (floor_y - roof_y) * i / ticks
        out.append(
            f'<line class="grid" x1="{_LEFT}" x2="{_W - _RIGHT}" y1="{at_y:.1f}" y2="{at_y:.1f}"/>'
            f'<text class="tick" x="{_LEFT - 8}" y="{at_y + 4:.1f}" text-anchor="end">{_figure(value)}</text>'
        )
    labelled = _thin(xs, 44)
    out += [
        f'<text class="tick" x="{xs[i]:.1f}" y="{floor_y + 18}" text-anchor="middle">{short_length(chart.x[i])}</text>'
        for i in sorted(labelled)
    ]
    unit = {"size": "GiB", "share": "%"}.get(chart.kind) or str(chart.unit)
    out.append(f'<text class="axis" x="{_LEFT - 52}" y="14">{escape(unit)}</text>')
    out.append(
        f'<text class="axis" x="{_W - _RIGHT}" y="{_H - 8}" text-anchor="end">{escape(str(words("input tokens")))}</text>'
    )
    for k, series in enumerate(chart.series):
        colour = f"s{k % 6}"
        if series.limit and chart.kind in {"size", "share"}:
            at_y = y(series.limit)
            out.append(
                f'<line class="limit {colour}" x1="{_LEFT}" x2="{_W - _RIGHT}" y1="{at_y:.1f}" y2="{at_y:.1f}"/>'
            )
        points = [(xs[i], y(v), v, i) for i, v in enumerate(series.values) if v is not None]
        out.append(
            f'<polyline class="line {colour}" points="{" ".join(f"{a:.1f},{b:.1f}" for a, b, _, _ in points)}"/>'
        )
        base = points[0][2] if points else 0.0
        # Letters are larger on a narrow screen: a label takes up to ten units a character there.
        longest = max((len(chart.text(p[2])) for p in points), default=0)
        spelled = _thin([p[0] for p in points], max(58, 10 * longest + 8)) if len(chart.series) == 1 else set()
        for j, (a, b, v, i) in enumerate(points):
            change = f" ({_signed(v / base - 1)})" if base and chart.kind == "speed" and v != base else ""
            out.append(
                f'<g class="point {colour}"><title>{escape(f"{count(chart.x[i])}: {chart.text(v)}{change}")}</title>{_dot(k, a, b)}</g>'
            )
            if j in spelled:
                down = b - 10 > roof_y + 4
                label = _signed(v / base - 1) if change else chart.text(v)
                # At the right edge a long label ends there instead of running out of the picture.
                over = a + 5 * len(label) > _W
                where = f'x="{_W - 2 if over else a:.1f}" y="{b - 10 if down else b + 18:.1f}" text-anchor="{"end" if over else "middle"}"'
                out.append(f'<text class="value" {where}>{escape(label)}</text>')
    out.append("</svg>")
    if len(chart.series) > 1:
        out.append(_legend([str(s.name) for s in chart.series]))
    return "".join(out)


def _dot(k: int, a: float, b: float) -> str:
    """Draw a point whose form tells the series apart without its colour."""
    if k % 3 == 1:
        return f'<rect x="{a - 4:.1f}" y="{b - 4:.1f}" width="8" height="8"/>'
    if k % 3 == 2:
        return f'<path d="M{a:.1f} {b - 5:.1f}l5 9h-10z"/>'
    return f'<circle cx="{a:.1f}" cy="{b:.1f}" r="4"/>'


def _legend(names: Sequence[str], kind: str = "s") -> str:
    items = "".join(
        f'<li><svg class="key" viewBox="0 0 14 14" aria-hidden="true"><g class="{"point" if kind == "s" else "part"} {kind}{i % 6}">'
        + (_dot(i, 7, 7) if kind == "s" else '<rect x="1" y="1" width="12" height="12"/>')
        + f"</g></svg> {escape(clip(visible(name), 60))}</li>"
        for i, name in enumerate(names)
    )
    return f'<ul class="legend">{items}</ul>'


def svg_stacks(stacks: Sequence[Stack]) -> str:
    """Draw one bar a device, stacked by component, with the device's size as a line."""
    top = _nice(max([sum(v for _, v in s.parts) for s in stacks] + [s.total or 0 for s in stacks]) / 2**30) * 2**30
    row, left, right = 56, 16, 16
    height = row * len(stacks) + 40
    room = _W - left - right
    names = list(dict.fromkeys(str(name) for s in stacks for name, _ in s.parts))
    described = "; ".join(f"{visible(str(s.name))}: " + ", ".join(f"{n} {size(v)}" for n, v in s.parts) for s in stacks)
    out = [_head("chart-stacks", str(words("Memory of each device by component")), clip(described, 2_000), height)]
    for i, stack in enumerate(stacks):
        y = i * row + 24
        used = sum(v for _, v in stack.parts)
        label = f"{clip(visible(str(stack.name)), 48)}: {size(used)}" + (
            f" / {size(stack.total)}" if stack.total else ""
        )
        out.append(f'<text class="axis" x="{left}" y="{y - 6}">{escape(label)}</text>')
        at = float(left)
        for name, value in stack.parts:
            wide = value / top * room
            k = names.index(str(name)) % 6
            out.append(
                f'<g class="part p{k}"><title>{escape(f"{name}: {size(value)}")}</title>'
                f'<rect x="{at:.1f}" y="{y}" width="{wide:.1f}" height="22"/></g>'
            )
            at += wide
        if stack.total:
            edge = left + stack.total / top * room
            out.append(f'<line class="edge" x1="{edge:.1f}" x2="{edge:.1f}" y1="{y - 4}" y2="{y + 26}"/>')
    floor_y = row * len(stacks) + 16
    out += [
        f'<text class="tick" x="{left + room * i / 4:.1f}" y="{floor_y + 14}" text-anchor="{("start", "middle", "middle", "middle", "end")[i]}">'
        f"{_figure(top / 2**30 * i / 4)} GiB</text>"
        for i in range(5)
    ]
    return "".join(out) + "</svg>" + _legend(names, "p")


def svg_heat(heat: HeatMap) -> str:
    """Draw recall by length (across) and depth (down): the share in figures and as five shades."""
    wide = (_W - 70 - 10) / len(heat.lengths)
    row = 26
    height = row * len(heat.depths) + 64
    described = "; ".join(
        f"{percent(d)}: "
        + ", ".join(f"{count(n)} = {c[0]:g}/{c[1]}" for n, c in zip(heat.lengths, cells, strict=True) if c)
        for d, cells in zip(heat.depths, heat.cells, strict=True)
    )
    out = [_head("chart-heat", str(words("Recall by length and depth")), clip(described, 2_000), height)]
    out.append(f'<text class="axis" x="8" y="14">{escape(str(words("depth")))}</text>')
    for j, (depth, cells) in enumerate(zip(heat.depths, heat.cells, strict=True)):
        y = 22 + j * row
        out.append(f'<text class="tick" x="62" y="{y + 17}" text-anchor="end">{percent(depth)}</text>')
        for i, tally in enumerate(cells):
            x = 70 + i * wide
            if tally is None:
                out.append(f'<rect class="none" x="{x:.1f}" y="{y}" width="{wide - 2:.1f}" height="{row - 2}"/>')
                continue
            share = tally[0] / tally[1]
            shade = min(4, ceil(share * 4 - 1e-9))
            out.append(
                f'<g class="heat h{shade}"><title>{escape(f"{count(heat.lengths[i])}, {percent(depth)}: {tally[0]:g}/{tally[1]}")}</title>'
                f'<rect x="{x:.1f}" y="{y}" width="{wide - 2:.1f}" height="{row - 2}"/>'
            )
            if wide >= 34:
                out.append(
                    f'<text x="{x + (wide - 2) / 2:.1f}" y="{y + 17}" text-anchor="middle">{tally[0]:g}/{tally[1]}</text>'
                )
            out.append("</g>")
    xs = [70 + i * wide + wide / 2 for i in range(len(heat.lengths))]
    floor_y = 22 + row * len(heat.depths)
    out += [
        f'<text class="tick" x="{xs[i]:.1f}" y="{floor_y + 15}" text-anchor="middle">{short_length(heat.lengths[i])}</text>'
        for i in sorted(_thin(xs, 44))
    ]
    out.append(
        f'<text class="axis" x="{_W - 10}" y="{height - 4}" text-anchor="end">{escape(str(words("input tokens")))}</text></svg>'
    )
    return "".join(out)
