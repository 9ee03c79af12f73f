"""Measures the figures that the documents show, and puts them there; nothing else should run on the machine.

    python tests/benchmarks/figures.py                all, about ten minutes
    python tests/benchmarks/figures.py rate fleet     these alone

The output of the commands is kept in `figures.json`; `docs/generate.py` makes the tables of it.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

FILE = Path(__file__).with_name("figures.json")
ROOT = Path(__file__).resolve().parents[2]
RUNS = {
    "bench": "toolgate bench --size both",
    "rate": "python tests/benchmarks/rate.py",
    "fleet": "python tests/benchmarks/fleet.py",
    "thinking": "python tests/benchmarks/fleet.py --agents 1000 --think 5",
    "thinking by table": "python tests/benchmarks/fleet.py --agents 1000 --think 5 --by-table",
    "one_process": "python tests/benchmarks/one_process.py",
    "observed": "python tests/benchmarks/observed.py",
    "reactive": "python tests/benchmarks/reactive_loop.py",
    "serve": "python tests/benchmarks/serve.py",
}
PROGRAMS = {"toolgate": [sys.executable, "-m", "toolgate_bus"], "python": [sys.executable]}
GOALS: Final = {
    (1, "toolgate"): (2.0, 0.31),
    (3, "toolgate"): (2.6, 0.21),
    (3, "together"): (2.2, 0.28),
}
"""By (schedulers, side), of small questions: the largest ratio of medians with one call in flight, and the
smallest of throughputs with 64."""
LEAD: Final = 3
"""Rules that are known take at most this part of NATS' median, and do as many times its calls a second."""
SMALL: Final = 448
OWN: Final = ("local", "toolgate", "together")
"""Sides of Toolgate in `toolgate bench`."""
CALLS: Final = {"rules": "rules that are known", "mix": "schedulers that are asked"}
ROWS: Final = (
    *(("rules", count, "local") for count in (1, 3)),
    *(("mix", count, own) for count, own in ((1, "toolgate"), (3, "toolgate"), (3, "together"))),
)
HOW: Final = {"local": ", rules known", "toolgate": "", "together": " in one process"}
"""Words of a row about each side."""


def measure(name: str) -> dict[str, Any]:
    """Run one command and return its output, with the day."""
    first, *words = RUNS[name].split()
    program = [*PROGRAMS[first], *words, "--json"]
    said = subprocess.run(program, stdout=subprocess.PIPE, check=True, text=True, cwd=ROOT).stdout
    day = datetime.now(tz=UTC)
    return {
        "command": RUNS[name],
        "day": f"{day.day} {day:%B %Y}",
        "said": [json.loads(line) for line in said.splitlines()],
    }


def _is_kept(name: str) -> bool:
    return name in json.loads(FILE.read_text(encoding="utf-8"))


def _figures(name: str) -> dict[str, Any]:
    """Return the kept output of a run."""
    found: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))[name]
    return found


def mix_part() -> str:
    """Return the decisions beside the floor and the peers: median and throughput as ratios."""
    run = _figures("bench")
    rows = run["said"][1:]
    peers = [name for name in rows[0]["sides"] if name not in ("floor", *OWN)]
    lines: list[str] = []
    for calls, words in CALLS.items():
        of_kind = [row for row in rows if _calls(row) == calls]
        if not of_kind:
            continue
        own = [name for name in OWN if any(name in row["sides"] for row in of_kind)]
        names = [_name(name) for name in ("floor", *own, *peers)]
        head = [
            f"{words}: schedulers · in flight · bytes",
            *names,
            "CPU of Toolgate, µs",
            *_left_head(of_kind),
        ]
        lines += [*([""] if lines else []), *_header(head)]
        for row in of_kind:
            sides = row["sides"]
            load = f"{row['schedulers']} · {row['in_flight']} · {row['question_bytes']}"
            floor = sides["floor"]
            bare = f"{floor['median_us']:.0f} µs · {floor['per_second'] / 1000:.1f} k/s"
            ours = [f"**{_ratios(sides[name])}**" if name in sides else "" for name in own]
            others = [_ratios(sides[name]) for name in peers]
            first = sides[own[0]]
            lines.append(_line([load, bare, *ours, *others, _cpu(first), *_left(first)]))
    goals = [f"- {line}" for line in goals_of(rows)]
    return "\n".join([*lines, "", _source(run), "", *goals])


def _calls(row: dict[str, Any]) -> str:
    return str(row.get("calls", "mix"))


def _left_head(rows: Sequence[dict[str, Any]]) -> list[str]:
    return ["bytes left"] if any(_left(side) for row in rows for side in row["sides"].values()) else []


def _left(side: dict[str, Any]) -> list[str]:
    return [str(side["left_bytes"])] if "left_bytes" in side else []


def goals_of(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return a line for each goal that was measured, with the peers that are ahead."""
    lines = []
    for row in rows:
        what = {1: "median", 64: "rate"}.get(row["in_flight"])
        if what is None or row["question_bytes"] != SMALL:
            continue
        for side in OWN:
            if side not in row["sides"]:
                continue
            found = row["sides"][side]["ratio"][what]
            peers = {
                name: peer["ratio"][what]
                for name, peer in row["sides"].items()
                if "ratio" in peer and name not in OWN
            }
            limit = _limit(row["schedulers"], side, what, peers)
            if limit is None:
                continue
            sign, word = ("≤", "median") if what == "median" else ("≥", "throughput")
            ahead = [
                f"{'ahead of' if _is_better(found, ratio, what) else 'behind'} {_plain(name)}"
                for name, ratio in peers.items()
            ]
            count = row["schedulers"]
            load = f"{count} scheduler{'s' if count > 1 else ''}{HOW[side]}, {row['in_flight']} in flight"
            met = "met" if _is_better(found, limit, what) else "not met"
            words = f"{word} {found} × the floor's; goal {sign} {limit:.3g}: {', '.join([met, *ahead])}"
            lines.append(f"{load}: {words}")
    return lines


def _limit(schedulers: int, side: str, what: str, peers: dict[str, float]) -> float | None:
    if side == "local":
        nats = peers.get("nats")
        return nats and (nats / LEAD if what == "median" else nats * LEAD)
    both = GOALS.get((schedulers, side))
    return both and both[0 if what == "median" else 1]


def _plain(side: str) -> str:
    return _name(side).strip("*")


def _is_better(ours: float, theirs: float, what: str) -> bool:
    return ours <= theirs if what == "median" else ours >= theirs


def short_mix_part() -> str:
    """Return small questions: the median at one decision in flight, the throughput at 64.

    What most decisions cost stands first.
    """
    rows = _figures("bench")["said"][1:]
    of = {
        (_calls(row), row["schedulers"], row["in_flight"]): row["sides"]
        for row in rows
        if row["question_bytes"] == SMALL
    }
    peers = [name for name in of["mix", 1, 1] if name not in ("floor", *OWN)]
    left = _left_head(rows)
    lines = _header(["schedulers", "floor", "**Toolgate**", *map(_name, peers), "CPU of Toolgate, µs", *left])
    for calls, count, own in ROWS:
        one, many = of.get((calls, count, 1), {}), of.get((calls, count, 64), {})
        if own not in one:
            continue
        ours = many[own]
        cells = [_short(name, one, many) for name in ("floor", own, *peers)]
        words = f"{count}{HOW[own]}"
        lines.append(_line([words, *cells, _cpu(ours), *(_left(ours) if left else [])]))
    return "\n".join(lines)


def _short(name: str, one: dict[str, Any], many: dict[str, Any]) -> str:
    if name == "floor":
        return f"{one[name]['median_us']:.0f} µs · {many[name]['per_second'] / 1000:.0f} k/s"
    both = {"median": one[name]["ratio"]["median"], "rate": many[name]["ratio"]["rate"]}
    return _ratios({"ratio": both})


def _name(side: str) -> str:
    names = {
        "toolgate": "**Toolgate**",
        "local": "**by table**",
        "together": "**one process**",
        "nats": "NATS",
    }
    return names.get(side, side)


def _cpu(side: dict[str, Any]) -> str:
    return " + ".join(f"{spent:.0f}" for spent in side["cpu_by_kind_us"].values())


def _source(run: dict[str, Any]) -> str:
    machine = run["said"][0]
    return f"`{run['command']}`, {run['day']}, {machine['cpus']} CPUs, load {machine['load_before']} before."


def _ratios(side: dict[str, Any]) -> str:
    median, rate = side["ratio"]["median"], side["ratio"]["rate"]
    return f"{median:.1f} · {rate:.2f}" if median >= 1 else f"{median:.2f} · {rate:.2f}"


def rate_part() -> str:
    """Return latencies from when a call was due."""
    run = _figures("rate")
    _, *rows = run["said"]
    head = ["schedulers", "side", "p50", "p90", "p99", "longest", f"over {rows[0]['late_ms']:g} ms"]
    lines = _header(head)
    for row in rows:
        for name, one in row["sides"].items():
            figures = [f"{one[key] / 1000:.2f} ms" for key in ("p50_us", "p90_us", "p99_us", "max_us")]
            late = f"{one['late']} of {one['decisions']}"
            lines.append(_line([str(row["schedulers"]), _name(name), *figures, late]))
    return "\n".join([*lines, "", _source(run)])


def fleet_part() -> str:
    """Return the figures of many agents at once."""
    head = ["agents", "calls", "decisions/s", "median", "p99", "memory an agent", "CPU a decision, ms"]
    lines = _header(head)
    kinds = {"fleet": "", "thinking": ", thinking 5 s", "thinking by table": ", thinking 5 s, by table"}
    kept = {name: words for name, words in kinds.items() if _is_kept(name)}
    for name, thinking in kept.items():
        for row in _figures(name)["said"][1:]:
            cpu = " + ".join(
                f"{row['cpu_us'][kind] / 1000:.2f}" for kind in ("agents", "schedulers", "server")
            )
            median, p99 = f"{row['median_ms']:.0f} ms", f"{row['p99_ms']:.0f} ms"
            memory = f"{row['bytes_per_agent'] / 1024:.0f} KiB"
            calls, rate = str(row["calls"]["planned"]), str(row["per_second"])
            lines.append(_line([f"{row['agents']}{thinking}", calls, rate, median, p99, memory, cpu]))
    commands = " and ".join(f"`{_figures(name)['command']}`" for name in kept)
    lines += ["", f"{commands}, {_figures('fleet')['day']}."]
    return "\n".join(lines)


def together_part() -> str:
    """Return the figures of three schedulers in one process."""
    run = _figures("one_process")
    head = ["3 schedulers · in flight", "median", "throughput", "CPU", "CPU, µs"]
    lines = _header(head)
    for row in run["said"][1:]:
        for name, words in (("together", "in one process"), ("apart", "a process each")):
            side = row["sides"][name]
            ratio = side["ratio"]
            figures = [f"{ratio[key]:.2f}" for key in ("median", "rate", "cpu")]
            lines.append(_line([f"{words} · {row['in_flight']}", *figures, _cpu(side)]))
    return "\n".join([*lines, "", _source(run)])


def serve_part() -> str:
    """Return a sidecar beside a gate in process."""
    run = _figures("serve")
    lines = _header(
        [
            "schedulers · in flight",
            "gate: median · a second",
            "sidecar: median · a second",
            "its CPU, µs",
            "a core, /s",
        ]
    )
    for row in run["said"][1:]:
        gate, sidecar = row["sides"]["gate"], row["sides"]["serve"]
        both = [f"{one['median_us'] / 1000:.2f} ms · {one['per_second']}" for one in (gate, sidecar)]
        cpu = f"{sidecar['cpu_by_kind_us']['gate']:.0f} ({gate['cpu_by_kind_us']['gate']:.0f} in process)"
        lines.append(_line([f"{row['schedulers']} · {row['in_flight']}", *both, cpu, str(row["per_core"])]))
    return "\n".join([*lines, "", _source(run)])


def observed_part() -> str:
    """Return the cost of metrics and facts, and the time of a slow turn."""
    observed, loops = _figures("observed"), _figures("reactive")
    parts = [f"{row['part']:.0%} ({row['schedulers']} · {row['in_flight']})" for row in observed["said"][1:]]
    turns = [f"{row['ratio']:.2f} ({row['turn']})" for row in loops["said"][1:]]
    return (
        f"`{observed['command']}`, {observed['day']}: of the CPU of a decision, metrics and facts took"
        f" {', '.join(parts)} (schedulers · in flight).\n`{loops['command']}`, {loops['day']}: a slow turn"
        f" on loop-reactive took {' and '.join(turns)} of its time on loop-basic."
    )


def _header(cells: list[str]) -> list[str]:
    return [_line(cells), "|---" * len(cells) + "|"]


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


PARTS: Final[dict[str, Callable[[], str]]] = {
    "figures": mix_part,
    "figures in short": short_mix_part,
    "figures at a rate": rate_part,
    "figures of a fleet": fleet_part,
    "figures of one process": together_part,
    "figures of observing": observed_part,
    "figures of serve": serve_part,
}
"""Generated parts of the documents, by name."""


def main() -> None:
    """Measure the named runs, or all, and write them down."""
    names = sys.argv[1:] or [*RUNS]
    if unknown := set(names) - RUNS.keys():
        raise SystemExit(f"{', '.join(sorted(unknown))}: take any of {', '.join(RUNS)}")
    found = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    for name in names:
        print(RUNS[name], file=sys.stderr)
        found[name] = measure(name)
        FILE.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    subprocess.run([sys.executable, str(ROOT / "docs" / "generate.py")], check=True)


if __name__ == "__main__":
    main()
