"""Amplifier modules beside the loops: a context, providers, hooks, tools."""
