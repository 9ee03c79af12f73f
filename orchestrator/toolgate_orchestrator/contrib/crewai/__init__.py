"""Adapter for CrewAI; needs the extra `crewai`."""

from toolgate_orchestrator.contrib.crewai.adapter import gate

__all__ = ["gate"]
