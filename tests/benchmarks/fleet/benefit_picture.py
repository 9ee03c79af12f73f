"""Draw money against success as an SVG: a panel for each mix, the curve of the weights, the bounds. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

_WIDTH, _HEIGHT, _LEFT, _TOP = 300, 250, 52, 46
_CURVES = {"cost-aware": "#0b6e4f", "oracle": "#8a8a8a"}
_MARKS = {
    "without": "#b3261e", "heuristic": "#1f5fa8", "router": "#7a4fa3", "all": "#00a878",
    "cheapest": "#c58a00", "random": "#555555",
}  # fmt: skip
_FONT = 'font-family="sans-serif" font-size="11"'

Point = Mapping[str, Any]


def draw(points: Sequence[Point], seeds: int) -> str:
    """Return the picture of all mixes in which there is something to choose."""
    mixes = [mix for mix in dict.fromkeys(point["mix"] for point in points) if _has_choice(mix, points)]
    width = _LEFT + len(mixes) * (_WIDTH + _LEFT)
    height = _TOP + _HEIGHT + 92
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}"',
        f' height="{height}" role="img" aria-label="Money a finished job against jobs finished">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    lows = [point["finished"] for point in points if point["mix"] in mixes]
    floor = max(0.0, min(lows) - 0.04)
    for number, mix in enumerate(mixes):
        of_mix = [point for point in points if point["mix"] == mix]
        parts += _panel(mix, of_mix, _LEFT + number * (_WIDTH + _LEFT), floor)
    for number, (side, colour) in enumerate((_CURVES | _MARKS).items()):
        x, y = _LEFT + number * 105, height - 34
        shape = f'<path d="M{x},{y - 4}h16" stroke="{colour}" stroke-width="2"/>'
        parts.append(
            shape
            if side in _CURVES
            else f'<rect x="{x + 4}" y="{y - 8}" width="8" height="8" fill="{colour}"/>'
        )
        parts.append(_text(x + 21, y, side, colour=colour))
    words = f"Curves: weights of cost and latency from 1:0 to 0:1. Means over {seeds} worlds of 200 agents."
    parts.append(_text(_LEFT, height - 10, words))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _has_choice(mix: str, points: Sequence[Point]) -> bool:
    own = [point["usd_per_job"] for point in points if point["mix"] == mix]
    return max(own) > 1.02 * min(own)


def _panel(mix: str, points: Sequence[Point], left: float, floor: float) -> list[str]:
    most = max(point["usd_per_job"] for point in points) * 1.08

    def place(point: Point) -> tuple[float, float]:
        x = left + point["usd_per_job"] / most * _WIDTH
        return x, _TOP + (1 - (point["finished"] - floor) / (1.02 - floor)) * _HEIGHT

    bottom = _TOP + _HEIGHT
    parts = [
        _text(left, _TOP - 14, mix, bold=True),
        f'<path d="M{left},{_TOP}V{bottom}H{left + _WIDTH}" fill="none" stroke="#444444"/>',
        _text(left + _WIDTH / 2, bottom + 34, "USD a finished job", anchor="middle"),
    ]
    for step in range(5):
        share = floor + (1 - floor) * step / 4
        y = _TOP + (1 - (share - floor) / (1.02 - floor)) * _HEIGHT
        parts.append(f'<path d="M{left},{y:.1f}h{_WIDTH}" stroke="#e4e4e4"/>')
        parts.append(_text(left - 6, y + 4, f"{share:.0%}", anchor="end"))
        amount = most * step / 4
        parts.append(_text(left + _WIDTH * step / 4, bottom + 16, f"{amount:.2f}", anchor="middle"))
    for side, colour in _CURVES.items():
        curve = sorted((one for one in points if one["side"] == side), key=lambda one: -one["weights"][0])
        places = [place(one) for one in curve]
        if places:
            line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
            parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
            parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
    for side, colour in _MARKS.items():
        for x, y in (place(one) for one in points if one["side"] == side):
            parts.append(f'<rect x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8" fill="{colour}"/>')
    return parts


def _text(
    x: float, y: float, words: str, *, anchor: str = "start", colour: str = "#222222", bold: bool = False
) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" {_FONT} text-anchor="{anchor}" fill="{colour}"{weight}>{words}</text>'
    )
