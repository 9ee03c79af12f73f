"""Which loop a bundle would mount, and which of the bundles that it is composed of says so."""

import json
from pathlib import Path

import pytest
import yaml
from bundle_session import AMPLIFIER, write_foreign_loop
from documents import sample
from toolgate_bus.commands.doctor.check import Context
from toolgate_bus.errors import ConfigError
from toolgate_orchestrator.commands.host import bundle_files
from toolgate_orchestrator.commands.host.bundle import Layer, compose
from toolgate_orchestrator.commands.host.bundle_checks import CHECKS
from toolgate_orchestrator.commands.host.bundle_files import read_bundle
from toolgate_orchestrator.commands.host.plan import read_plan

pytestmark = pytest.mark.pure

BEHAVIOR = AMPLIFIER / "behaviors" / "toolgate.yaml"
UPSTREAM = {"module": "loop-streaming", "source": "git+https://forge.example/loop-streaming@main"}


def loop(spec, **more):
    return {"session": {"orchestrator": spec}, **more}


def layer(name, content=None, unseen=None):
    return Layer(name, f"{name}.yaml", content or {}, unseen)


@pytest.fixture
def bundles(tmp_path, monkeypatch):
    """`bundles("base", {…}, includes=[…])`: a bundle's file; the working directory is that of the files."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AMPLIFIER_HOME", str(tmp_path / "home"))

    def write(name, content, includes=(), form="yaml"):
        whole = {"bundle": {"name": name}, "includes": [{"bundle": one} for one in includes], **content}
        text = yaml.safe_dump(whole)
        file = tmp_path / f"{name}.{form}"
        file.write_text(f"---\n{text}---\nYou are an agent.\n" if form == "md" else text)
        return file

    return write


async def findings(file, **context):
    """What the doctor finds in a bundle, by name."""
    (check,) = CHECKS
    return {one.name: one for one in await check.run(Context(bundle=str(file), **context))}


# ---------------------------------------------------------------------- composed


def test_what_a_later_bundle_leaves_out_stays_as_an_earlier_one_said():
    config = {"toolgate": {"required": ["policy"]}}
    mine = layer("mine", loop({"module": "loop-events", "config": config}))
    base = layer("base", loop({**UPSTREAM, "config": {"extended_thinking": True}}))
    whole = compose([base, mine])
    assert whole.spec == {
        "module": "loop-events",
        "source": UPSTREAM["source"],
        "config": {"extended_thinking": True, "toolgate": {"required": ["policy"]}},
    }
    assert whole.named_by == {"module": mine, "source": base}


def test_a_name_alone_is_the_whole_entry():
    whole = compose([layer("base", loop(UPSTREAM)), layer("mine", loop("loop-toolgate-basic"))])
    assert whole.spec == {"module": "loop-toolgate-basic"}
    assert set(whole.named_by) == {"module"}


@pytest.mark.parametrize(("order", "certain"), [("unseen first", True), ("unseen last", False)])
def test_a_bundle_that_was_not_read_matters_where_it_comes_after_those_that_decide(order, certain):
    unseen, mine = layer("far", unseen="away"), layer("mine", loop({"module": "loop-events", "source": ""}))
    assert compose([unseen, mine] if order == "unseen first" else [mine, unseen]).is_certain is certain


def test_a_source_that_nobody_names_may_be_that_of_a_bundle_that_was_not_read():
    whole = compose([layer("far", unseen="away"), layer("mine", loop("loop-toolgate-events"))])
    assert whole.is_certain  # a name alone leaves nothing of what was before
    whole = compose([layer("far", unseen="away"), layer("mine", loop({"module": "loop-toolgate-events"}))])
    assert not whole.is_certain


# ---------------------------------------------------------------------- read


async def test_includes_are_read_before_the_bundle_each_with_its_own(bundles):
    bundles("low", {})
    bundles("base", {}, includes=["./low.yaml"], form="md")
    mine = bundles("mine", {}, includes=["./base.md", f"file://{BEHAVIOR}"])
    assert [one.name for one in await read_bundle(str(mine))] == ["low", "base", "toolgate-behavior", "mine"]


async def test_a_bundle_is_read_by_yaml_1_1_as_amplifier_reads_it(bundles, tmp_path):
    (tmp_path / "b.yaml").write_text("bundle: {name: b}\nsession: {a: no, b: 0755, c: 1.10, d: 2024-05-01}\n")
    (layer,) = await read_bundle("b.yaml")
    assert layer.content["session"] == {"a": False, "b": 493, "c": 1.1, "d": "2024-05-01"}


async def test_bundles_that_include_each_other_end(bundles):
    bundles("a", {}, includes=["./b.yaml"])
    b = bundles("b", {}, includes=["./a.yaml"])
    assert [one.name for one in await read_bundle(str(b))] == ["a", "b"]


async def test_a_path_within_a_named_bundle_is_found_from_its_folder(bundles, tmp_path):
    folder = tmp_path / "repo"
    (folder / "behaviors").mkdir(parents=True)
    (folder / "bundle.yaml").write_text("bundle: {name: team}\n")
    (folder / "behaviors" / "one.yaml").write_text("bundle: {name: one}\nincludes: ['team:behaviors/two']\n")
    (folder / "behaviors" / "two.yaml").write_text("bundle: {name: two}\n")
    assert [one.name for one in await read_bundle(str(folder / "behaviors" / "one.yaml"))] == ["two", "one"]


async def test_a_name_is_looked_up_in_amplifiers_registry(bundles, tmp_path):
    base = bundles("base", loop(UPSTREAM))
    (tmp_path / "home").mkdir()
    known = {"bundles": {"foundation": {"local_path": str(base)}, "gone": {"local_path": "/nonexistent"}}}
    (tmp_path / "home" / "registry.json").write_text(json.dumps(known))
    (base.parent / "bundle.yaml").write_text(base.read_text())
    layers = await read_bundle(str(bundles("mine", {}, includes=["foundation", "gone", "unknown"])))
    assert [(one.name, one.unseen is None) for one in layers] == [
        ("base", True),
        ("gone", False),
        ("unknown", False),
        ("mine", True),
    ]


async def test_what_only_foundation_can_fetch_is_told_where_that_is_not_installed(bundles, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "amplifier_foundation.sources", None)
    mine = bundles("mine", {}, includes=["git+https://forge.example/base@main"])
    far, _ = await read_bundle(str(mine))
    assert far.unseen == bundle_files.NO_FOUNDATION


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("- a list\n", "must be a mapping"),
        ("a: [1\n", "is not YAML"),
        ("a: 1\na: 2\n", "twice"),
    ],
)
async def test_a_bundle_that_cannot_be_read_is_an_error_that_says_where(tmp_path, text, words):
    file = tmp_path / "bad.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=f"bad.yaml.*{words}"):
        await read_bundle(str(file))


async def test_a_bundle_that_includes_itself_a_thousandfold_is_refused(bundles):
    bundles("b0", {})
    for number in range(1, 12):
        bundles(f"b{number}", {}, includes=[f"./b{number - 1}.yaml"] * 3)
    with pytest.raises(ConfigError, match="more than 500 bundles"):
        await read_bundle("./b11.yaml")


# ---------------------------------------------------------------------- judged


async def test_one_line_of_includes_gates_a_bundle_that_inherits_anothers_source(bundles):
    base = bundles("base", loop(UPSTREAM), form="md")
    found = await findings(bundles("mine", {}, includes=[f"file://{base}", f"file://{BEHAVIOR}"]))
    assert found["bundle-loop"].level == "notice"
    assert found["bundle-loop"].what == (
        "one of Toolgate's loops, the installed loop-toolgate-streaming, mounts: "
        f'`module: loop-toolgate-streaming` and `source: ""` by toolgate-behavior ({BEHAVIOR})'
    )
    assert found["bundle-guarded"].level == "ok"
    assert found["bundle-nobody-required"].level == "notice"


async def test_the_line_in_the_wrong_place_leaves_anothers_loop_and_the_session_refused(bundles):
    base = bundles("base", loop(UPSTREAM))
    found = (await findings(bundles("mine", {}, includes=[f"file://{BEHAVIOR}", f"file://{base}"])))[
        "bundle-loop"
    ]
    assert found.level == "error"
    assert f"loop-streaming comes from {UPSTREAM['source']}" in found.what
    assert "and the session is refused" in found.what
    assert "include the behavior toolgate last" in (found.change or "")


async def test_an_id_without_a_source_of_its_own_is_ungated_and_says_whose_source_it_is(bundles):
    base = bundles("base", loop(UPSTREAM))
    mine = loop({"module": "loop-events", "config": {"toolgate": {"required": ["policy"]}}})
    found = await findings(bundles("mine", mine, includes=[f"file://{base}"]))
    assert found["bundle-loop"].level == "error"
    assert f"`source: {UPSTREAM['source']}` by base ({base})" in found["bundle-loop"].what
    assert "nothing rules on its calls" in found["bundle-loop"].what
    assert found["bundle-unguarded"].level == "warning"


async def test_anothers_bundle_that_wants_nothing_of_ours_is_a_warning(bundles):
    found = await findings(bundles("mine", loop(UPSTREAM)))
    assert found["bundle-loop"].level == "warning"


async def test_the_form_of_a_plan_is_told_to_be_lost_in_a_bundle(bundles):
    content = {
        "session": {"orchestrator": "loop-toolgate-events"},
        "orchestrators": [{"module": "loop-events"}],
    }
    found = await findings(bundles("mine", content))
    assert found["bundle-plan-form"].level == "error"
    assert "`orchestrators:` is a plan's form" in found["bundle-plan-form"].what


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({}, "bundle-unruled"),
        ({"toolgate": {"requird": ["policy"]}}, "bundle-config"),
        ({"toolgate": {"required": ["policy"]}}, "plan-required-unseen"),
    ],
)
async def test_the_loops_config_is_looked_at(bundles, config, name):
    spec = {"module": "loop-toolgate-streaming", "source": "", "config": config}
    assert name in await findings(bundles("mine", loop(spec)))


async def test_an_agent_that_brings_anothers_loop_is_named(bundles):
    agents = {"stranger": loop(UPSTREAM), "own": loop({"config": {"max_iterations": 3}})}
    found = await findings(bundles("mine", {"agents": agents}, includes=[f"file://{BEHAVIOR}"]))
    assert "the agent stranger uses a loop that is not Toolgate's" in found["bundle-agent"].what


async def test_an_agent_in_a_file_of_its_own_is_looked_at_too(bundles, tmp_path):
    (tmp_path / "agents").mkdir()
    words = yaml.safe_dump({"meta": {"name": "stranger"}, **loop(UPSTREAM)})
    (tmp_path / "agents" / "stranger.md").write_text(f"---\n{words}---\nYou stray.\n")
    content = {"agents": {"include": ["stranger", "mine:stranger", "mine:gone"]}}
    found = await findings(bundles("mine", content, includes=[f"file://{BEHAVIOR}"]))
    assert "the agent mine:stranger uses a loop that is not Toolgate's" in found["bundle-agent"].what


async def test_a_later_bundle_that_cannot_be_seen_may_name_another_loop(bundles):
    mine = bundles("mine", {}, includes=[f"file://{BEHAVIOR}", "far:away"])
    assert (await findings(mine))["bundle-unseen"].level == "warning"
    mine = bundles("mine", {}, includes=["far:away", f"file://{BEHAVIOR}"])
    assert (await findings(mine))["bundle-unseen"].level == "notice"


def test_the_bus_of_a_bundle_is_that_of_its_section(bundles):
    spec = {
        "module": "loop-toolgate-events",
        "config": {"toolgate": {"redis": "redis://h:1", "namespace": "n"}},
    }
    (check,) = CHECKS
    assert check.bus is not None
    assert check.bus(Context(bundle=str(bundles("mine", loop(spec))))) == ("redis://h:1", "n")
    assert check.bus(Context(bundle="/nonexistent.yaml")) == (None, None)


# ---------------------------------------------------------------------- as the page says it


def test_the_behavior_that_the_page_shows_is_the_one_that_there_is():
    shown, there = yaml.safe_load(sample("behavior.yaml").text), yaml.safe_load(BEHAVIOR.read_text())
    assert (shown["session"], shown["hooks"]) == (there["session"], there["hooks"])


async def test_both_forms_of_the_page_configure_one_loop_and_only_a_plan_may_have_the_second(tmp_path):
    for name in ("one_place", "listed"):
        file = tmp_path / f"{name}.yaml"
        content = yaml.safe_load(sample(file.name).text)
        file.write_text(yaml.safe_dump(content | {"providers": [{"module": "provider-scripted"}]}))
    one_place, listed = (
        read_plan(tmp_path / f"{name}.yaml").orchestrator for name in ("one_place", "listed")
    )
    assert one_place == listed
    assert "bundle-plan-form" not in await findings(tmp_path / "one_place.yaml")
    assert "bundle-plan-form" in await findings(tmp_path / "listed.yaml")


# ---------------------------------------------------------------------- as foundation does it


async def test_foundation_composes_and_mounts_what_is_said_here(bundles, tmp_path):
    foundation = pytest.importorskip("amplifier_foundation")
    source = write_foreign_loop(tmp_path, "loop-elsewhere")
    script = {"module": "provider-scripted", "config": {"turns": [{"text": "hello"}]}}
    content = loop({"module": "loop-streaming", "source": str(source)}, providers=[script])
    content["session"]["context"] = {"module": "context-simple"}
    base = bundles("base", content, form="md")
    ours = {"config": {"toolgate": {"required": ["policy"]}}}
    for includes, gated in (([base, BEHAVIOR], True), ([BEHAVIOR, base], False), ([base, AMPLIFIER], True)):
        mine = bundles(
            f"mine{len(str(includes))}", loop(ours), includes=[f"file://{one}" for one in includes]
        )
        whole = compose(await read_bundle(str(mine)))
        prepared = await (await foundation.load_bundle(f"file://{mine}")).prepare(install_deps=False)
        assert prepared.mount_plan["session"]["orchestrator"] == whole.spec
        session = await prepared.create_session(session_cwd=Path(tmp_path))
        try:
            if gated:
                assert await session.execute("hi") == "hello"
            else:
                with pytest.raises(RuntimeError, match=r"UngatedError: .* policy would not be asked"):
                    await session.execute("hi")
        finally:
            await session.cleanup()
