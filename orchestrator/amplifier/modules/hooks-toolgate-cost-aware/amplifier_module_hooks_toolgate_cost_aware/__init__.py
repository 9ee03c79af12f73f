"""`hooks-toolgate-cost-aware` as a package that the `source:` of a bundle can name."""

from toolgate_schedulers.hooks.cost_aware import __amplifier_module_type__, mount

__all__ = ["__amplifier_module_type__", "mount"]
