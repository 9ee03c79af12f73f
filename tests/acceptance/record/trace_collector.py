"""A collector of traces: an HTTP server on loopback that takes OTLP and decodes it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

__all__ = ["Collected", "Told", "collector"]


@dataclass(frozen=True)
class Told:
    """One span as it was exported."""

    service: str
    name: str
    trace: str
    id: str
    parent: str
    kind: int
    status: int
    message: str
    events: int
    attributes: dict[str, Any]


@dataclass
class Collected:
    """What came in so far."""

    url: str = ""
    raw: list[bytes] = field(default_factory=list)

    @property
    def env(self) -> dict[str, str]:
        """The environment that has a command export to here."""
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": self.url}

    @property
    def soon(self) -> dict[str, str]:
        """The same, soon after each span: for what goes on running."""
        return {**self.env, "OTEL_BSP_SCHEDULE_DELAY": "50"}

    @property
    def spans(self) -> list[Told]:
        return [span for body in list(self.raw) for span in _spans(body)]

    def named(self, name: str) -> list[Told]:
        return [span for span in self.spans if span.name == name]


def _spans(body: bytes) -> Iterator[Told]:
    for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
        about = _values(resource.resource.attributes)
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield Told(
                    str(about["service.name"]),
                    span.name,
                    span.trace_id.hex(),
                    span.span_id.hex(),
                    span.parent_span_id.hex(),
                    span.kind,
                    span.status.code,
                    span.status.message,
                    len(span.events),
                    _values(span.attributes),
                )


def _values(attributes: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}


@contextmanager
def collector() -> Iterator[Collected]:
    """A collector for the length of a block."""
    collected = Collected()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            collected.raw.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collected.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield collected
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
