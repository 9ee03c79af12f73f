"""Adapter for Google's Agent Development Kit; needs the extra `google-adk`."""

from toolgate_orchestrator.contrib.google_adk.adapter import ToolgatePlugin

__all__ = ["ToolgatePlugin"]
