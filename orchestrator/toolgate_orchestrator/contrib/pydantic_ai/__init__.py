"""Adapter for Pydantic AI; needs the extra `pydantic-ai`."""

from toolgate_orchestrator.contrib.pydantic_ai.adapter import ToolgateCapability

__all__ = ["ToolgateCapability"]
