"""Mount plans in YAML: both forms, variables, sources, and everything wrong named."""

from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toolgate_bus.errors import ConfigError
from toolgate_orchestrator.commands.host.installed_modules import Offers, offers_of
from toolgate_orchestrator.commands.host.plan import Plan, read_plan, with_bus, with_provider

pytestmark = pytest.mark.pure

SOURCE = "git+https://github.com/microsoft/amplifier-module-loop-events@main"
SEED_PLAN = f"""
session:
  orchestrator: loop-events

orchestrators:
  - module: loop-events
    source: {SOURCE}
    config:
      max_iterations: -1              # Maximum iterations (-1 = unlimited)
      default_provider: "anthropic"   # Default provider name (optional)
      extended_thinking: false        # Enable extended thinking mode (default: false)
"""
SEED_HOOKS = """
session:
  orchestrator: loop-events

hooks:
  - module: hooks-scheduler-heuristic
  - module: hooks-scheduler-cost-aware
    config:
      cost_weight: 0.6
      latency_weight: 0.4
"""
PROVIDERS = "\nproviders: [provider-scripted]\n"


class Dist:
    """A distribution, as far as its name goes."""

    def __init__(self, name: str) -> None:
        self.name = name


def point(module: str, dist: str, value: str = "somewhere:mount") -> EntryPoint:
    made = EntryPoint(module, value, "amplifier.modules")
    vars(made)["dist"] = Dist(dist)
    return made


@pytest.fixture
def plan(tmp_path: Path) -> Any:
    """`plan(text)`: what reading this text gives."""

    def read(text: str, offers: Offers | None = None, **environ: str) -> Plan:
        path = tmp_path / "plan.yaml"
        path.write_text(text)
        return read_plan(path, environ, offers)

    return read


def test_the_seeds_block_becomes_the_kernels_form(plan: Any) -> None:
    read = plan(SEED_PLAN + PROVIDERS)
    assert read.mount["session"] == {
        "orchestrator": {
            "module": "loop-events",
            "config": {"max_iterations": -1, "default_provider": "anthropic", "extended_thinking": False},
        },
        "context": {"module": "context-simple", "config": {}},
    }
    assert read.mount["providers"] == [{"module": "provider-scripted", "config": {}}]
    assert (read.mount["tools"], read.mount["hooks"]) == ([], [])
    assert read.notices == (f"loop-events: the installed module is used, not {SOURCE}",)


def test_modules_that_are_not_installed_are_all_named_at_once(plan: Any) -> None:
    wrong = r":6: hooks\.0: hooks-scheduler-lottery is not (.|\n)*:7: hooks\.1: hooks-scheduler-weather is"
    with pytest.raises(ConfigError, match=wrong):
        plan(SEED_HOOKS.replace("heuristic", "lottery").replace("cost-aware", "weather") + PROVIDERS)


def test_a_source_does_not_help_a_module_that_is_not_installed(plan: Any) -> None:
    with pytest.raises(ConfigError, match="tool-x is not installed; there is tool-calculator"):
        plan(
            "session: {orchestrator: loop-events}\ntools: [{module: tool-x, source: 'git+https://x'}]"
            + PROVIDERS
        )


def test_the_kernels_own_form_is_read_too(plan: Any) -> None:
    read = plan(
        "session:\n  orchestrator: {module: loop-events, config: {max_iterations: 3}}\n"
        "  context: {module: context-simple, config: {max_tokens: 900}}\n" + PROVIDERS
    )
    assert read.orchestrator == {"module": "loop-events", "config": {"max_iterations": 3}}
    assert read.mount["session"]["context"]["config"] == {"max_tokens": 900}
    read = plan(
        "session: {orchestrator: loop-events}\norchestrator: {config: {max_iterations: 3}}" + PROVIDERS
    )
    assert read.orchestrator["config"] == {"max_iterations": 3}


def test_the_config_nearest_to_the_session_counts(plan: Any) -> None:
    read = plan(
        "session:\n  orchestrator: {module: loop-events, config: {max_iterations: 1}}\n"
        "orchestrators: [{module: loop-events, config: {max_iterations: 2, extended_thinking: true}}]\n"
        + PROVIDERS
    )
    assert read.orchestrator["config"] == {"max_iterations": 1, "extended_thinking": True}


def test_an_orchestrator_that_is_listed_alone_needs_no_naming(plan: Any) -> None:
    assert plan("orchestrators: [{module: loop-events}]" + PROVIDERS).orchestrator["module"] == "loop-events"
    with pytest.raises(ConfigError, match=r"session\.orchestrator: missing"):
        plan("session: {}" + PROVIDERS)


def test_listed_orchestrators_that_are_not_used_need_not_be_installed(plan: Any) -> None:
    read = plan("session: {orchestrator: loop-events}\norchestrators: [{module: loop-other}]" + PROVIDERS)
    assert read.notices == ("orchestrators: loop-other not used: session.orchestrator names loop-events",)


def test_variables_are_expanded_everywhere_and_missing_ones_named(plan: Any) -> None:
    text = (
        "session: {orchestrator: loop-events}\nproviders:\n"
        "  - {module: provider-scripted, config: {model: '${MODEL}-x', turns: [{text: '${last_result}'}]}}"
    )
    config = plan(text, MODEL="m").mount["providers"][0]["config"]
    assert config == {"model": "m-x", "turns": [{"text": "${last_result}"}]}
    with pytest.raises(ConfigError, match="not set in the environment: A_KEY, B_KEY"):
        plan("session: {orchestrator: '${A_KEY}', context: '${B_KEY}${A_KEY}'}" + PROVIDERS)


def test_two_distributions_that_offer_a_module_are_both_named(plan: Any) -> None:
    offers = offers_of(
        [
            point("loop-events", "toolgate"),
            point("loop-events", "amplifier-module-loop-events"),
            point("context-simple", "toolgate"),
            point("context-simple", "toolgate"),
            point("provider-scripted", "toolgate"),
        ]
    )
    expected = "loop-events is offered by amplifier-module-loop-events and by toolgate: uninstall one"
    with pytest.raises(ConfigError, match=expected):
        plan("session: {orchestrator: loop-events}" + PROVIDERS, offers)


def test_of_a_module_of_ours_that_another_offers_too_the_id_that_is_only_ours_is_named(plan: Any) -> None:
    ours = "toolgate_orchestrator.loops.events:mount"
    names = ("loop-events", "loop-toolgate-events", "context-simple", "provider-scripted")
    offers = offers_of(
        [point("loop-events", "elsewhere"), *(point(name, "toolgate-bus", ours) for name in names)]
    )
    expected = "uninstall one, or name loop-toolgate-events, which nobody else offers"
    with pytest.raises(ConfigError, match=expected):
        plan("session: {orchestrator: loop-events}" + PROVIDERS, offers)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("sesion: {}", r"yaml:1: sesion: unknown key; allowed: agents, context, .*; did you mean session\?"),
        ("session: [1]", "yaml:1: session: Input should be a mapping"),
        ("session: {orchestrator: loop-events}\ntools: {a: b}", "yaml:2: tools: Input should be a list"),
        (
            "session: {orchestrator: loop-events}\ntools: [{name: x}]",
            r"yaml:2: tools\.0\.module: Field required; allowed: its name, as in `module:",
        ),
        (
            "session: {orchestrator: loop-events}\ntools: [{module: x, cfg: {}}]",
            r"yaml:2: tools\.0\.cfg: unknown key; .*; did you mean config\?",
        ),
        (
            "session: {orchestrator: loop-events}\ntools: [{module: x, config: 3}]",
            r"yaml:2: tools\.0\.config: Input should be a mapping",
        ),
        ("session: {orchestrator: loop-events}", "providers: the plan mounts none"),
        ("- a list", "must be a mapping"),
        ("{", "is not YAML"),
        ("a: !!python/object:os.system x", "a tag .* is not supported"),
        ("x: " + "[" * 40 + "]" * 40, "x: unknown key"),
        (
            "session: {orchestrator: loop-events, deep: " + "[" * 70 + "]" * 70 + "}",
            "nested more than 64 levels deep",
        ),
    ],
)
def test_what_is_wrong_is_named(plan: Any, text: str, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        plan(text)


def test_aliases_cannot_make_a_plan_explode(plan: Any) -> None:
    bomb = "\n".join(["agents:", "  a: &a [x, x, x, x, x, x, x, x, x]"]) + "".join(
        f"\n  {name}: &{name} [{', '.join([f'*{before}'] * 9)}]"
        for before, name in zip("abcdefg", "bcdefgh", strict=True)
    )
    with pytest.raises(ConfigError, match="more than 50000 values"):
        plan(f"session: {{orchestrator: loop-events}}\n{bomb}\n" + PROVIDERS)


def test_a_file_that_is_missing_or_too_large_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.yaml: cannot be read"):
        read_plan(tmp_path / "nowhere.yaml")
    large = tmp_path / "large.yaml"
    large.write_text("x" * ((1 << 20) + 1))
    with pytest.raises(ConfigError, match="longer than 1024 KiB"):
        read_plan(large)


@given(st.text(max_size=60))
def test_any_text_is_a_plan_or_a_config_error(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(ConfigError):
        read_plan(path, {})


def test_options_lie_over_the_plans_own_toolgate_section(plan: Any) -> None:
    read = plan(
        "session: {orchestrator: {module: loop-events, config: {toolgate: {namespace: a, patience_ms: 9}}}}"
        + PROVIDERS
    )
    laid = with_bus(read, redis="redis://x", namespace="b", keys=None)
    assert laid.orchestrator["config"]["toolgate"] == {
        "namespace": "b",
        "patience_ms": 9,
        "redis": "redis://x",
    }
    assert read.orchestrator["config"]["toolgate"] == {"namespace": "a", "patience_ms": 9}
    assert with_provider(read, "p").orchestrator["config"]["default_provider"] == "p"


def test_a_foreign_loop_gets_no_toolgate_section_but_a_notice(plan: Any) -> None:
    offers = offers_of([point(name, "d") for name in ("loop-other", "context-simple", "provider-scripted")])
    laid = with_bus(plan("session: {orchestrator: loop-other}" + PROVIDERS, offers), redis="redis://x")
    assert laid.orchestrator["config"] == {}
    assert "nothing rules on its calls" in laid.notices[-1]


def test_a_foreign_loop_is_refused_where_somebody_must_rule_on_its_calls(plan: Any) -> None:
    offers = offers_of([point(name, "d") for name in ("loop-other", "context-simple", "provider-scripted")])
    loop = "{module: loop-other, config: {toolgate: {required: [policy]}}}"
    with pytest.raises(
        ConfigError, match=r"policy \(required\) would not be asked: use one of loop-toolgate-"
    ):
        with_bus(plan(f"session: {{orchestrator: {loop}}}" + PROVIDERS, offers), redis="redis://x")


def test_agents_are_passed_on(plan: Any) -> None:
    read = plan("session: {orchestrator: loop-events}\nagents: {coder: {tools: []}}" + PROVIDERS)
    assert read.mount["agents"] == {"coder": {"tools": []}}


PLACE = "it belongs to the section of the loop: session: {orchestrator: {config: {toolgate: {required: …}}}}"
LOOP = "session: {orchestrator: loop-events}\nproviders: [provider-scripted]\n"


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        (
            "session: {orchestratr: loop-events}\nproviders: [provider-scripted]",
            1,
            "session.orchestratr: unknown key; allowed: .*; did you mean orchestrator?",
        ),
        (
            "session: {orchestrator: {module: loop-event}}\nproviders: [provider-scripted]",
            1,
            "session.orchestrator: loop-event is not installed; did you mean loop-events?",
        ),
        (
            "session: {orchestrator: loop-events, debug: true}\nproviders: [provider-scripted]",
            1,
            "session.debug: unknown key; allowed: context, .*, raw",
        ),
        (
            "session:\n  orchestrator: loop-events\n  required: [a]\nproviders: [provider-scripted]",
            3,
            f"session.required: it has no effect here; {PLACE}",
        ),
        (
            "session:\n  orchestrator: loop-events\n  requird: [a]\nproviders: [provider-scripted]",
            3,
            f"session.requird: unknown key; did you mean required? It{PLACE[2:]}",
        ),
        (LOOP + "required: [a]", 3, f"required: it has no effect here; {PLACE}"),
        (LOOP + "toolgate: {required: [a]}", 3, "toolgate: it has no effect here; it belongs"),
        (
            LOOP + "orchestrator:\n  required: [a]",
            4,
            f"orchestrator.required: it has no effect here; {PLACE}",
        ),
        (
            LOOP + "orchestrator:\n  config:\n    required: [a]",
            5,
            f"orchestrator.config.required: it has no effect here; {PLACE}",
        ),
        (LOOP + "agents:\n  a:\n    required: [b]", 5, f"agents.a.required: it has no effect here; {PLACE}"),
        (
            LOOP + "orchestrators:\n- module: loop-events\n  config:\n    toolgate:\n      requird: [a]",
            7,
            "orchestrators.0.config.toolgate.requird: unknown key; .*; did you mean required?",
        ),
        (
            LOOP + "orchestrator:\n  config: {toolgate: {on_gone: contine}}",
            4,
            "orchestrator.config.toolgate.on_gone: Input should be 'continue' or 'deny'",
        ),
        (
            LOOP + "orchestrator:\n  config:\n    toolgate: {schedulers: {p: {max_prio: 3}}}",
            5,
            "orchestrator.config.toolgate.schedulers.p.max_prio: unknown key; .*; did you mean max_priority?",
        ),
        (
            LOOP + "orchestrator:\n  config:\n    toolgate:\n      redact:\n        feilds: [a]",
            7,
            "orchestrator.config.toolgate.redact.feilds: unknown key; .*; did you mean fields?",
        ),
        (
            LOOP + "context: {config: {max_token: 3}}",
            3,
            "context.config.max_token: unknown key; allowed: auto_compact, .*; did you mean max_tokens?",
        ),
        (
            LOOP + "tools:\n- tool-calculator\n- {module: tool-workspace, config: {rot: .}}",
            5,
            "tools.1.config.rot: unknown key; allowed: root; did you mean root?",
        ),
        (
            LOOP + "tools: [{module: tool-workspace, config: {root: /nowhere/at/all}}]",
            3,
            "tools.0.config.root: must name a folder that exists",
        ),
        (
            LOOP + "tools: [{module: tool-calculator, config: {x: 1}}]",
            3,
            "tools.0.config.x: unknown key; allowed: none",
        ),
        (
            LOOP + "tools: [{module: tool-delegate, config: {exclude_tools: x}}]",
            3,
            "tools.0.config.exclude_tools: Input should be a list; allowed: a list",
        ),
        (
            LOOP.replace("provider-scripted", "{module: provider-scripted, config: {turns: [{txt: a}]}}"),
            2,
            "providers.0.config.turns.0.txt: unknown key; .*; did you mean text?",
        ),
        (
            LOOP.replace("provider-scripted", "{module: provider-openai-compatible, config: {modl: a}}"),
            2,
            "providers.0.config.modl: unknown key; .*; did you mean model?",
        ),
        (
            LOOP + "hooks: [{module: hooks-logging, config: {directry: a}}]",
            3,
            "hooks.0.config.directry: unknown key; .*; did you mean directory?",
        ),
        (
            LOOP + "hooks: [{module: hooks-scheduler-cost-aware, config: {cost_wait: 1}}]",
            3,
            "hooks.0.config.cost_wait: unknown key; .*; did you mean cost_weight?",
        ),
        (
            LOOP + "agents:\n  a: {tool: []}",
            4,
            "agents.a.tool: unknown key; allowed: agents, .*; did you mean tools?",
        ),
        (LOOP + "agents: [a]", 3, "agents: Input should be a mapping"),
        (
            LOOP + "agents: {a: 3}",
            3,
            "agents.a: Input should be a mapping; allowed: a mapping of name, description, session",
        ),
        (LOOP + "agents: {a: {tools: x}}", 3, "agents.a.tools: Input should be a list"),
        (LOOP + "agents: {a: {tools: [{config: {}}]}}", 3, "agents.a.tools.0.module: Field required"),
        (
            LOOP + "agents: {a: {system: 1}}",
            3,
            "agents.a.system.dict[str,any]: Input should be a mapping; allowed: a mapping or a text",
        ),
        (LOOP + "agents: {self: {}}", 3, "agents: 'self' always means the agent itself; choose another name"),
        (
            LOOP + "agents:\n  a:\n    agents:\n      b: {x: 1}",
            6,
            "agents.a.agents.b.x: unknown key; allowed: agents",
        ),
        (
            LOOP + "agents:\n  a:\n    tools: [{module: tool-workspace, config: {rot: 1}}]",
            5,
            "agents.a.tools.0.config.rot: unknown key; allowed: root; did you mean root?",
        ),
        (
            LOOP + "agents:\n  a:\n    orchestrator: {config: {toolgate: {agnt: x}}}",
            5,
            "agents.a.orchestrator.config.toolgate.agnt: unknown key; .*; did you mean agent?",
        ),
        (
            LOOP + "agents: {a: {tools: [tool-calculatr]}}",
            3,
            "agents.a.tools.0: tool-calculatr is not installed; did you mean tool-calculator?",
        ),
    ],
)
def test_a_typo_in_a_plan_is_told_with_its_line_and_what_was_meant(
    plan: Any, tmp_path: Path, text: str, line: int, said: str
) -> None:
    with pytest.raises(ConfigError) as error:
        plan(text)
    begin, _, end = said.partition(".*")
    told = [
        one
        for one in str(error.value).splitlines()
        if one.startswith(f"{tmp_path / 'plan.yaml'}:{line}: {begin}")
    ]
    assert told, str(error.value)
    assert told[0].endswith(end)


def test_what_an_agent_changes_of_its_parents_modules_need_not_be_whole(plan: Any) -> None:
    read = plan(
        LOOP + "agents: {a: {tools: [{module: tool-workspace}], orchestrator: {config: {max_iterations: 2}}}}"
    )
    assert set(read.mount["agents"]) == {"a"}


def test_every_fault_of_a_plan_is_told_at_once(plan: Any) -> None:
    with pytest.raises(ConfigError) as error:
        plan(
            LOOP
            + "tools: [tool-nowhere, {module: tool-workspace, config: {rot: .}}]\ncontext: {config: {a: 1}}"
        )
    assert len(str(error.value).splitlines()) == 4


def test_what_the_kernel_reads_below_session_stays_there(plan: Any) -> None:
    read = plan("session: {orchestrator: loop-events, injection_size_limit: 9, metadata: {a: 1}}" + PROVIDERS)
    assert read.mount["session"]["injection_size_limit"] == 9
    assert read.mount["session"]["metadata"] == {"a": 1}
