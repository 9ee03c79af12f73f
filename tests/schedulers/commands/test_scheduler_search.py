"""`toolgate scheduler search`: what is installed, and the JSON Schema of each configuration."""

import json
from importlib.metadata import EntryPoint

import jsonschema
import pytest
import yaml
from toolgate_schedulers.commands.scheduler_catalog import find_installed, matches
from typer.testing import CliRunner

pytestmark = pytest.mark.pure

SHIPPED = [
    "approval",
    "cost-aware",
    "heuristic",
    "loop-guard",
    "policy",
    "provenance",
    "rate-limit",
    "router",
    "slots",
]
COSTS = """
tools: {a: {cost: 0.40}}
llm: {prices: {"a/*": {input: 3, output: "15"}}, max_output_tokens: 9}
budgets: [{name: b, level: "label:team", limit: 5, window: month, time_zone: Europe/Berlin}]
"""


def run(*words):
    from toolgate_schedulers.commands.scheduler import app

    return CliRunner().invoke(app, ["search", *words])


def test_the_shipped_ones_are_found_with_package_wire_and_documentation():
    found = {one.name: one for one in find_installed() if one.package == "toolgate-bus"}
    assert sorted(found) == SHIPPED
    for one in found.values():
        assert one.wire == (1, 2)
        assert one.doc
        assert one.model is not None
        assert not one.problem


def test_all_words_must_be_there_whatever_their_case():
    names = [one.name for one in find_installed() if matches(one, ["BUDGETS", "hold"])]
    assert names == ["cost-aware"]
    assert run("budgets", "nothing-like-it").exit_code == 1


@pytest.mark.parametrize("name", SHIPPED)
def test_each_configuration_has_a_schema_that_is_one(name):
    told = run("--schema", name)
    assert told.exit_code == 0
    schema = json.loads(told.stdout)
    jsonschema.Draft202012Validator.check_schema(schema)


def test_an_editor_takes_what_the_scheduler_takes_and_no_misspelt_key():
    schema = json.loads(run("--schema", "cost-aware").stdout)
    check = jsonschema.Draft202012Validator(schema)
    config = yaml.safe_load(COSTS)
    assert list(check.iter_errors(config)) == []
    assert list(check.iter_errors({**config, "budget": []}))
    assert list(check.iter_errors({**config, "learn": "perhaps"}))


def test_one_that_cannot_be_imported_is_listed_with_the_reason():
    broken = EntryPoint("broken", "no_such_module_anywhere:It", "toolgate.schedulers")
    (found,) = find_installed([broken])
    assert (found.name, found.package) == ("broken", "?")
    assert "no_such_module_anywhere" in found.problem


def test_a_package_says_which_wire_it_speaks():
    point = EntryPoint("own", f"{__name__}:OnlyOld", "toolgate.schedulers")
    (found,) = find_installed([point])
    assert found.wire == (1,)


class OnlyOld:
    """Speaks the first version alone."""

    wire = (1,)
