"""The expressions of rules and dashboards, and the names in them; programs that tests of them need."""

import json
import os
import re
import shutil
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

DEPLOY = Path(__file__).parents[2] / "deploy"
RULES = sorted((DEPLOY / "prometheus" / "rules").glob("*.yml"))
DASHBOARDS = sorted((DEPLOY / "grafana" / "dashboards").glob("*.json"))
TOOLS_REQUIRED = os.environ.get("TOOLGATE_TOOLS") == "required"  # read before the tests' own world begins

# An hour is a minute: every range, offset, `for` and number of hours of a rule, divided by sixty.
QUICKENED = re.compile(r"\[(\d+)([mh])\]|\boffset (\d+)([mh])\b|\bfor: (\d+)([mh])\b|(?<=\d \* )(3600)()\b")
_SHORTER = {"m": "s", "h": "m"}
_WORDS = re.compile(r'"[^"]*"')
_NAME = re.compile(r"\b(?:\w+:toolgate_\w+:\w+|toolgate_\w+)\b")
_SELECTED = re.compile(r"\b(toolgate_\w+)\{([^}]*)\}")


class Expression(NamedTuple):
    """PromQL, and where it stands."""

    where: str
    expr: str

    @property
    def names(self) -> set[str]:
        """Metrics and recorded series that it reads; the suffixes of histograms left out."""
        bare = _WORDS.sub('""', self.expr)
        return {_metric(name) for name in _NAME.findall(bare)}

    @property
    def selected(self) -> list[tuple[str, list[str]]]:
        """Metrics, and the labels by which they are selected."""
        found = _SELECTED.findall(_WORDS.sub('""', self.expr))
        return [(_metric(name), re.findall(r"(\w+)\s*(?:=~|!=|!~|=)", labels)) for name, labels in found]


def _metric(name: str) -> str:
    """The metric of a sample: a histogram's buckets are its own."""
    return re.sub(r"(_seconds)_(bucket|sum|count)$", r"\1", name)


def program(name: str) -> str:
    """Its path; skips where it is not installed, unless the tools were all said to be here."""
    path = shutil.which(name)
    if path is None and TOOLS_REQUIRED:
        pytest.fail(f"{name} is not on PATH, and TOOLGATE_TOOLS=required")
    if path is None:
        pytest.skip(f"{name} is not on PATH (Debian: apt-get install prometheus prometheus-alertmanager)")
    return path


def quickened(rules: str) -> str:
    """The same rules where an hour is a minute."""

    def shorter(found: re.Match[str]) -> str:
        if found[7]:
            return "60"
        number, unit = next((found[i], found[i + 1]) for i in (1, 3, 5) if found[i])
        return found[0].replace(number + unit, number + _SHORTER[unit])

    return QUICKENED.sub(shorter, rules)


@cache
def rules() -> list[dict[str, Any]]:
    """Every rule of deploy/prometheus/rules."""
    return [
        rule
        for file in RULES
        for group in yaml.safe_load(file.read_text())["groups"]
        for rule in group["rules"]
    ]


def panels(dashboard: Path) -> list[dict[str, Any]]:
    """Every panel, those of rows included, the rows left out."""
    found = json.loads(dashboard.read_text())["panels"]
    inside = [panel for row in found for panel in row.get("panels") or ()]
    return [panel for panel in (*found, *inside) if panel["type"] != "row"]


@cache
def rule_expressions() -> list[Expression]:
    """Of recording rules and alerts."""
    return [Expression(rule.get("record") or rule["alert"], rule["expr"]) for rule in rules()]


@cache
def panel_expressions() -> list[Expression]:
    """Of every query of every panel, variables left as they are."""
    return [
        Expression(f"{file.stem}: {panel['title']} ({target['refId']})", target["expr"])
        for file in DASHBOARDS
        for panel in panels(file)
        for target in panel["targets"]
    ]
