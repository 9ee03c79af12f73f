"""Loads the modules of a session: Toolgate's own directly, the others as the kernel does.

The kernel searches all installed packages for each module of each session. The search blocks the process for
about 5 ms. That is too long if agents make sub-agents while other agents wait.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from amplifier_core.loader import ModuleLoader
from toolgate_bus.telemetry.logging import load_structlog

from toolgate_orchestrator.commands.host.installed_modules import Offers, is_ours

Mount = Callable[[Any], Awaitable[Any]]


class InstalledModuleLoader(ModuleLoader):
    """Module loader of one session that has a list of the installed modules."""

    def __init__(self, coordinator: Any, offers: Offers) -> None:
        """Make a loader with the modules in `offers`, which were read earlier."""
        super().__init__(coordinator=coordinator)
        self._of_session, self._offers = coordinator, offers

    async def load(
        self,
        module_id: str,
        config: dict[str, Any] | None = None,
        source_hint: str | dict[str, Any] | None = None,
        coordinator: Any = None,
    ) -> Mount:
        """Return a module's mount function with its config bound. Raise the errors of the kernel's loader."""
        points = self._offers.get(module_id, {})
        if len(points) == 1 and is_ours(module_id, self._offers) and not self._has_resolver():
            (point,) = points.values()
            with suppress(ImportError):  # an extra is not installed: the kernel reports it
                mount = point.load()

                async def mount_with_config(coordinator: Any) -> Any:
                    return await mount(coordinator, config or {})

                return mount_with_config
        load_structlog()  # its author may log by it
        loaded: Mount = await super().load(module_id, config, source_hint, coordinator)
        return loaded

    def _has_resolver(self) -> bool:
        """Return whether the session has a resolver of its own for modules."""
        with suppress(ValueError):
            return self._of_session.get("module-source-resolver") is not None
        return False
