"""The modules by ids of our own: as entry points, and as packages that the `source:` of a bundle can name."""

import tomllib
from importlib.metadata import entry_points

import pytest
import yaml
from bundle_session import AMPLIFIER, MODULES, bundle_plan, bundle_session
from toolgate_orchestrator.modules.loop_origin import OWN_LOOPS
from toolgate_orchestrator.turn.loop import LoopBase

ROOT = AMPLIFIER.parents[1]
OFFERED = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["amplifier.modules"]
OWN = {name: where for name, where in OFFERED.items() if "toolgate" in name}
UPSTREAM = ("loop-basic", "loop-streaming", "loop-events", "loop-reactive", "context-simple", "hooks-logging")
each_id = pytest.mark.parametrize("module", OWN)


def test_every_loop_has_an_id_of_its_own_and_keeps_the_one_that_others_offer_too():
    assert set(OWN_LOOPS) == {name for name in OWN if name.startswith("loop-")}
    assert all(OFFERED[name] == OFFERED[name.replace("-toolgate", "")] for name in OWN_LOOPS)
    assert set(UPSTREAM) <= set(OFFERED)


def test_a_package_is_there_for_each_id_and_for_no_other():
    assert {folder.name for folder in MODULES.iterdir() if folder.is_dir()} == set(OWN)
    packages = {path.name for path in ROOT.glob("[bos]*/**/amplifier_module_*")}
    assert packages == {f"amplifier_module_{name.replace('-', '_')}" for name in OWN}


@each_id
def test_a_package_is_the_module_itself_and_offers_no_second_entry_point(module: str):
    project = tomllib.loads((MODULES / module / "pyproject.toml").read_text())
    (package,) = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert package == f"amplifier_module_{module.replace('-', '_')}"
    assert project["project"]["name"] == f"amplifier-module-{module}"
    assert "entry-points" not in project["project"]
    assert OWN[module].partition(":")[0] in (MODULES / module / package / "__init__.py").read_text()


@each_id
def test_an_entry_point_mounts(module: str):
    (point,) = entry_points(group="amplifier.modules", name=module)
    assert callable(point.load())


@pytest.mark.parametrize("module", OWN_LOOPS)
async def test_a_loop_is_mounted_from_its_package_by_the_kernels_own_loader(module: str):
    spec = {"module": module, "source": str(MODULES / module)}
    async with bundle_session(bundle_plan(spec)) as session:
        assert isinstance(session.coordinator.get("orchestrator"), LoopBase)
        assert await session.execute("hi") == "hello"


@pytest.mark.parametrize("kind", ["context", "hooks", "tools"])
async def test_the_other_modules_are_mounted_from_their_packages(kind: str, caplog: pytest.LogCaptureFixture):
    ids = [name for name in OWN if name.startswith(kind.rstrip("s"))]
    specs = {name: {"module": name, "source": str(MODULES / name)} for name in ids}
    plan = bundle_plan({"module": "loop-toolgate-basic", "config": {"toolgate": {"required": ["policy"]}}})
    plan |= {"agents": {"writer": {"description": "writes"}}}
    if kind == "context":
        plan["session"]["context"] = specs["context-toolgate"]
    else:
        plan[kind] = list(specs.values())
    async with bundle_session(plan) as session:
        assert await session.execute("hi") == "hello"
    assert "Failed to load" not in caplog.text


def test_the_behavior_names_modules_that_there_are_and_a_source_for_each():
    behavior = yaml.safe_load((AMPLIFIER / "behaviors" / "toolgate.yaml").read_text())
    specs = [behavior["session"]["orchestrator"], *behavior["hooks"]]
    assert [(spec["module"], spec["source"]) for spec in specs] == [
        ("loop-toolgate-streaming", ""),
        ("hooks-toolgate-required", ""),
    ]
    assert all(spec["module"] in OWN for spec in specs)


def test_whoever_includes_the_repository_itself_has_the_behavior():
    files = [AMPLIFIER / "bundle.yaml", AMPLIFIER / "behaviors" / "toolgate.yaml"]
    whole, behavior = (yaml.safe_load(file.read_text()) for file in files)
    assert (whole["session"], whole["hooks"]) == (behavior["session"], behavior["hooks"])
