"""Break the code on purpose, one place at a time, and see that the tests notice.

    python tests/mutants.py            all of them: `make mutants`
    python tests/mutants.py reader     those in whose name or truth the word occurs
    python tests/mutants.py options    each option of each shipped scheduler, as if nobody had written it

Each mutation is a textual change to a copy of the checkout in a temporary directory, and names the
tests that must go red under it; the copy is found green first. Ends with 1 if a mutation stays green,
or cannot be made because the text it changes is no longer there. The truths are those that the
acceptance tests show; their numbers stand beside each mutation.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "schedulers" / "shipped"))
sys.path.insert(0, str(Path(__file__).parent))

from mutation import BUS, Mutant, path_of
from options_tested import CONFIGS, shown_by

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("bus", "orchestrator", "schedulers")
TIME_LIMIT = 40
"""Seconds for one test: a mutation may well make it hang."""


def read_mutations() -> tuple[Mutant, ...]:
    """Those that stand beside the tests that notice: `mutations_*.py`, each with its MUTANTS."""
    found: list[Mutant] = []
    for file in sorted(Path(__file__).parent.rglob("mutations_*.py")):
        spec = importlib.util.spec_from_file_location(file.stem, file)
        if spec is not None and spec.loader is not None:
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            found += module.MUTANTS
    return tuple(found)


MUTANTS = read_mutations()
WITHOUT = """
        def without(at: Any, path: list[str]) -> Any:
            head, *rest = path
            if isinstance(at, list):
                return [without(one, rest) for one in at] if head == "*" and rest else at
            if not isinstance(at, dict):
                return at
            if head == "*":
                return {key: without(value, rest) for key, value in at.items()}
            return {
                key: without(value, rest) if key == head else value
                for key, value in at.items()
                if key != head or rest
            }

        if model.__name__ == "CONFIG":
            value = without(value, "OPTION".split("."))
        return model.model_validate(value)
"""
"""Reads a configuration as if one option were not in it."""

IGNORED = tuple(
    Mutant(
        "options",
        f"{scheduler}: {option} is ignored",
        f"{BUS}/config/check.py",
        "        checked = model.model_validate(value)\n",
        WITHOUT.replace("CONFIG", CONFIGS[scheduler]).replace("OPTION", option),
        test,
    )
    for scheduler, option, test in shown_by()
)


def main(words: list[str]) -> int:
    """Run the chosen mutations; 0 if the tests noticed each."""
    if {"-h", "--help"}.intersection(words):
        print(__doc__)
        return 0
    chosen = [one for one in (*MUTANTS, *IGNORED) if all(word in f"{one.truth} {one.name}" for word in words)]
    if not chosen:
        truths = dict.fromkeys(str(one.truth) for one in (*MUTANTS, *IGNORED))
        print(f"No mutation has these words in its name or truth. The truths are: {', '.join(truths)}")
        return 1
    with tempfile.TemporaryDirectory(prefix="tg-mutants-") as directory:
        copy = Path(directory) / "toolgate"
        # Without caches, and without a virtual environment.
        shutil.copytree(
            ROOT, copy, ignore=shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "node_modules")
        )
        problem = found_wrong(copy, chosen)
        if problem:
            print(problem)
            return 1
        print(
            f"{len(chosen)} mutations\n{'truth':>9}  {'result':12} {'seconds':>7}  mutation: test", flush=True
        )
        failed = [one for one in chosen if not survives_not(copy, one)]
    print(f"\n{len(chosen) - len(failed)} of {len(chosen)} went red.")
    return 1 if failed else 0


def found_wrong(copy: Path, chosen: list[Mutant]) -> str | None:
    """Why the mutations cannot be judged: the copy is not what is imported, or is not green."""
    code = (
        "import toolgate_bus, toolgate_orchestrator, toolgate_schedulers as s; print(toolgate_bus.__file__)"
    )
    imported = subprocess.run(
        [sys.executable, "-c", code],
        cwd=copy,
        env=environment(copy),
        capture_output=True,
        text=True,
        check=True,
    )
    if not imported.stdout.startswith(str(copy)):
        return f"The copy is not what is imported, but {imported.stdout.strip()}"
    began = time.monotonic()
    code, said = run_tests(copy, sorted({one.tests for one in chosen}))
    if code != 0:
        return f"The tests are not green before any mutation (exit code {code}):\n{said}"
    print(f"Without a mutation all is green ({time.monotonic() - began:.0f} s).", flush=True)
    return None


def survives_not(copy: Path, mutant: Mutant) -> bool:
    """Make the mutation, run its tests, undo it; True if they went red."""
    began = time.monotonic()
    file = copy / mutant.file
    original = file.read_text()
    if mutant.old not in original:
        result, said = "NOT MADE", f"{mutant.file} does not hold the text to change: {mutant.old!r}"
    else:
        try:
            write(file, original.replace(mutant.old, mutant.new))
            code, said = run_tests(copy, [mutant.tests])
        finally:
            write(file, original)
        # 1 is: tests were run, and some failed. Anything else says nothing about them.
        result = {0: "STILL GREEN", 1: "red"}.get(code, f"BROKEN ({code})")
    seconds = time.monotonic() - began
    print(f"{mutant.truth!s:>9}  {result:12} {seconds:7.1f}  {mutant.name}: {mutant.tests}", flush=True)
    if result not in ("red", "STILL GREEN"):
        print(said)
    return result == "red"


def write(file: Path, text: str) -> None:
    """Replace a file by a version of another time, so that no compiled module of before passes for it."""
    later = file.stat().st_mtime + 10
    file.write_text(text)
    os.utime(file, (later, later))


def run_tests(copy: Path, tests: list[str]) -> tuple[int, str]:
    """pytest's exit code, and the end of what it said."""
    paths = [f"{path_of(file)}{at}{test}" for file, at, test in (one.partition("::") for one in tests)]
    options = ["-x", "-q", "--no-header", "-p", "no:cacheprovider", "-o", f"timeout={TIME_LIMIT}"]
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *paths],
        cwd=copy,
        env=environment(copy),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return ended.returncode, ended.stdout[-4000:]


def environment(copy: Path) -> dict[str, str]:
    """The copy's packages come before the installed ones, in subprocesses too; compiled, beside it."""
    path = os.pathsep.join(str(copy / package) for package in PACKAGES)
    ours = {name: value for name, value in os.environ.items() if not name.startswith("TOOLGATE_")}
    made = {"PYTHONPATH": path, "PYTHONPYCACHEPREFIX": str(copy.parent / "compiled")}
    return ours | made | {"TOOLGATE_EXAMPLES": "50"}  # as on the newest versions


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
