"""Adapter for Microsoft's Agent Framework; needs the extra `agent-framework`."""

from toolgate_orchestrator.contrib.agent_framework.adapter import ToolgateBundle

__all__ = ["ToolgateBundle"]
