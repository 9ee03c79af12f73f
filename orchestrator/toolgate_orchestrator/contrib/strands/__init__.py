"""Adapter for Strands Agents; needs the extra `strands`."""

from toolgate_orchestrator.contrib.strands.adapter import ToolgateLayer

__all__ = ["ToolgateLayer"]
