"""The built wheel in virtual environments of their own, that see nothing of this checkout."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "-q")


def environment():
    """This one, but for what would lead a Python to this checkout."""
    hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    return {
        name: value
        for name, value in os.environ.items()
        if name not in hidden and not name.startswith("TOOLGATE_")
    }


def run(*command, **options):
    """Run to the end; what it wrote to stdout."""
    ended = subprocess.run(
        list(map(str, command)), env=environment(), capture_output=True, text=True, check=False, **options
    )
    assert ended.returncode == 0, f"{command}\n{ended.stdout}\n{ended.stderr}"
    return ended.stdout


def environments(shared):
    """The wheel installed twice: without extras, and with `[orchestrator]`; the two bin directories.

    Made once below that directory, which all workers of a run have in common.
    """
    directory = shared / "own-environments"
    directory.mkdir(exist_ok=True)
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (directory / "made").exists():
            _make(directory)
            (directory / "made").touch()
    return directory / "scheduler" / "bin", directory / "agent" / "bin"


def _make(directory):
    run(*PIP, "wheel", "--no-deps", "--wheel-dir", directory / "dist", ROOT, cwd=directory)
    (wheel,) = (directory / "dist").glob("toolgate_bus-*.whl")
    for name, what in (("scheduler", wheel), ("agent", f"{wheel}[orchestrator]")):
        make_environment(directory / name, "-c", ROOT / "constraints.txt", what)


def make_environment(directory, *what, **options):
    """A new virtual environment with that installed; its Python. This environment's pip serves it."""
    run(sys.executable, "-m", "venv", "--without-pip", "--clear", directory)
    python = directory / "bin" / "python"
    run(*PIP, "--python", python, "install", *what, cwd=directory, **options)
    return python


def missing(bin_directory, module):
    code = f"import importlib.util as u; print(u.find_spec({module!r}) is None)"
    return run(bin_directory / "python", "-I", "-c", code).strip() == "True"
