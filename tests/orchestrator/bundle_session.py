"""Sessions as a bundle's host makes them: a `source:` is a folder, which the kernel's own loader loads."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from amplifier_core import AmplifierSession
from amplifier_core.module_sources import ModuleNotFoundError as NoSource

AMPLIFIER = Path(__file__).resolve().parents[2] / "orchestrator" / "amplifier"
MODULES = AMPLIFIER / "modules"

FOREIGN = '''
"""Another's loop: it runs whatever the LLM wants, and asks nobody."""

__amplifier_module_type__ = "orchestrator"


class ForeignLoop:
    async def execute(self, prompt, context, providers, tools, hooks, **kwargs):
        return f"ungated: {prompt}"


async def mount(coordinator, config=None):
    await coordinator.mount("orchestrator", ForeignLoop())
'''


class Folder:
    """A source that is there."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def resolve(self) -> Path:
        return self._path


class FolderResolver:
    """Follows a `source:` that is a folder; whatever has none is left to the installed modules."""

    async def async_resolve(
        self, module_id: str, source_hint: Any = None, profile_hint: Any = None
    ) -> Folder:
        if not source_hint:
            raise NoSource(f"{module_id}: no source")
        return Folder(Path(source_hint))

    resolve = async_resolve


def write_foreign_loop(folder: Path, module: str = "loop-streaming") -> Path:
    """A package of another's loop; gives the folder that a `source:` names."""
    package = folder / f"elsewhere-{module}" / f"amplifier_module_{module.replace('-', '_')}_elsewhere"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(FOREIGN)
    return package.parent


def bundle_plan(orchestrator: Any, *, hooks: Sequence[Mapping[str, Any]] = (), **more: Any) -> dict[str, Any]:
    """A mount plan with a scripted LLM that says `hello`."""
    script = {"module": "provider-scripted", "config": {"turns": [{"text": "hello"}]}}
    return {
        "session": {"orchestrator": orchestrator, "context": "context-simple"},
        "providers": [script],
        "tools": [],
        "hooks": list(hooks),
        **more,
    }


@asynccontextmanager
async def bundle_session(plan: Mapping[str, Any], **options: Any) -> AsyncIterator[Any]:
    """A session with a resolver, initialized."""
    session = AmplifierSession(dict(plan), **options)
    await session.coordinator.mount("module-source-resolver", FolderResolver())
    try:
        await session.initialize()
        yield session
    finally:
        await session.cleanup()
