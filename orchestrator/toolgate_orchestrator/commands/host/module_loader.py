"""Loads the modules of a session: Toolgate's own at once, the others as the kernel does.

For each module of each session the kernel looks through everything that is installed. That takes some 5 ms in
which nothing else in the process goes on: too long where agents make sub-agents while others wait.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from amplifier_core.loader import ModuleLoader

from toolgate_orchestrator.commands.host.installed_modules import Offers, is_ours

Mount = Callable[[Any], Awaitable[Any]]


class InstalledModuleLoader(ModuleLoader):
    """A loader of one session that knows what is installed."""

    def __init__(self, coordinator: Any, offers: Offers) -> None:
        """`offers` is what was installed when somebody looked."""
        super().__init__(coordinator=coordinator)
        self._of_session, self._offers = coordinator, offers

    async def load(
        self,
        module_id: str,
        config: dict[str, Any] | None = None,
        source_hint: str | dict[str, Any] | None = None,
        coordinator: Any = None,
    ) -> Mount:
        """The mount of a module, its config bound; raises as the kernel's loader does."""
        points = self._offers.get(module_id, {})
        if len(points) == 1 and is_ours(module_id, self._offers) and not self._has_resolver():
            (point,) = points.values()
            with suppress(ImportError):  # an extra is not installed: the kernel says what is amiss
                mount = point.load()

                async def mount_with_config(coordinator: Any) -> Any:
                    return await mount(coordinator, config or {})

                return mount_with_config
        loaded: Mount = await super().load(module_id, config, source_hint, coordinator)
        return loaded

    def _has_resolver(self) -> bool:
        """Whether the session finds its modules in another way."""
        with suppress(ValueError):
            return self._of_session.get("module-source-resolver") is not None
        return False
