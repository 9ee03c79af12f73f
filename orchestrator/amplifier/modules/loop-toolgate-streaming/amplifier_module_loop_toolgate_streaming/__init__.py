"""`loop-toolgate-streaming` as a package that the `source:` of a bundle can name."""

from toolgate_orchestrator.loops.streaming import __amplifier_module_type__, mount

__all__ = ["__amplifier_module_type__", "mount"]
