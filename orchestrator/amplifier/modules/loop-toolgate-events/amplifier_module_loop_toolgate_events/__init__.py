"""`loop-toolgate-events` as a package that the `source:` of a bundle can name."""

from toolgate_orchestrator.loops.events import __amplifier_module_type__, mount

__all__ = ["__amplifier_module_type__", "mount"]
