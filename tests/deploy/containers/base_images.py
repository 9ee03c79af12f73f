"""The images on which the fleet of deploy/ is built: pulled, or without a registry made of Debian's packages.

A stand-in has the name of the real image, its program, its user and its folders, and no more; that of Grafana
answers and draws nothing. Prometheus and Alertmanager are this machine's programs.
"""

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from container_engine import CACHE, Engine
from debian_packages import NotHereError, source_line

DEPLOY = Path(__file__).parents[3] / "deploy"
PACKAGES = (
    "ca-certificates,python3,python3-venv,python3-pip,valkey-server,valkey-sentinel,valkey-tools,curl,"
    "busybox-static"
)
BASE = "toolgate-tests/debian:trixie"
PULL_S, MAKE_S, BUILD_S = 20.0, 500.0, 120.0
LEFT_OUT = [f"--dpkgopt=path-exclude=/usr/share/{one}/*" for one in ("doc", "man", "locale")]
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
TEMPLATES = Path("/usr/share/prometheus/alertmanager")

ANSWERS = (
    "import signal; from http.server import *; signal.signal(15, lambda *_: exit()); "
    "HTTPServer(('', 3000), SimpleHTTPRequestHandler).serve_forever()"
)
STAND_INS = {
    "python": """
RUN ln -s /usr/bin/python3 /usr/local/bin/python && rm -f /usr/lib/python3*/EXTERNALLY-MANAGED
""",
    "valkey/valkey": """
RUN rm -rf /etc/valkey && mkdir -p /etc/valkey /data && chown 999:1000 /data && ln -sf /bin/busybox /bin/sh
WORKDIR /data
VOLUME /data
""",
    "prom/prometheus": """
COPY prometheus /bin/
RUN mkdir -p /etc/prometheus /prometheus && chown 65534:65534 /prometheus
USER 65534:65534
WORKDIR /prometheus
ENTRYPOINT ["/bin/prometheus"]
""",
    "prom/alertmanager": """
COPY prometheus-alertmanager /bin/
COPY alertmanager /usr/share/prometheus/alertmanager
RUN mkdir -p /etc/alertmanager /alertmanager && chown 65534:65534 /alertmanager
USER 65534:65534
WORKDIR /alertmanager
ENTRYPOINT ["/bin/prometheus-alertmanager"]
""",
    "grafana/grafana": f"""
RUN mkdir -p /var/lib/grafana /etc/grafana && chown 472:0 /var/lib/grafana
USER 472
WORKDIR /tmp
ENTRYPOINT ["python3", "-c", "{ANSWERS}"]
""",
    "curlimages/curl": """
ENTRYPOINT ["curl"]
""",
}


def image_names() -> list[str]:
    """All that compose.yaml runs and the Dockerfile is built on, but what we build ourselves."""
    composed = re.findall(r"^    image: (\S+)$", (DEPLOY / "compose.yaml").read_text(), re.MULTILINE)
    built = re.findall(r"^FROM (\S+)", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    return sorted({name for name in (*composed, *built) if not name.startswith("toolgate")})


def provide_images(engine: Engine) -> None:
    """Have all of them there; raises NotHereError where they can neither be pulled nor made."""
    missing = [name for name in image_names() if not engine.docker("images", "-q", name)]
    if missing and _is_pulled(engine, missing[0], PULL_S):
        missing = [name for name in missing[1:] if not _is_pulled(engine, name, BUILD_S)]
    if missing:
        _import_base(engine)
        for name in missing:
            _build(engine, name)


def _is_pulled(engine: Engine, name: str, limit_s: float) -> bool:
    try:
        engine.docker("pull", "--quiet", name, limit_s=limit_s)
    except (AssertionError, subprocess.TimeoutExpired):
        return False
    return True


def _import_base(engine: Engine) -> None:
    if not engine.docker("images", "-q", BASE):
        engine.docker("import", str(_root_file_system()), BASE, limit_s=BUILD_S)


def _root_file_system() -> Path:
    """A tar of Debian with what the stand-ins need, made once."""
    made = CACHE / "root.tar"
    if not made.exists():
        if shutil.which("mmdebstrap") is None:
            raise NotHereError("images cannot be pulled, and mmdebstrap is not here to make them")
        partial = made.with_suffix(".partial.tar")
        words = ["mmdebstrap", "--variant=minbase", f"--include={PACKAGES}", *LEFT_OUT]
        words += ["--dpkgopt=force-unsafe-io", "--aptopt=Acquire::Languages none"]
        words += ['--aptopt=APT::Install-Recommends "false"', "trixie", str(partial), source_line("trixie")]
        ran = subprocess.run(words, capture_output=True, text=True, timeout=MAKE_S, check=False)
        if ran.returncode:
            raise NotHereError(f"mmdebstrap: {ran.stderr.strip()[-400:]}")
        partial.replace(made)
    return made


def _build(engine: Engine, name: str) -> None:
    repository = name.partition(":")[0]
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        steps = [f"FROM {BASE}"]
        if repository == "python":
            steps += _as_this_machine_installs(place)
        for program in re.findall(r"COPY (\S+) /bin/", STAND_INS[repository]):
            found = shutil.which(program)
            if found is None:
                raise NotHereError(f"{name} cannot be pulled, and {program} is not here to stand in for it")
            shutil.copy(found, place / program)
        (place / "alertmanager").mkdir()
        if TEMPLATES.exists():
            shutil.copytree(TEMPLATES, place / "alertmanager", dirs_exist_ok=True)
        (place / "Dockerfile").write_text("\n".join(steps) + STAND_INS[repository])
        engine.docker("build", "--quiet", "--network=none", "--tag", name, folder, limit_s=BUILD_S)


def _as_this_machine_installs(place: Path) -> list[str]:
    """Steps that give pip in the image this machine's index and certificates."""
    steps = []
    if CERTIFICATES.exists():
        shutil.copy(CERTIFICATES, place / "certificates.crt")
        steps.append(f"COPY certificates.crt {CERTIFICATES}")
    index = (
        os.environ.get("PIP_INDEX_URL")
        or subprocess.run(
            ["python3", "-m", "pip", "config", "get", "global.index-url"],
            capture_output=True,
            text=True,
            check=False,
        ).stdout.strip()
    )
    lines = [
        "[global]",
        f"cert = {CERTIFICATES}",
        "timeout = 60",
        *([f"index-url = {index}"] if index else []),
    ]
    (place / "pip.conf").write_text("\n".join(lines) + "\n")
    return [*steps, "COPY pip.conf /etc/pip.conf"]
