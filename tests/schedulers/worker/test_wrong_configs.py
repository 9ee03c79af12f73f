"""Whatever stands wrongly in a shipped scheduler's file is refused by its field, with what is allowed there.

Each option of each scheduler is given wrong values in a file in which all options stand; what the options
are is found in the models. Loading is what `toolgate scheduler run` does before it joins a bus; the
command itself is tried on samples, and on a reload (tests/acceptance).
"""

import copy
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
import yaml
from options_tested import CONFIGS, options_of
from toolgate_bus.config.check import check
from toolgate_bus.errors import ConfigError
from toolgate_schedulers.worker.loading import GROUP, load

pytestmark = pytest.mark.pure
DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # the same text, ten times as fast

ABOUT: dict[str, Any] = {
    "name": "n",
    "when": {
        "a": {"equals": 1, "in": [1], "glob": "1", "matches": "1", "gt": 0, "gte": 1, "lt": 2, "lte": 1},
        "b": {"exists": True},
        "c": {"under": "/srv", "base": "/srv"},
    },
    "schema": {"required": ["a"]},
    "agents": ["x"],
    "labels": {"team": "x"},
    "sessions": ["s"],
    "agent_targets": ["t"],
}


def before() -> dict[str, Any]:
    """What a call that came before is told by."""
    return {"tool": ["x"], "when": copy.deepcopy(ABOUT["when"]), "success": None, "within_s": 1.5} | {
        "result": copy.deepcopy(ABOUT["when"]),
        "same": {"$.a": "$.b"},
        "scope": "tree",
    }


ARGUMENTS: dict[str, Any] = {"q": "$.x", "v": {"value": 1}}
PRICE = {"input": 1, "output": 1, "cache_read": 1, "cache_write": 1, "cache_in_input": True}
GROUPS = [
    {"tools": {"a": {}, "b": {"arguments": {**ARGUMENTS, "l": ["$.x", {"value": 2}]}}}},
    {"agents": ["senior", "junior"]},
]
FALLBACK = {"after": 1, "within_s": 1, "share": 0.5, "for_s": 1, "to": "z", "arguments": ARGUMENTS} | {
    "agent": "g"
}

FULL: dict[str, dict[str, Any]] = {
    "approval": {
        "rules": [
            {
                **ABOUT,
                "tools": ["x"],
                "action": "ask",
                "via": "hold",
                "prompt": "p",
                "expires_s": 5,
                "unknown": "deny",
            }
            | {"always": True},
            {"tools": "y", "via": "ask_user", "options": ["a", "b"]},
        ],
        "durability": {"replicas": 1, "timeout_ms": 100},
    },
    "cost-aware": {
        "tools": {"a": {"cost": 1, "latency_s": 1}},
        "default": {"cost": 1, "latency_s": 1},
        "agents": {"senior": {"cost": 1, "latency_s": 1}},
        "alternatives": GROUPS,
        "budgets": [
            {"name": "b", "level": "fleet", "limit": 1, "window": "day", "time_zone": "Europe/Berlin"},
            {"name": "calls", "unit": "calls", "limit": 9, "at_limit": "pause"},
            {"name": "rows", "unit": "rows", "limit": 9, "tools": ["a"], "amount": "$.n"},
        ],
        "llm": {"prices": {"a/*": {**PRICE}}, "default": {**PRICE}, "equivalents": [["a/x", "b/y"]]}
        | {"max_output_tokens": 9},
        "cost_weight": 0.5,
        "latency_weight": 0.5,
        "half_life_s": 60,
        "sticky": "session",
        "success_by": "label:team",
        "explore": {"share": 0.02, "cost": 1, "window": "hour"},
        "learn": True,
        "charge_llm": True,
        "admission": True,
        "currency": "EUR",
        "on_ledger_lost": "deny",
        "durability": {"replicas": 1, "timeout_ms": 100},
    },
    "heuristic": {
        "strategy": "best",
        "groups": GROUPS,
        "seed": 1,
        "override_enabled": True,
        "sticky": "tree",
        "success_by": "label:team",
        "explore": {"share": 0.02},
    },
    "loop-guard": {
        "same_call": {"times": 2, "within": 5},
        "calls_per_turn": 1,
        "calls_per_session": 1,
        "calls_per_tree": 1,
        "seconds_per_session": 1.5,
        "max_depth": 2,
        "max_width": 2,
        "max_agents": 2,
        "exempt": ["x"],
    },
    "policy": {
        "rules": [
            {**ABOUT, "tools": ["x"], "action": "ask", "mode": "enforce", "reason": "r", "prompt": "p"}
            | {"options": ["a"], "timeout_s": 5, "unknown": "allow"},
            {"tools": ["x"], "after": before(), "unless_after": before(), "wait_s": 1.5}
            | {"at_most": {"n": 2, "within_s": 1.5, "scope": "label:team", "sum": "$.n"}},
            {"on": "result", "tools": ["x"], "unless": copy.deepcopy(ABOUT["when"])}
            | {"success": True}
            | {"mask": [{"kind": "cards", "name": "n"}, {"pattern": "a"}, {"fields": ["$result.a"]}]}
            | {"label": {"a": ["b"]}}
            | {"when_session": {"source": ["x"]}},
        ],
        "default": "allow",
        "mode": "enforce",
    },
    "provenance": {
        "sinks": [
            {"name": "s", "tools": ["x"], "to": ["a"], "match": "name", "words": ["w"], "links": True}
            | {"trusted": ["t"], "action": "deny", "when_session": {"source": ["x"]}}
        ],
        "outside": ["x"],
        "label": {"source": "untrusted"},
        "trusted": ["t"],
        "action": "deny",
        "timeout_s": 1.5,
        "annotations": {"x": {"openWorldHint": True}},
    },
    "rate-limit": {
        "limits": [
            {**ABOUT, "name": "n", "tools": ["x"], "agents": ["a"], "labels": {"team": "x"}, "per": "session"}
            | {"rate": {"calls": 1, "seconds": 1.5}, "burst": 2}
        ],
        "admission": True,
    },
    "router": {
        "routes": [
            {**ABOUT, "from": ["x"], "to": "y", "arguments": ARGUMENTS, "agent": "g", "reason": "r"}
            | {"fallback": FALLBACK},
            {
                "from": "q",
                "targets": [{"to": "a", "weight": 1, "arguments": {"v": {"value": 1}}, "agent": "g"}],
                "sticky": "session",
            },
            {
                "from": "z",
                "targets": [{"to": "a"}, {"to": "b"}],
                "choose": "best",
                "success_by": "label:team",
                "explore": {"share": 0.02},
            },
        ]
    },
    "slots": {
        "pools": [
            {**ABOUT, "tools": ["x"], "limit": 2, "key": "$.path", "shared": {"tools": "read_*"}}
            | {"wait_s": 5, "share": {"by": "label:team", "weights": {"a": 2}, "default": 1}}
            | {"priority": {"by": "agent", "classes": {"a": 1}, "default": 0, "ageing_s": 5}}
            | {"adaptive": {"min": 1, "signals": [429, "timeout"], "climb_s": 5, "pause_s": 30}}
        ]
    },
}
"""A right configuration of each, in which every option stands."""

ANYTHING = ("equals", "value")
"""Options that may be anything at all."""
WRONG: tuple[Any, ...] = ({"zzz": {"zzz": []}}, [[]], -1, "")
NAMES_WHAT_IS_ALLOWED = ("; allowed: ", "must be ", "Input should be '", "unknown key")
MODELS = {one.name: one.load().config_model for one in entry_points(group=GROUP) if one.name in CONFIGS}
OPTIONS = [(scheduler, option) for scheduler in CONFIGS for option in options_of(scheduler)]


def places(at: Any, path: list[str]) -> Iterator[tuple[Any, ...]]:
    """Where an option stands."""
    head, *rest = path
    if head == "*":
        inner = at.items() if isinstance(at, dict) else enumerate(at) if isinstance(at, list) else ()
    else:
        inner = [(head, at[head])] if isinstance(at, dict) and head in at else []
    for step, value in inner:
        if rest:
            yield from ((step, *found) for found in places(value, rest))
        else:
            yield (step,)


def changed(config: Any, place: tuple[Any, ...], value: Any) -> Any:
    """The configuration with another value at a place."""
    whole = copy.deepcopy(config)
    at = whole
    for step in place[:-1]:
        at = at[step]
    at[place[-1]] = value
    return whole


@pytest.fixture
def refused(tmp_path: Path) -> Any:
    """`refused(scheduler, config)`: the complaints, a line each, without file and line; empty if taken.

    The line that a complaint names is that of the field, or of what it should stand in.
    """
    file = tmp_path / "config.yaml"

    def told(complaint: str) -> str:
        line, _, words = complaint.removeprefix(f"{file}:").partition(": ")
        here = file.read_text().splitlines()[int(line) - 1] if line.isdigit() else ""
        field = words.partition(":")[0].split(".")
        assert any(step in here or (step.isdigit() and "- " in here) for step in field) or not here, complaint
        return words if line.isdigit() else complaint.removeprefix(f"{file}: ")

    def tried(scheduler: str, config: Any) -> list[str]:
        file.write_text(yaml.dump(config, Dumper=DUMPER, sort_keys=False))
        try:
            load(scheduler, config=file)
        except ConfigError as error:
            return [told(line) for line in str(error).splitlines()]
        return []

    return tried


def complaints(scheduler: str, config: Any) -> list[str]:
    """The complaints about a value that was read; empty if it is taken."""
    try:
        check(MODELS[scheduler], config, "here")
    except ConfigError as error:
        return [line.removeprefix("here: ") for line in str(error).splitlines()]
    return []


@pytest.mark.parametrize("scheduler", sorted(CONFIGS))
def test_the_full_configuration_is_right(refused: Any, scheduler: str) -> None:
    assert refused(scheduler, FULL[scheduler]) == []
    assert all(list(places(FULL[scheduler], option.split("."))) for option in options_of(scheduler))


@pytest.mark.parametrize(("scheduler", "option"), OPTIONS)
def test_a_wrong_value_is_refused_by_its_field_with_what_is_allowed(
    refused: Any, scheduler: str, option: str
) -> None:
    place, *_ = places(FULL[scheduler], option.split("."))
    field = ".".join(map(str, place))
    first, *others = [changed(FULL[scheduler], place, wrong) for wrong in WRONG]
    # The first as a file, with its line: reading a file takes ten times as long as checking what it says.
    told = [refused(scheduler, first), *(complaints(scheduler, one) for one in others)]
    if option.endswith(ANYTHING):
        assert told == [[]] * len(WRONG)
        return
    assert sum(map(bool, told)) > 1, "what is not wrong enough shows nothing"
    for lines in told:
        for line in lines:
            assert line.startswith((field, field.rpartition(".")[0])), line
            assert "zzz: [" not in line, "the value itself is never told"
        # A field that is missing within what was given is named as well.
        assert not lines or any(words in line for line in lines for words in NAMES_WHAT_IS_ALLOWED), lines


@pytest.mark.parametrize(("scheduler", "option"), OPTIONS)
def test_a_misspelt_option_is_refused_and_the_right_one_named(
    refused: Any, scheduler: str, option: str
) -> None:
    place, *_ = places(FULL[scheduler], option.split("."))
    if place[-1] == "value":  # {valuee: 1} is no literal: what a source may be is told instead
        assert "{value: …} for a literal" in refused(scheduler, misspelt(FULL[scheduler], place))[0]
        return
    lines = refused(scheduler, misspelt(FULL[scheduler], place))
    (line,) = [line for line in lines if f"{place[-1]}x: unknown key; allowed: " in line]
    assert str(place[-1]) in line.partition("allowed: ")[2].partition(";")[0].split(", ")


def misspelt(config: Any, place: tuple[Any, ...]) -> Any:
    """The configuration with an `x` behind an option's name."""
    whole = copy.deepcopy(config)
    at = whole
    for step in place[:-1]:
        at = at[step]
    at[f"{place[-1]}x"] = at.pop(place[-1])
    return whole
