"""Calls through the proxy for MCP are compared with calls without it, and every answer is looked at. How long
they took is not looked at here."""

import json
import os
import sys

import pytest
from documents import ROOT

pytestmark = [pytest.mark.acceptance, pytest.mark.system, pytest.mark.timeout(240)]


def test_each_way_is_measured_and_every_answer_was_right(process):
    words = ("--calls", 20, "--schedulers", 1, "--json")
    compared = process(sys.executable, ROOT / "tests" / "mcp_beside.py", *words, env=os.environ)
    assert compared.wait(220) == 0, compared.stderr
    machine, *rows = map(json.loads, compared.stdout.splitlines())
    assert machine["cpus"] == os.cpu_count()
    ways = [(row["over"], row["era"], row["schedulers"]) for row in rows]
    expected = [(over, era, 1) for over in ("stdio", "http") for era in ERAS]
    assert ways == expected
    for row in rows:
        assert row["calls"] == 20
        assert row["proxy_cpu_us"] > 0
        direct, through = row["sides"]["direct"], row["sides"]["through"]
        assert row["added_p50_us"] == pytest.approx(through["p50_us"] - direct["p50_us"], abs=0.2)
    assert "http, modern, 1 scheduler(s)" in compared.stderr


ERAS = ("legacy", "modern")
