"""Whoever runs a script of the ledger may call all that it calls: a word too few shows once it is called."""

import re
from importlib.resources import files

import pytest
from toolgate_bus.transport.redis.client.role_file import read_roles, rules_of

LUA = files("toolgate_bus.ledger.money") / "lua"
ROLES = read_roles((files("toolgate_bus.transport.redis.client") / "roles").read_text())
OPERATOR = {"rebuild", "ended", "decide"}
"""Parts of the script of the epoch that an operator runs; a scheduler runs the others."""
FREE = {"time"}
"""What every role may."""


def calls_of(text):
    return {word.lower() for word in re.findall(r"redis\.p?call\('(\w+)'", text)} - FREE


def epoch_calls(*, of_operator):
    """What the script of the epoch calls, in its operations for an operator or for a scheduler."""
    parts = re.split(r"^if op == '(\w+)' then$", (LUA / "ledger_epoch.lua").read_text(), flags=re.MULTILINE)
    named = zip(parts[1::2], parts[2::2], strict=True)
    return set().union(*(calls_of(text) for op, text in named if (op in OPERATOR) == of_operator))


def granted(role):
    """The commands that a role may call on the ledger's keys."""
    texts = [
        rule.text for rule in rules_of(ROLES, role) if ":budget" in rule.text and "+evalsha" in rule.text
    ]
    return {word for text in texts for word in re.findall(r"\+(\w+)", text)}


@pytest.mark.parametrize("role", ["scheduler cost-aware", "operator"])
def test_a_role_may_call_all_that_the_scripts_call_that_it_runs(role):
    is_operator = role == "operator"
    names = (
        ["ledger.lua", "ledger_reset.lua"]
        if is_operator
        else ["ledger.lua", "ledger_taking.lua", "ledger_giving.lua"]
    )
    called = set().union(*(calls_of((LUA / name).read_text()) for name in names))
    assert called | epoch_calls(of_operator=is_operator) <= granted(role)
