"""Amplifier modules beside the loops: a context, providers, hooks, tools."""

__all__: list[str] = []
