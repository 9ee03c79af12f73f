"""Pages of a sidecar: its description, health, metrics, and where AuthZEN's endpoints are."""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from toolgate_bus.telemetry import metrics

from toolgate_orchestrator.commands.serve.openapi import describe
from toolgate_orchestrator.commands.serve.service import SidecarService

Page = Callable[[bytes], tuple[int, bytes, bytes]]
"""Function of an Accept header; returns status, content type and body."""
_JSON: Final = b"application/json"


def make_pages(service: SidecarService, url: str, version: str) -> Mapping[str, Page]:
    """Make the pages by path; `url` is the sidecar's for callers, `version` the distribution's."""
    described = json.dumps(describe(version)).encode()
    authzen = json.dumps(authzen_metadata(url)).encode()

    def ready(_: bytes) -> tuple[int, bytes, bytes]:
        if service.is_ready:
            return 200, _JSON, b'{"status": "ready"}'
        why = "the sidecar is ending" if service.is_ending else "the bus is away"
        return 503, _JSON, json.dumps({"status": "not ready", "why": why}).encode()

    return {
        "/openapi.json": lambda _: (200, _JSON, described),
        "/healthz": lambda _: (200, _JSON, b'{"status": "alive"}'),
        "/readyz": ready,
        "/metrics": _expose,
        "/.well-known/authzen-configuration": lambda _: (200, _JSON, authzen),
    }


def authzen_metadata(url: str) -> dict[str, Any]:
    """Return AuthZEN's metadata of a decision point."""
    return {
        "policy_decision_point": url,
        "access_evaluation_endpoint": f"{url}/access/v1/evaluation",
        "access_evaluations_endpoint": f"{url}/access/v1/evaluations",
    }


def _expose(accept: bytes) -> tuple[int, bytes, bytes]:
    kind, body = metrics.exposition(accept.decode("latin-1"))
    return 200, kind.encode(), body
