"""`loop-toolgate-basic` as a package that the `source:` of a bundle can name."""

from toolgate_orchestrator.loops.basic import __amplifier_module_type__, mount

__all__ = ["__amplifier_module_type__", "mount"]
