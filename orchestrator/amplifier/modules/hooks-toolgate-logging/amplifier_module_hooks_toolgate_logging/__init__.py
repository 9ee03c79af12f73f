"""`hooks-toolgate-logging` as a package that the `source:` of a bundle can name."""

from toolgate_orchestrator.modules.hooks_logging.module import (
    __amplifier_module_type__,
    mount,
    on_session_ready,
)

__all__ = ["__amplifier_module_type__", "mount", "on_session_ready"]
