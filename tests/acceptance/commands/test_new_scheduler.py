"""`toolgate scheduler new`: three commands from nothing to a verdict on a real call, as its README says."""

import re
import shlex
import signal

import pytest
from documents import page, sample, text_of

pytestmark = [pytest.mark.acceptance, pytest.mark.system]


def blocks(readme, language):
    return re.findall(rf"^```{language}\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)


class Newcomer:
    """Types commands as they stand; `cd` is remembered."""

    def __init__(self, folder, process):
        self.folder, self._process = folder, process

    def types(self, line):
        """Run what the line says, one after the other; gives the last, started."""
        running = None
        for command in line.split(" && "):
            words = shlex.split(command)
            if words[0] == "cd":
                assert running is None or running.wait() == 0, running.stderr
                self.folder = self.folder / words[1]
                assert self.folder.is_dir()
            else:
                running = self._process(*words, cwd=self.folder)
        return running


@pytest.fixture
def newcomer(tmp_path, process):
    return Newcomer(tmp_path, process)


@pytest.fixture
def made(newcomer):
    """The package, made by the command that its README names."""
    command = "toolgate scheduler new my-guard --description 'Keeps files.'"
    assert newcomer.types(command).wait() == 0
    return newcomer.folder / "my-guard"


async def test_three_commands_lead_from_nothing_to_a_verdict_on_a_real_call(newcomer, tmp_path, wait_until):
    first = "toolgate scheduler new my-guard && cd my-guard"
    newcomer.types(first)
    readme = (newcomer.folder / "README.md").read_text()
    made, ruling = [block.splitlines() for block in blocks(readme, "sh")[:2]]
    assert made[0] == first
    assert len(made) + len(ruling) == 3
    scheduler = newcomer.types(made[1])
    await wait_until(lambda: "rules on" in scheduler.stderr or not scheduler.alive, timeout=30)
    assert "my-guard (replica" in scheduler.stderr, scheduler.stderr
    agent = newcomer.types(ruling[0])
    assert agent.wait(60) == 0, agent.stderr
    (said,) = blocks(readme, "text")
    assert agent.stdout == said

    config = newcomer.folder / "config.yaml"
    config.write_text(config.read_text().replace("deleting is for people", "not on a Friday"))
    scheduler.signal(signal.SIGHUP)
    await wait_until(lambda: "was reloaded" in scheduler.stderr)
    again = newcomer.types(ruling[0])
    assert again.wait(60) == 0
    assert "not on a Friday" in again.stdout


def test_its_own_test_passes(made, process):
    running = process("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=made)
    assert running.wait(60) == 0, running.stdout
    assert "2 passed" in running.stdout


@pytest.fixture
def without_pytest_asyncio(tmp_path):
    """Environment where pytest is all that was added: there, the plugin of Amplifier's kernel raises."""
    absent = tmp_path / "absent"
    absent.mkdir()
    (absent / "pytest_asyncio.py").write_text("raise ModuleNotFoundError('pytest_asyncio')\n")
    return {"PYTHONPATH": str(absent)}


def test_its_own_test_passes_where_pytest_is_all_that_was_added(made, process, without_pytest_asyncio):
    options = ("-q", "-p", "no:cacheprovider", "-p", "no:asyncio")
    running = process("python", "-m", "pytest", *options, cwd=made, env=without_pytest_asyncio)
    assert running.wait(60) == 0, running.stdout + running.stderr
    assert "2 passed" in running.stdout


def test_its_test_fails_when_its_scheduler_does_not_deny(made, process):
    module = made / "src" / "my_guard" / "__init__.py"
    module.write_text(module.read_text().replace("return Deny(", "return Continue("))
    running = process("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=made)
    assert running.wait(60) == 1
    assert "2 failed" in running.stdout


def test_its_configuration_is_refused_by_name_where_it_is_wrong(made, newcomer):
    (made / "config.yaml").write_text("forbiden: [x]")
    newcomer.folder = made
    wrong = newcomer.types("toolgate scheduler run my_guard:MyGuard --config config.yaml")
    assert wrong.wait() == 2
    assert "forbiden: unknown key; allowed: forbidden, reason; did you mean forbidden?" in wrong.stderr


def test_it_says_what_it_wrote_and_how_to_start_it_and_never_overwrites(newcomer, process, tmp_path):
    command = "toolgate scheduler new my-guard --directory 'a folder'"
    written = newcomer.types(command)
    assert written.wait() == 0
    assert "cd 'a folder' && toolgate scheduler run my_guard:MyGuard --config config.yaml" in written.stdout
    told = re.search(r"^Wrote a folder: (.*)\.$", written.stdout, re.MULTILINE)[1].split(", ")
    folder = tmp_path / "a folder"
    assert sorted(told) == sorted(str(path.relative_to(folder)) for path in folder.rglob("*.*"))
    again = newcomer.types(command)
    assert again.wait() == 2
    assert "exists already: nothing was written" in again.stderr


@pytest.mark.timeout(240)
def test_the_manuals_tests_run_with_what_they_say_to_install(process, tmp_path):
    text = text_of(page("write-a-scheduler"))
    code = re.findall(r"^```(?:python|sh)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    rules = next(block for block in code if "class Limiter" in block)
    test = next(block for block in code if "import Limiter" in block)
    (tmp_path / "my_rules.py").write_text(rules)
    (tmp_path / "test_my_rules.py").write_text(test)
    (tmp_path / "my_adapter_test.py").write_text(sample("my_adapter_test.py").text)
    # What `make demo` does not install is not there: a plugin of another package asks for it.
    (tmp_path / "pytest_asyncio.py").write_text("raise ModuleNotFoundError('No module named pytest_asyncio')")
    of_the_kit = re.findall(r"^```sh\n(.*?)^```", text_of(page("frameworks")), re.MULTILINE | re.DOTALL)
    for name, words in (("test_my_rules.py", ()), ("my_adapter_test.py", ("-k", "deny"))):
        install, run = next(block for block in (*code, *of_the_kit) if f" {name}\n" in block).splitlines()
        assert install == "python -m pip install pytest", "nothing but pytest, which is here"
        tested = process(*run.split(), *words, "-p", "no:asyncio", "-p", "no:cacheprovider", cwd=tmp_path)
        assert tested.wait(90) == 0, tested.stdout + tested.stderr
        assert "1 passed" in tested.stdout
