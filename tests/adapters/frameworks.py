"""Holds adapters to the kit, each in a virtual environment of its own with the framework's newest release.

    python tests/adapters/frameworks.py             all that can be had
    python tests/adapters/frameworks.py langchain    one, or several
    … --keep                                       write what was seen to tests/adapters/results

Frameworks do not resolve beside each other. An environment is made once, and again when its packages change
or are a day old; it is found below .cache/adapters, or $TOOLGATE_ADAPTER_VENVS. A framework is the file
`NAME_conformance.py` here, and the extra of that name (`-` for `_`, `,` for `__`) in pyproject.toml.

Exit codes: 0 all are kept, 1 one is not, 3 packages could not be had (nothing else failed).
"""

import argparse
import fcntl
import hashlib
import os
import subprocess
import sys
import time
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
VENVS = Path(os.environ.get("TOOLGATE_ADAPTER_VENVS") or ROOT / ".cache" / "adapters")
RESULTS = HERE / "results"
PACKAGES = ("bus", "orchestrator", "schedulers")
BESIDE = ("pytest", "pytest-timeout")
FRESH_S = 86_400.0
INSTALL_S = 900.0


def names():
    return sorted(file.name.removesuffix("_conformance.py") for file in HERE.glob("*_conformance.py"))


def extra_of(name):
    """As pip takes it: `a__b` is a file for two frameworks beside each other."""
    return name.replace("__", ",").replace("_", "-")


class NoPackages(Exception):  # noqa: N818 - not an error of ours
    """The framework cannot be had here."""


def environment_of(name, install_s=INSTALL_S):
    """The Python of its environment, made or renewed in that time where it has to be; raises NoPackages."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    unknown = set(extra_of(name).split(",")) - set(project["optional-dependencies"])
    assert not unknown, f"pyproject.toml has no extra {unknown}"
    text = repr((project, BESIDE, sys.version_info[:2]))
    digest = hashlib.sha256(text.encode()).hexdigest()
    venv = VENVS / name
    stamp, python = venv / "installed", venv / "bin" / "python"
    VENVS.mkdir(parents=True, exist_ok=True)
    with (VENVS / f"{name}.lock").open("w") as lock:  # adapters and examples are tested side by side
        fcntl.flock(lock, fcntl.LOCK_EX)
        if stamp.exists() and stamp.read_text() == digest and time.time() - stamp.stat().st_mtime < FRESH_S:
            return python
        if not python.exists():
            _run([sys.executable, "-m", "venv", "--without-pip", venv], install_s)
        what = [f"{ROOT}[{extra_of(name)},embedded]", *BESIDE]
        pip = [
            sys.executable,
            "-m",
            "pip",
            "--python",
            python,
            "install",
            "-q",
            "--disable-pip-version-check",
        ]
        _run([*pip, "--upgrade", "--upgrade-strategy=eager", "-e", *what], install_s)
        stamp.write_text(digest)
        return python


def go_on_in(name, absent):
    """Start this program anew in an environment that has the absent doors; say so where it cannot be made."""
    try:
        python = environment_of(name)
    except NoPackages as error:
        print(f"not tried, as their packages cannot be had: {', '.join(absent)}: {error}", file=sys.stderr)
        return
    path = os.pathsep.join(str(ROOT / one) for one in PACKAGES)
    os.execve(python, [str(python), *sys.argv], {**os.environ, "PYTHONPATH": path})


def hold(name, *, where=None, keep=False, quiet=False, install_s=INSTALL_S):
    """Run the kit on one, as this checkout has it; its exit code. Raises NoPackages.

    `where` is whose environment it runs in, where that has what this one needs as well.
    """
    python = environment_of(where or name, install_s)
    env = {key: value for key, value in os.environ.items() if not key.startswith(("TOOLGATE_", "PYTEST_"))}
    env["PYTHONPATH"] = os.pathsep.join(str(ROOT / one) for one in PACKAGES)  # whose ever the environment is
    if keep:
        RESULTS.mkdir(exist_ok=True)
        env["TOOLGATE_CONFORMANCE"] = str(RESULTS)
    words = ["-m", "pytest", "-c", HERE / "conformance.ini", "-q", "-rs", HERE / f"{name}_conformance.py"]
    output = {"capture_output": True, "text": True} if quiet else {}
    return subprocess.run([python, *words], cwd=HERE, env=env, check=False, **output)


def _run(command, timeout_s):
    words = list(map(str, command))
    try:
        ended = subprocess.run(words, capture_output=True, text=True, check=False, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        raise NoPackages(f"it took more than {timeout_s:.0f} s") from None
    if ended.returncode:
        said = [line for line in ended.stderr.splitlines() if not line.startswith("WARNING")]
        raise NoPackages("\n".join(said[-5:]))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("frameworks", nargs="*", metavar="NAME", help=f"of {', '.join(names())}")
    parser.add_argument("--keep", action="store_true", help="write what was seen to tests/adapters/results")
    asked = parser.parse_args()
    if unknown := set(asked.frameworks) - set(names()):
        parser.error(f"there is no {', '.join(sorted(unknown))}: there are {', '.join(names())}")
    broken, absent = [], []
    for name in asked.frameworks or names():
        print(f"── {name}", flush=True)
        try:
            if hold(name, keep=asked.keep).returncode:
                broken.append(name)
        except NoPackages as error:
            absent.append(name)
            print(f"skipped: the packages of [{extra_of(name)}] cannot be had here:\n{error}", flush=True)
    for what, those in (("not kept", broken), ("skipped, no packages", absent)):
        if those:
            print(f"{what}: {', '.join(those)}", flush=True)
    return 1 if broken else 3 if absent else 0


if __name__ == "__main__":
    sys.exit(main())
