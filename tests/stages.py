"""Run what `make test` runs: the pure tests in three processes, beside those with servers in four.

    python tests/stages.py [BEGAN]

Tests with servers wait most of their time, and the pure ones compute meanwhile. The output of the pure ones
comes at the end, then the time since BEGAN, in seconds since the epoch: `make` counts its installation too.
"""

import compileall
import re
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("bus", "orchestrator", "schedulers")
PYTEST = (sys.executable, "-m", "pytest", "-q", "--durations=10", "--durations-min=1")
RARELY_LOADED = re.compile(
    "/(anthropic|apprise|cryptography|google|grafana_foundation_sdk|importlinter|markdown|mypyc?|oauthlib|openai|pip"
    "|playwright|pygments|pymdownx|ruamel|setuptools|trio|zensical)/|/tests?/"
)
"""Libraries of which one process loads something, or none: it compiles what it needs itself."""
PURE = ("-m", "pure and not system", "-n", "3")
# In the order of conftest: the files that take longest begin, whatever the number of their tests.
BY_FILE = ("--dist", "loadfile", "--no-loadscope-reorder")
WITH_SERVERS = (
    "-m",
    "not pure and not system and not source",
    "-n",
    "4",
    "--dist",
    "loadfile",
    "--no-loadscope-reorder",
)


def main(began: float) -> int:
    """Run both stages at once; 0 if both are green."""
    # Once for all: else each of seven processes compiles the same modules in a fresh clone.
    for package in PACKAGES:
        compileall.compile_dir(ROOT / package, quiet=2, workers=0)
    compileall.compile_dir(sysconfig.get_path("purelib"), quiet=2, workers=0, rx=RARELY_LOADED)
    with (
        tempfile.TemporaryFile() as said,
        subprocess.Popen([*PYTEST, *PURE], stdout=said, stderr=subprocess.STDOUT) as pure,
    ):
        rest = subprocess.run([*PYTEST, *WITH_SERVERS], check=False).returncode
        code = pure.wait()
        said.seek(0)
        print(said.read().decode(errors="replace"), flush=True)
    minutes, seconds = divmod(round(time.time() - began), 60)
    print(f"All of it took {minutes} min {seconds} s.")
    return rest or code


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]) if len(sys.argv) > 1 else time.time()))
