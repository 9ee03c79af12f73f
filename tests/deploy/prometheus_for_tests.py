"""A real Prometheus, started by a test on a loopback port and ended by its process id.

It runs with the jobs and rules of deploy/prometheus; only the targets are the test's, and the intervals
are a second.
"""

import json
import subprocess
import time
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
import yaml
from promql_for_tests import DEPLOY, RULES, program, quickened

Labels = dict[str, str]


class Prometheus:
    """One server; `targets` are the addresses of each job, `alertmanager` that of who is told of alerts."""

    def __init__(
        self,
        directory: Path,
        port: int,
        targets: dict[str, list[str]],
        *,
        quick: bool,
        alertmanager: str = "",
    ) -> None:
        self.url = f"http://127.0.0.1:{port}"
        directory.mkdir()
        for file in RULES:
            text = file.read_text()
            (directory / file.name).write_text(quickened(text) if quick else text)
        config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
        config["global"] = dict.fromkeys(config["global"], "1s")
        config["rule_files"] = [str(directory / "*.yml")]
        (told,) = config["alerting"]["alertmanagers"]
        told["static_configs"] = [{"targets": [alertmanager] if alertmanager else []}]
        for job in config["scrape_configs"]:
            del job["static_configs" if "static_configs" in job else "dns_sd_configs"]
            job["static_configs"] = [{"targets": targets.get(job["job_name"], [])}]
        (directory / "prometheus.yaml").write_text(yaml.safe_dump(config))
        self._log = (directory / "log").open("wb")
        self._process = subprocess.Popen(
            [
                program("prometheus"),
                f"--config.file={directory / 'prometheus.yaml'}",
                f"--storage.tsdb.path={directory / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
                "--enable-feature=exemplar-storage",
                "--log.level=warn",
            ],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
        )

    def ready(self, timeout: float = 30.0) -> None:
        """Wait until it answers."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                with urlopen(f"{self.url}/-/ready", timeout=5):
                    return
            except (URLError, ConnectionError):
                if self._process.poll() is not None or time.monotonic() > deadline:
                    pytest.fail(f"no Prometheus: {Path(self._log.name).read_text()}")
                time.sleep(0.05)

    def query(self, expr: str) -> list[tuple[Labels, float]]:
        """An instant query, as of now; a scalar has no labels."""
        found = self._get("query", query=expr)
        if found["resultType"] == "scalar":
            return [({}, float(found["result"][1]))]
        return [(one["metric"], float(one["value"][1])) for one in found["result"]]

    def number(self, expr: str) -> float | None:
        """The only value of an instant query, or None where there is none."""
        found = self.query(expr)
        assert len(found) <= 1, found
        return found[0][1] if found else None

    def by(self, label: str, expr: str) -> dict[str, float]:
        """The values of an instant query by one label."""
        return {labels.get(label, ""): value for labels, value in self.query(expr)}

    def rules(self) -> list[dict[str, Any]]:
        """Every rule, with its health."""
        return [rule for group in self._get("rules")["groups"] for rule in group["rules"]]

    def fired(self, since: float = 0.0) -> dict[str, list[Labels]]:
        """Alerts that fired since a moment of `time.time`, by name, with the labels that they fired with."""
        found: dict[str, list[Labels]] = {}
        window = min(1800, max(1, int(time.time() - since)))
        for labels, _ in self.query(f'last_over_time(ALERTS{{alertstate="firing"}}[{window}s])'):
            found.setdefault(labels["alertname"], []).append(labels)
        return found

    def has_fired(self, alert: str, **labels: str) -> bool:
        """Whether an alert fired with these labels, and perhaps others."""
        return any(labels.items() <= one.items() for one in self.fired().get(alert, ()))

    def end(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
        self._log.close()

    def _get(self, path: str, **words: str) -> Any:
        with urlopen(f"{self.url}/api/v1/{path}?{urlencode(words)}", timeout=20) as answer:
            return json.load(answer)["data"]
