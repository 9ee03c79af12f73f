"""What a guard is made of that needs no gate: places, digests, notices, settings, reports."""

import functools
import inspect
import re
import subprocess
import sys
from decimal import Decimal
from types import SimpleNamespace

import pytest
from toolgate_bus.errors import ConfigError
from toolgate_orchestrator import Call, Caller, Guard
from toolgate_orchestrator.guard.callers import enter_tool, enter_turn
from toolgate_orchestrator.guard.reports import CostError, digest_of, micro_units
from toolgate_orchestrator.guard.ruling import check_notice, notice_of
from toolgate_orchestrator.guard.tool_function import ToolFunction, UnfitFunction, schema_of

pytestmark = pytest.mark.pure

# ---------------------------------------------------------------------- places


def test_who_works_for_nobody_has_no_lineage():
    at = Guard(agent="boss").at("s")
    assert (at.session, at.root, at.parent, at.agent, at.lineage) == ("s", "s", None, "boss", ())


def test_within_a_tool_a_place_is_below_whom_it_runs_for_however_deep():
    guard = Guard(agent="boss", labels={"team": "a"})
    with enter_tool(guard.at("s", labels={"case": "7"})):
        with enter_tool(guard.at("s-1", "helper")):
            below = guard.at("s-2", "scout", labels={"own": "x"})
        assert guard.at("s-3", "other").lineage == ("boss", "other")
    assert (below.root, below.parent, below.lineage) == ("s", "s-1", ("boss", "helper", "scout"))
    assert below.above == ("s", "s-1")
    assert below.labels == {"case": "7", "own": "x"}


def test_a_turn_that_began_within_a_tool_is_the_place_of_who_asks_there():
    guard = Guard(agent="boss")
    with enter_tool(guard.at("s")):
        helper = guard.at("s-1", "helper")
        with enter_turn(helper, SimpleNamespace(request="")):
            assert guard.at("s-1", "helper") == helper
            assert guard.at("s-2", "scout").lineage == ("boss", "helper", "scout")
            guard.hand_over(helper, "closer")
            assert guard.at("s-1", "closer").lineage == ("boss", "helper", "closer")
        assert guard.at("s-3", "other").lineage == ("boss", "other")


def test_a_sub_agent_that_is_given_its_parents_session_id_is_told_apart_from_it():
    guard = Guard()
    with enter_tool(guard.at("trace-1", "boss")):
        below = guard.at("trace-1", "helper")
        assert guard.at("trace-1", "boss").lineage == ()
    assert (below.session, below.parent, below.lineage) == ("trace-1/helper", "trace-1", ("boss", "helper"))


def test_a_parent_that_is_named_counts_be_it_a_place_a_session_of_here_or_one_elsewhere():
    guard = Guard()
    boss = guard.at("s", "boss")
    assert guard.at("s-1", "a", parent=boss) == guard.at("s-1", "a", parent="s")
    far = guard.at("s-1", "a", parent="far")
    assert (far.parent, far.root, far.lineage) == ("far", "far", ())


def test_the_configuration_says_for_whom_elsewhere_a_program_works():
    guard = Guard(agent="helper", root_session="r", parent_session="p", lineage=["boss", "lead"])
    at = guard.at("s")
    assert (at.root, at.parent, at.lineage) == ("r", "p", ("boss", "lead", "helper"))
    assert at.above == ("r", "p")


def test_a_handoff_keeps_the_lineage_of_who_handed_over_and_does_not_grow_when_work_goes_to_and_fro():
    guard = Guard()
    at = guard.at("s", "triage")
    for to in ("refunds", "triage", "refunds"):
        at = guard.hand_over(at, to)
    assert at.lineage == ("triage", "refunds")
    assert guard.at("s", "refunds").lineage == ("triage", "refunds")
    assert guard.at("s", "stranger").lineage == ()


def test_a_handoff_without_lineage_begins_anew_below_those_above_it():
    guard = Guard()
    assert guard.hand_over(guard.at("s", "triage"), "refunds", lineage=False).lineage == ()
    child = guard.at("s-1", "a", parent=guard.at("s", "boss"))
    assert guard.hand_over(child, "b", lineage=False).lineage == ("boss", "b")


# ---------------------------------------------------------------------- what is told


class Hostile(dict):
    """Says of itself what it likes."""

    def items(self):
        raise AssertionError("looked into")


@pytest.mark.parametrize("one", ["text", b"bytes", {"a": [1, 2.5, None, True]}, [], 3])
def test_equal_results_have_equal_digests_and_others_have_others(one):
    assert digest_of(one) == digest_of(one)
    assert digest_of(one) not in (digest_of("another"), digest_of([one]))
    assert len(digest_of(one)) == 32


@pytest.mark.parametrize("one", [Hostile(a=1), object(), {1: "a"}, [0] * 20_000, {"a": Decimal(1)}, float])
def test_what_is_no_plain_value_has_no_digest(one):
    assert digest_of(one) is None


def test_a_text_of_any_length_has_a_digest_and_its_ends_and_length_count():
    long = "a" * 9_000_000
    assert digest_of(long) == digest_of("a" * 9_000_000) != digest_of("a" * 9_000_001)
    assert digest_of("\ud800") is not None


def test_a_notice_says_what_ran_and_why_on_one_line_and_bounded():
    said = notice_of(check_notice(True), "rm", "trash", "safer\nand [red]" + "x" * 5_000)
    assert said.startswith("Note: trash ran in place of rm (safer")
    assert "\n" not in said
    assert len(said) < 1_000
    assert notice_of(check_notice(True), "rm", "rm", None) == "Note: rm ran with other arguments."
    assert notice_of(check_notice("{original} became {tool}: {reason}"), "a", "b", "c") == "a became b: c"
    assert notice_of(check_notice(False), "a", "b", "c") == ""


@pytest.mark.parametrize("text", ["{what}", "{0}", "{", "{tool.__class__.x}"])
def test_a_notice_with_names_that_there_are_not_is_refused(text):
    with pytest.raises(ConfigError, match="notice="):
        Guard(notice=text)


@pytest.mark.parametrize(
    ("cost", "units"),
    [(Decimal("0.03"), 30_000), ("0.0000001", 1), (0.1, 100_000), (2, 2_000_000), (None, None), (0, 0)],
)
def test_a_cost_in_units_of_the_currency_becomes_micro_units_rounded_up(cost, units):
    assert micro_units(cost) == units


@pytest.mark.parametrize("cost", [-1, "many", float("nan"), float("inf"), object(), "1e40"])
def test_what_is_no_amount_of_money_is_refused(cost):
    with pytest.raises(CostError):
        micro_units(cost)


# ---------------------------------------------------------------------- how it is set up


def test_a_guard_reads_its_section_from_a_file_and_keywords_override_it(tmp_path):
    file = tmp_path / "plan.yaml"
    file.write_text("toolgate: {agent: clerk, required: [policy], patience_ms: 7}\nother: 1\n")
    config = Guard(file, patience_ms=9).config
    assert (config.agent, config.required, config.patience_ms) == ("clerk", ("policy",), 9)
    assert Guard(config, agent="boss").config.agent == "boss"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("required: [policy]", "required"),
        ("Required: [policy]", "Required"),
        ("session: {required: [policy]}", "session.required"),
        ("session: {orchestrator: {config: {required: [policy]}}}", "session.orchestrator.config.required"),
        (
            "session: {orchestrator: {config: {toolgate: {required: [policy]}}}}",
            "session.orchestrator.config.toolgate",
        ),
    ],
)
def test_a_file_in_which_required_stands_anywhere_but_in_the_section_is_refused(tmp_path, text, place):
    file = tmp_path / "app.yaml"
    file.write_text(f"name: mine\ntoolgate: {{agent: clerk}}\n{text}\n")
    with pytest.raises(ConfigError, match=f"yaml: {re.escape(place)}: it is ignored beside `toolgate:`"):
        Guard(file)


def test_other_sections_of_a_file_are_its_programs_own(tmp_path):
    file = tmp_path / "app.yaml"
    file.write_text("toolgate: {agent: clerk}\nsession: {keys: [a], redis: b}\nrequires: [x]\nredis: c\n")
    assert Guard(file).config.agent == "clerk"


@pytest.mark.parametrize(
    "text",
    [
        "- a list",
        "toolgate: 3",
        "{",
        "toolgate: {patiense_ms: 3}",
        "",
        "agent: a\nagent: b",
        "toolgate: {<<: {agent: a}}",
    ],
)
def test_a_file_that_holds_no_such_section_is_refused_by_its_name(tmp_path, text):
    file = tmp_path / "plan.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"plan\.yaml"):
        Guard(str(file))


def test_a_field_that_there_is_not_is_refused_by_its_name():
    with pytest.raises(ConfigError, match="patiense_ms"):
        Guard(patiense_ms=3)


def test_the_schema_of_a_function_tells_types_and_what_is_needed():
    def tool(path: str, size: int = 3, *, deep: bool, note=None): ...

    schema = schema_of(inspect.signature(tool))
    assert schema["required"] == ["path", "deep"]
    assert schema["properties"]["size"] == {"type": "integer", "default": 3}
    assert schema["properties"]["note"] == {}
    assert schema["additionalProperties"] is False


def test_places_are_values():
    assert Caller("s", "a") == Caller("s", "a")


@pytest.mark.parametrize("patched_name", ["threading", "select"])
def test_each_call_is_told_that_greenlets_are_no_threads(monkeypatch, patched_name):
    """The first call went well there, and the others were told of an event loop that is none of theirs."""
    patched = SimpleNamespace(is_module_patched=lambda name: name == patched_name)
    monkeypatch.setitem(sys.modules, "gevent.monkey", patched)
    guard = Guard(required=["policy"])
    for _ in range(3):
        with pytest.raises(ConfigError, match=r"needs threads .*gevent.*toolgate serve"):
            guard.rule_sync(Call("run", {}))


@pytest.mark.parametrize("how", ["", "thread=False"])
def test_it_is_so_in_a_program_that_gevent_has_changed(how):
    pytest.importorskip("gevent")
    program = (
        f"from gevent import monkey; monkey.patch_all({how})\n"
        "from toolgate_orchestrator import Call, Guard\n"
        "guard = Guard()\n"
        "for _ in range(3):\n"
        "    try: guard.rule_sync(Call('run', {}))\n"
        "    except Exception as error: print(type(error).__name__, 'needs threads' in str(error))\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert ended.stdout.splitlines() == ["ConfigError True"] * 3, ended.stderr


def wrap(with_defaults):
    """A decorator whose wrapper has these parameters."""

    def decorate(fn):
        return functools.wraps(fn)(with_defaults)

    return decorate


@wrap(lambda path=".env", *rest: None)
def write(path="notes.txt"):
    """A function whose wrapper has another default."""


@wrap(lambda *args, **rest: None)
@wrap(lambda *args, force=True, **rest: None)
def remove(path, depth=1):
    """A function whose inner wrapper takes more than it says."""


@wrap(lambda self, *args, **rest: None)
def plain(path="notes.txt"):
    """A function with a wrapper as most are."""


@pytest.mark.parametrize(
    ("fn", "given", "seen"),
    [
        (write, (), {"path": ".env"}),
        (remove, ("a",), {"path": "a", "depth": 1, "force": True}),
        (plain, (), {"path": "notes.txt"}),
    ],
)
def test_rules_see_the_defaults_of_what_is_wrapped_around_a_function(fn, given, seen):
    assert ToolFunction(fn, "tool").read(given, {}) == seen


def test_a_function_for_each_type_is_no_tool():
    with pytest.raises(UnfitFunction, match="make each of them a tool"):
        ToolFunction(functools.singledispatch(lambda order, amount=5: None), "refund")
