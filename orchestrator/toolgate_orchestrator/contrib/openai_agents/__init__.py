"""Adapter for the OpenAI Agents SDK; needs the extra `openai-agents`."""

from toolgate_orchestrator.contrib.openai_agents.adapter import gate, question_of

__all__ = ["gate", "question_of"]
