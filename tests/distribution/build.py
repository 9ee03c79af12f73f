"""Builds what a release would upload, into dist/, and tries it where nothing of this checkout is seen.

    python tests/distribution/build.py                 all extras of pyproject.toml
    python tests/distribution/build.py base serve      one, or several

The standard tools build and check sdist and wheel. The wheel is installed into a bare environment for each
extra and once without, the sdist once, with the newest versions that are allowed. `smokes.py` then shows that
each does what it promises. Two environments are there at a time, below the temporary directory.

Exit codes: 0 all works, 1 something does not, 3 packages could not be had (nothing else failed).
"""

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
import tomllib
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "acceptance" / "fleet"))
from own_environments import ROOT, environment, make_environment, run
from smokes import NAMES
from toolgate_bus.server.embedded import private_server

SMOKES = Path(__file__).resolve().with_name("smokes.py")
DIST = ROOT / "dist"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SDIST = "sdist"
INSTALL_S, SMOKE_S = 900.0, 300.0
ALL_S = 3600.0
"""What is not begun after that is not tried."""


def build():
    """Make dist/ anew, and have it checked; the wheel and the sdist."""
    DIST.mkdir(exist_ok=True)
    for old in (*DIST.glob("toolgate_bus-*.whl"), *DIST.glob("toolgate_bus-*.tar.gz")):
        old.unlink()
    with tempfile.TemporaryDirectory() as folder:
        python = make_environment(Path(folder) / "tools", "build", "twine", timeout=INSTALL_S)
        run(python, "-m", "build", "--outdir", DIST, ROOT, cwd=folder, timeout=INSTALL_S)
        (wheel,), (sdist,) = DIST.glob("*-py3-none-any.whl"), DIST.glob("*.tar.gz")
        run(python, "-m", "twine", "check", "--strict", wheel, sdist, cwd=folder)
    _compare(wheel)
    return wheel, sdist


def _compare(wheel):
    """The wheel was built from the sdist: it has all files of the packages, and no others."""
    packages = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    kept = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *packages],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    wanted = {file.partition("/")[2] for file in kept.stdout.splitlines() if (ROOT / file).is_file()}
    with zipfile.ZipFile(wheel) as opened:
        found = {name for name in opened.namelist() if ".dist-info/" not in name}
    assert found == wanted, f"{wheel.name} and the checkout differ: {sorted(found ^ wanted)[:5]}"


def hold(name, what, url, begun):
    """Install that into an environment of its own and try it; a line, and an exit code."""
    if time.monotonic() - begun > ALL_S:
        return "not tried: out of time", 1
    with tempfile.TemporaryDirectory(prefix="tg-") as folder:
        work = Path(folder) / "work"
        (work / "runtime").mkdir(parents=True, mode=0o700)
        start = time.monotonic()
        try:
            python = make_environment(Path(folder) / "venv", what, timeout=INSTALL_S)
        except (AssertionError, subprocess.TimeoutExpired) as error:
            return f"not installed: {_last(str(error))}", 3
        installed = time.monotonic()
        # On PATH is what the environment brings, and nothing else: no server, no compiler, no other toolgate.
        own = {"PATH": str(python.parent), "HOME": str(work), "XDG_RUNTIME_DIR": str(work / "runtime")}
        env = environment() | own | {"TOOLGATE_REDIS_URL": url, "TOOLGATE_NAMESPACE": name}
        command = [python, "-I", SMOKES, "base" if name == SDIST else name]
        try:
            tried = subprocess.run(
                command, cwd=work, env=env, capture_output=True, text=True, timeout=SMOKE_S, check=False
            )
        except subprocess.TimeoutExpired:
            return f"does not work: not done in {SMOKE_S:.0f} s", 1
        seconds = f"installed in {installed - start:.0f} s, tried in {time.monotonic() - installed:.0f} s"
        return (f"does not work:\n{tried.stderr}", 1) if tried.returncode else (f"works ({seconds})", 0)


def _last(text):
    lines = [line for line in text.splitlines() if line and not line.startswith("WARNING")]
    return " ".join(lines[-2:])


def main():
    extras = PROJECT["project"]["optional-dependencies"]
    assert set(NAMES) == {"base", *extras}, f"smokes.py and pyproject.toml: {set(NAMES) ^ {'base', *extras}}"
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("extras", nargs="*", metavar="EXTRA", help=f"of {', '.join((SDIST, *NAMES))}")
    asked = parser.parse_args().extras or [SDIST, *NAMES]
    if unknown := set(asked) - {SDIST, *NAMES}:
        parser.error(f"there is no {', '.join(sorted(unknown))}")
    begun = time.monotonic()
    print("building …", flush=True)
    wheel, sdist = build()
    print(f"dist/{wheel.name}, dist/{sdist.name}: {time.monotonic() - begun:.0f} s", flush=True)
    codes = []

    def tell(name):
        what = {SDIST: sdist, "base": wheel}.get(name, f"{wheel}[{name}]")
        line, code = hold(name, what, server.url, begun)
        codes.append(code)
        print(f"{len(codes):2}/{len(asked)} {name:16} {line}", flush=True)

    with private_server() as server, ThreadPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        list(pool.map(tell, asked))
    print(f"{codes.count(0)} of {len(asked)} work, {time.monotonic() - begun:.0f} s", flush=True)
    return 1 if 1 in codes else max(codes)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
    sys.exit(130)
