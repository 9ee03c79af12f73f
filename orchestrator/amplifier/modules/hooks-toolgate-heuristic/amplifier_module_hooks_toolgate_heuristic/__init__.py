"""`hooks-toolgate-heuristic` as a package that the `source:` of a bundle can name."""

from toolgate_schedulers.hooks.heuristic import __amplifier_module_type__, mount

__all__ = ["__amplifier_module_type__", "mount"]
