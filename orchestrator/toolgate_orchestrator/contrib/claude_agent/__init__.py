"""Adapter for the Claude Agent SDK; needs the extra `claude-agent`."""

from toolgate_orchestrator.contrib.claude_agent.adapter import gate, watch

__all__ = ["gate", "watch"]
