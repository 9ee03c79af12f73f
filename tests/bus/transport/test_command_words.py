"""The commands of the server's protocol are spelled in one room."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.source

ROOT = Path(__file__).parents[3]
ROOM = ROOT / "bus/toolgate_bus/transport/redis"
WORDS = re.compile(
    r"X[A-Z]{3,}|Z(ADD|RANGE|REM)\w*|H(GET|MGET|SET|INCR)\w*|S(ADD|REM|CARD|MEMBERS|RANDMEMBER|CAN|ET)"
    r"|M?GET|GETDEL|DEL|UNLINK|EXISTS|INCR|PERSIST|P?(EXPIRE|TTL)|KEYS|TYPE|TIME|PING|INFO|EVAL(SHA)?"
    r"|SCRIPT|ACL|CLIENT|CONFIG|MEMORY|MULTI|EXEC|DISCARD|PUBLISH|[LR](PUSH|RANGE|TRIM)"
)
ELSEWHERE = {
    "bus/toolgate_bus/commands/exporter/service.py",  # names the write that its lease guards
    "bus/toolgate_bus/commands/notify/outbox.py",  # so does this
    "orchestrator/toolgate_orchestrator/commands/bench/floor.py",  # measures what the protocol itself costs
    "orchestrator/toolgate_orchestrator/commands/serve/app.py",  # HTTP's words
    "schedulers/toolgate_schedulers/commands/console/security_middleware.py",  # HTTP's words
}


def commands_in(tree: ast.Module) -> Iterator[str]:
    """The first words of tuples, and of what `execute` is called with."""
    for node in ast.walk(tree):
        words: list[ast.expr] = []
        if isinstance(node, ast.Tuple):
            words = node.elts[:1]
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "execute"
        ):
            words = node.args[:1]
        yield from (
            str(one.value)
            for one in words
            if isinstance(one, ast.Constant) and WORDS.fullmatch(str(one.value))
        )


def test_no_other_room_spells_a_command_of_the_server() -> None:
    found = {
        str(file.relative_to(ROOT)): sorted(words)
        for package in ("bus", "orchestrator", "schedulers")
        for file in (ROOT / package).rglob("*.py")
        if ROOM not in file.parents and (words := set(commands_in(ast.parse(file.read_text()))))
    }
    assert found.keys() <= ELSEWHERE, (
        "read or write by a function of toolgate_bus.transport.redis.storage.reads"
    )


def test_the_search_finds_what_it_looks_for() -> None:
    assert {"XADD", "SCAN", "TIME"} <= {
        word for file in ROOM.rglob("*.py") for word in commands_in(ast.parse(file.read_text()))
    }
