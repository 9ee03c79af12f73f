"""amplifier-core's own validation: its structural and behavioural suites and its validator, on our files."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import toolgate_orchestrator
from amplifier_core.pytest_plugin import _load_module, coordinator, mock_deps
from amplifier_core.validation.behavioral import (
    ContextBehaviorTests,
    OrchestratorBehaviorTests,
    ProviderBehaviorTests,
)
from amplifier_core.validation.structural import (
    ContextStructuralTests,
    OrchestratorStructuralTests,
    ProviderStructuralTests,
)

__all__ = ["coordinator", "mock_deps"]  # fixtures of the kernel's plugin, which the suites ask for

pytestmark = pytest.mark.system

FOLDER = Path(toolgate_orchestrator.__file__).parent
MODULES = [
    ("orchestrator", "loops/basic"),
    ("orchestrator", "loops/streaming"),
    ("orchestrator", "loops/events"),
    ("orchestrator", "loops/reactive"),
    ("context", "modules/context_simple"),
    ("provider", "modules/provider_scripted"),
    ("hook", "modules/hooks_logging/module"),
]


@pytest.fixture
def module_path(request: pytest.FixtureRequest) -> Path:
    """The file that a suite is run on."""
    return FOLDER / f"{request.cls.module}.py"


async def loaded(path: Path, mounts: Any) -> AsyncIterator[Any]:
    cleanup = await _load_module(path, mounts)
    yield mounts.mount_points
    if cleanup:
        await cleanup()


@pytest.fixture
async def orchestrator_module(module_path: Path, coordinator: Any) -> AsyncIterator[Any]:
    async for mounted in loaded(module_path, coordinator):
        yield mounted["orchestrator"]


@pytest.fixture
async def context_module(module_path: Path, coordinator: Any) -> AsyncIterator[Any]:
    async for mounted in loaded(module_path, coordinator):
        yield mounted["context"]


@pytest.fixture
async def provider_module(module_path: Path, coordinator: Any) -> AsyncIterator[Any]:
    async for mounted in loaded(module_path, coordinator):
        yield next(iter(mounted["providers"].values()))


class TestLoopBasicBehaviour(OrchestratorBehaviorTests):
    module = "loops/basic"


class TestLoopBasicStructure(OrchestratorStructuralTests):
    module = "loops/basic"


class TestLoopStreamingBehaviour(OrchestratorBehaviorTests):
    module = "loops/streaming"


class TestLoopStreamingStructure(OrchestratorStructuralTests):
    module = "loops/streaming"


class TestLoopEventsBehaviour(OrchestratorBehaviorTests):
    module = "loops/events"


class TestLoopEventsStructure(OrchestratorStructuralTests):
    module = "loops/events"


class TestLoopReactiveBehaviour(OrchestratorBehaviorTests):
    module = "loops/reactive"


class TestLoopReactiveStructure(OrchestratorStructuralTests):
    module = "loops/reactive"


class TestContextSimpleBehaviour(ContextBehaviorTests):
    module = "modules/context_simple"


class TestContextSimpleStructure(ContextStructuralTests):
    module = "modules/context_simple"


class TestProviderScriptedBehaviour(ProviderBehaviorTests):
    module = "modules/provider_scripted"


class TestProviderScriptedStructure(ProviderStructuralTests):
    module = "modules/provider_scripted"


@pytest.mark.parametrize(("kind", "name"), MODULES)
async def test_the_kernels_validator_passes_the_file(kind: str, name: str) -> None:
    program = Path(sys.executable).with_name("amplifier-core")
    process = await asyncio.create_subprocess_exec(
        program, "validate", kind, FOLDER / f"{name}.py", stdout=asyncio.subprocess.PIPE
    )
    said, _ = await process.communicate()
    assert b"PASSED" in said
    assert (
        process.returncode != 1
    )  # not `== 0`: the kernel's own threads sometimes abort its program at its end
