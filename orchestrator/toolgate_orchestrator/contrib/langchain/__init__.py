"""Adapter for LangChain and LangGraph; needs the extra `langchain`."""

from toolgate_orchestrator.contrib.langchain.adapter import ToolgateMiddleware

__all__ = ["ToolgateMiddleware"]
