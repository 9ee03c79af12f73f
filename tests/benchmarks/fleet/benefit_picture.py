"""Draw money against success as an SVG: a panel for each mix, the curve of the weights, the bounds. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

_WIDTH, _HEIGHT, _LEFT, _TOP = 300, 250, 52, 46
_CURVES = ("cost-aware", "oracle")
_MARKS = ("without", "heuristic", "router", "all", "cheapest", "random")
_STYLE = """\
  <style>
    .page { fill: #ffffff }
    text { fill: #17212b }
    .axis { fill: none; stroke: #6b7a8c }
    .grid { fill: none; stroke: #e1e6ec }
    .curve { fill: none; stroke-width: 2 }
    .cost-aware { fill: #0b7a55; stroke: #0b7a55 }
    .oracle { fill: #8a94a0; stroke: #8a94a0 }
    .without { fill: #c0392b }
    .heuristic { fill: #2f5fd0 }
    .router { fill: #7a4fa3 }
    .all { fill: #12b886 }
    .cheapest { fill: #c58a00 }
    .random { fill: #55606c }
    .curve.cost-aware, .curve.oracle { fill: none }
    @media (prefers-color-scheme: dark) {
      .page { fill: #161b22 }
      text { fill: #e6ebf1 }
      .grid { stroke: #2b333d }
      .cost-aware { fill: #4cd7a4; stroke: #4cd7a4 }
      .without { fill: #ff8a7a }
      .heuristic { fill: #86a8ff }
      .router { fill: #c9a4f0 }
      .random { fill: #b3bfcc }
    }
  </style>"""

Point = Mapping[str, Any]


def draw(points: Sequence[Point], seeds: int) -> str:
    """Return the picture of all mixes in which there is something to choose."""
    mixes = [mix for mix in dict.fromkeys(point["mix"] for point in points) if _has_choice(mix, points)]
    width = _LEFT + len(mixes) * (_WIDTH + _LEFT)
    height = _TOP + _HEIGHT + 92
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        'aria-labelledby="title desc" font-family="system-ui, sans-serif" font-size="12">'
    )
    parts = [
        opening,
        '  <title id="title">Money a finished job against jobs finished</title>',
        f'  <desc id="desc">{" ".join(_say(mix, points) for mix in mixes)}</desc>',
        _STYLE,
        f'  <rect class="page" width="{width}" height="{height}"/>',
    ]
    floor = max(0.0, min((point["finished"] for point in points if point["mix"] in mixes), default=1) - 0.04)
    for number, mix in enumerate(mixes):
        of_mix = [point for point in points if point["mix"] == mix]
        parts += _panel(mix, of_mix, _LEFT + number * (_WIDTH + _LEFT), floor)
    for number, side in enumerate((*_CURVES, *_MARKS)):
        x, y = _LEFT + number * 105, height - 34
        shape = f'  <path class="curve {side}" d="M{x},{y - 4}h16"/>'
        if side not in _CURVES:
            shape = f'  <rect class="{side}" x="{x + 4}" y="{y - 8}" width="8" height="8"/>'
        parts += [shape, _text(x + 21, y, side)]
    words = f"Curves: weights of cost and latency from 1:0 to 0:1. Means over {seeds} worlds of 200 agents."
    parts.append(_text(_LEFT, height - 10, words))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _has_choice(mix: str, points: Sequence[Point]) -> bool:
    own = [point["usd_per_job"] for point in points if point["mix"] == mix]
    return max(own) > 1.02 * min(own)


def _say(mix: str, points: Sequence[Point]) -> str:
    found = [
        one for one in points if one["mix"] == mix and one["side"] in ("without", "cost-aware", "oracle")
    ]
    told = (
        f"{one['side']} with weights {one['weights'][0]:g} and {one['weights'][1]:g} pays "
        f"{one['usd_per_job']:.2f} USD a job and finishes {one['finished']:.0%}"
        for one in found
    )
    return f"{mix}: {'; '.join(told)}."


def _panel(mix: str, points: Sequence[Point], left: float, floor: float) -> list[str]:
    most = max(point["usd_per_job"] for point in points) * 1.08

    def place(point: Point) -> tuple[float, float]:
        return left + point["usd_per_job"] / most * _WIDTH, _height_of(point["finished"], floor)

    bottom = _TOP + _HEIGHT
    parts = [
        _text(left, _TOP - 14, mix),
        f'  <path class="axis" d="M{left},{_TOP}V{bottom}H{left + _WIDTH}"/>',
        _text(left + _WIDTH / 2, bottom + 34, "USD a finished job", "middle"),
    ]
    for step in range(5):
        share = floor + (1 - floor) * step / 4
        y = _height_of(share, floor)
        parts.append(f'  <path class="grid" d="M{left},{y:.1f}h{_WIDTH}"/>')
        parts.append(_text(left - 6, y + 4, f"{share:.0%}", "end"))
        parts.append(_text(left + _WIDTH * step / 4, bottom + 16, f"{most * step / 4:.2f}", "middle"))
    for side in _CURVES:
        curve = sorted((one for one in points if one["side"] == side), key=lambda one: -one["weights"][0])
        places = [f"{x:.1f},{y:.1f}" for x, y in map(place, curve)]
        if places:
            parts.append(f'  <polyline class="curve {side}" points="{" ".join(places)}"/>')
            parts += [
                f'  <circle class="{side}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in map(place, curve)
            ]
    for side in _MARKS:
        for x, y in (place(one) for one in points if one["side"] == side):
            parts.append(f'  <rect class="{side}" x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8"/>')
    return parts


def _height_of(finished: float, floor: float) -> float:
    return _TOP + (1 - (finished - floor) / (1.02 - floor)) * _HEIGHT


def _text(x: float, y: float, words: str, anchor: str = "start") -> str:
    return f'  <text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{words}</text>'
