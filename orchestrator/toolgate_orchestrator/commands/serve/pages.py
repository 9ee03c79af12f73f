"""Pages of a sidecar: its description, health, metrics, and where AuthZEN's endpoints are."""

import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema
from toolgate_bus.telemetry import metrics

from toolgate_orchestrator.commands.serve.routes import OPEN_PAGES, PAGES, ROUTES, SidecarRoute
from toolgate_orchestrator.commands.serve.rulings import ProblemResponse
from toolgate_orchestrator.commands.serve.service import SidecarService

_REF: Final = "#/components/schemas/{model}"
_ERRORS: Final = {
    "400": "The body or a field of it is wrong; the text says which",
    "401": "The token is missing or wrong",
    "404": "Nothing is known by that id or token, or the path does not exist",
    "408": "The request came too slowly",
    "409": "Something else was reported before",
    "413": "The body is too large",
    "415": "The body is not application/json",
    "429": "There are too many of these at once; see Retry-After",
    "503": "The sidecar has too much to do, or is ending; see Retry-After",
}
_AUTHZEN_ERRORS: Final = ("400", "401", "408", "413", "503")


@cache
def describe(version: str) -> dict[str, Any]:
    """Return the whole document; `version` is the distribution's."""
    models: list[tuple[type[BaseModel], JsonSchemaMode]] = [(ProblemResponse, "serialization")]
    for route in ROUTES.values():
        models.append((route.request, "validation"))
        models += [(model, "serialization") for model in route.response]
    _, schemas = models_json_schema(list(dict.fromkeys(models)), ref_template=_REF)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Toolgate sidecar",
            "version": version,
            "description": "May this tool call run? Schedulers on the bus rule; callers need no bus.",
        },
        "paths": {
            **{path: {"post": _operation(path, route)} for path, route in ROUTES.items()},
            **{path: {"get": _page(path, summary)} for path, summary in PAGES.items()},
        },
        "components": {
            "schemas": schemas.get("$defs", {}),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}, {}],
    }


def _operation(path: str, route: SidecarRoute) -> dict[str, Any]:
    schemas = [_ref(model) for model in route.response]
    told = {"schema": {"type": "string"}} if route.is_authzen else {"schema": _ref(ProblemResponse)}
    kind = "text/plain" if route.is_authzen else "application/problem+json"
    codes = _AUTHZEN_ERRORS if route.is_authzen else tuple(_ERRORS)
    return {
        "operationId": path.strip("/").replace("/", "_"),
        "summary": route.summary,
        "requestBody": {"required": True, "content": {"application/json": {"schema": _ref(route.request)}}},
        "responses": {
            "200": {
                "description": "The answer",
                "content": {
                    "application/json": {"schema": schemas[0] if len(schemas) == 1 else {"anyOf": schemas}}
                },
            },
            **{code: {"description": _ERRORS[code], "content": {kind: told}} for code in codes},
        },
    }


def _page(path: str, summary: str) -> dict[str, Any]:
    open_to_all: dict[str, Any] = {"security": [{}]} if path in OPEN_PAGES else {}
    return {
        "operationId": path.strip("/.").replace("/", "_").replace(".", "_").replace("-", "_"),
        "summary": summary,
        **open_to_all,
        "responses": {"200": {"description": "The page"}},
    }


def _ref(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": _REF.format(model=model.__name__)}


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
