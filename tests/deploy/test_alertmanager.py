"""A scheduler is killed, and somebody is told: a real fleet, Prometheus, Alertmanager and webhook."""

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from fleet_for_tests import running_fleet, until
from free_ports import find_free_port
from prometheus_for_tests import Prometheus
from promql_for_tests import DEPLOY, program

pytestmark = [pytest.mark.system, pytest.mark.timeout(240)]


@contextmanager
def webhook() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Its address, and the bodies that were posted to it."""
    posted: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            posted.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/", posted
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def alertmanager(directory: Path, url: str) -> Iterator[str]:
    """Its address; the config is ours, but for where the webhook is."""
    config = yaml.safe_load((DEPLOY / "prometheus" / "alertmanager.yml").read_text())
    (receiver,) = config["receivers"]
    receiver["webhook_configs"][0]["url"] = url
    file, address = directory / "alertmanager.yml", f"127.0.0.1:{find_free_port()}"
    file.write_text(yaml.safe_dump(config))
    words = (
        f"--config.file={file}",
        f"--storage.path={directory / 'alertmanager'}",
        f"--web.listen-address={address}",
        "--cluster.listen-address=",
    )
    with (directory / "alertmanager.log").open("wb") as log:
        child = subprocess.Popen(
            [program("prometheus-alertmanager"), *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        try:
            yield address
        finally:
            child.kill()
            child.wait()


def test_a_webhook_is_told_which_scheduler_was_killed(tmp_path):
    program("prometheus")
    program("prometheus-alertmanager")
    with ExitStack() as stack:
        url, posted = stack.enter_context(webhook())
        address = stack.enter_context(alertmanager(tmp_path, url))
        fleet = stack.enter_context(running_fleet(tmp_path))
        port = {name: f"127.0.0.1:{number}" for name, number in fleet.ports.items()}
        targets = {
            "toolgate-exporter": [port.pop("exporter")],
            "toolgate-notify": [port.pop("notify")],
            "toolgate-scheduler": list(port.values()),
        }
        prometheus = Prometheus(
            tmp_path / "watch", find_free_port(), targets, quick=True, alertmanager=address
        )
        stack.callback(prometheus.end)
        prometheus.ready()
        seen = 'toolgate_scheduler_replicas{scheduler="guard"}'
        until(lambda: prometheus.query(seen), "the guard is seen alive")
        fleet.agents("steady")
        fleet.kill("guard")

        def told() -> list[dict[str, Any]]:
            return [
                one
                for body in posted
                for one in body["alerts"]
                if one["labels"]["alertname"] == "ToolgateSchedulerGone"
            ]

        log = tmp_path / "alertmanager.log"
        alert = until(told, "the webhook is told", 90, lambda: (prometheus.fired(), log.read_text()))[0]
        assert alert["labels"]["scheduler"] == "guard"
        assert alert["labels"]["severity"] == "warning"
        assert alert["labels"]["namespace"] == "watched"
        assert alert["status"] == "firing"
        assert "guard" in alert["annotations"]["summary"]
        assert "toolgate " in alert["annotations"]["runbook"]
