"""What the documents say is true: links lead somewhere, samples run, tables agree with the code."""

import ast
import re
import shlex
import shutil
import tomllib
from collections.abc import Awaitable, Callable, Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer
import yaml
from pydantic import ValidationError
from toolgate_bus.protocol.events import Heard, Hold, ToolSelecting
from toolgate_bus.ruling.round import Round
from toolgate_bus.telemetry import definitions, metrics
from toolgate_orchestrator.gate.config import RedactConfig, SchedulerLimits, ToolgateConfig
from toolgate_orchestrator.gate.ruling import Call as Ruled
from toolgate_orchestrator.gate.ruling import Ruling, denial
from toolgate_orchestrator.turn.hook_scheduler import selecting_payload
from toolgate_orchestrator.turn.loop_config import LoopConfig
from toolgate_orchestrator.turn.messages import Call
from toolgate_orchestrator.turn.tool_call import Refusal

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("[a-z]*/README.md")])
README = ROOT / "README.md"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
TEN = 10
READY = "rules on"

each_document = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda one: str(one.relative_to(ROOT)))
pure = pytest.mark.pure


class Block(NamedTuple):
    """One fenced block."""

    language: str
    text: str

    @property
    def file(self) -> str | None:
        """The file that its first line names, if it names one."""
        named = re.match(r"# (\S+\.(?:py|yaml))\n", self.text)
        return named[1] if named else None


def text_of(document: Path) -> str:
    return document.read_text(encoding="utf-8")


def blocks(text: str) -> list[Block]:
    found = re.findall(r"^( *)```(\w*)\n(.*?)^\1```$", text, re.MULTILINE | re.DOTALL)
    return [Block(language, body) for _, language, body in found]


def section(title: str, document: Path = README) -> str:
    """The text under a heading of the second level."""
    found = re.search(
        rf"^## {re.escape(title)}$(.*?)(?=^## |\Z)", text_of(document), re.MULTILINE | re.DOTALL
    )
    assert found, f"{document.name} has no section {title!r}"
    return found[1]


def prose(text: str) -> str:
    """The text without its fenced blocks."""
    return re.sub(r"^( *)```.*?^\1```$", "", text, flags=re.MULTILINE | re.DOTALL)


def spans(text: str) -> list[str]:
    """What stands in `backquotes`."""
    return [span.replace("\n", " ") for span in re.findall(r"`([^`]+)`", prose(text))]


def rows(text: str) -> list[list[str]]:
    """Cells of the tables' rows whose first cell is one name in backquotes."""
    return [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in text.splitlines()
        if re.match(r"\| `[\w.]+` \|", line)
    ]


# ---------------------------------------------------------------- links and names


def anchors(document: Path) -> set[str]:
    """The anchors that a forge makes of a document's headings."""
    headings = re.findall(r"^#+ (.*)$", prose(text_of(document)), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pure
@each_document
def test_every_link_between_documents_leads_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", prose(text_of(document))):
        if target.startswith("https://"):
            continue
        name, _, anchor = target.partition("#")
        linked = (document.parent / name).resolve() if name else document
        assert linked.is_file(), target
        assert not anchor or anchor in anchors(linked), target


@pure
def test_every_document_can_be_reached_from_the_readme() -> None:
    seen, ahead = set(), [README]
    while ahead:
        document = ahead.pop()
        seen.add(document)
        targets = re.findall(r"\]\(([^)#]+\.md)[^)]*\)", text_of(document))
        linked = {(document.parent / target).resolve() for target in targets if "://" not in target}
        ahead += linked - seen
    assert seen >= set(DOCUMENTS)


@pure
def test_the_architecture_fits_two_pages() -> None:
    assert len(text_of(ROOT / "ARCHITECTURE.md").splitlines()) <= 120


@pure
@each_document
def test_every_python_file_that_is_named_exists(document: Path) -> None:
    files = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("[bdost]*/**/*.py")}
    for span in spans(text_of(document)):
        if not re.fullmatch(r"[\w/]+\.py", span) or span in named_by_samples():
            continue
        assert any(file == span or file.endswith(f"/{span}") for file in files), span


def named_by_samples() -> set[str]:
    """Files that the samples themselves have the reader write."""
    return {block.file for block in blocks(text_of(README)) if block.file} | {"my_rules.py"}


@pure
def test_the_architecture_shows_the_rooms_that_are_checked() -> None:
    contracts = PYPROJECT["tool"]["importlinter"]["contracts"]
    text = text_of(ROOT / "ARCHITECTURE.md")
    for package in ("toolgate_bus", "toolgate_orchestrator", "toolgate_schedulers"):
        layers = next(one["layers"] for one in contracts if one.get("containers") == [package])
        checked = [set(re.findall(r"\w+", layer)) for layer in layers if layer != "__main__"]
        drawn = text.partition(f"\n`{package}`:\n\n```text\n")[2].partition("\n```")[0]
        assert [set(re.split(r"\s{2,}", line)[0].split(" · ")) for line in drawn.splitlines()] == checked


@pure
def test_nothing_of_ours_installs_or_wants_the_program_of_a_stranger() -> None:
    """On the package index `toolgate` is not this project: that is `toolgate-bus`."""
    stranger = re.compile(
        r"""pip install[^\n]*?["' ]toolgate(?!-bus)\b|["']toolgate(\[|\s*[<>=~!]=?\s*[\d$])"""
    )
    assert PYPROJECT["project"]["name"] == "toolgate-bus"
    assert stranger.search('pip install "toolgate[all]"')
    assert stranger.search('dependencies = ["toolgate>=0.1"]')
    found = []
    for file in ROOT.rglob("*"):
        parts = file.relative_to(ROOT).parts
        if file.suffix in {".py", ".md", ".toml", ".tmpl", ".yaml", ".yml", ".txt"} and parts[0][0] != ".":
            if "node_modules" in parts or file == Path(__file__):
                continue
            text = file.read_text(encoding="utf-8", errors="replace")
            found += [f"{'/'.join(parts)}: {one[0]}" for one in stranger.finditer(text)]
    assert found == []


@pure
def test_only_what_a_contract_holds_to_it_says_that_it_is_pure() -> None:
    contracts = PYPROJECT["tool"]["importlinter"]["contracts"]
    held = next(one for one in contracts if one["name"].startswith("What says that it is pure"))
    listed = set(held["source_modules"])
    said = set()
    for folder in ("bus", "orchestrator", "schedulers"):
        for file in (ROOT / folder).glob("toolgate_*/**/*.py"):
            head = file.read_text(encoding="utf-8").split('"""')[1]
            if re.search(r"(^|[.:] |\n)Pure[.:,]", head):
                name = ".".join(file.relative_to(ROOT / folder).with_suffix("").parts)
                said.add(name.removesuffix(".__init__"))
    assert {one for one in said if not any(f"{one}.".startswith(f"{held}.") for held in listed)} == set()


@pure
@each_document
def test_make_targets_extras_and_variables_that_are_named_exist(document: Path) -> None:
    text = text_of(document)
    targets = set(re.findall(r"^([a-z-]+):", text_of(ROOT / "Makefile"), re.MULTILINE))
    code = "\n".join([*spans(text), *(block.text for block in blocks(text) if block.language == "sh")])
    assert set(re.findall(r"^make ([a-z-]+)", code, re.MULTILINE)) <= targets
    extras = set(PYPROJECT["project"]["optional-dependencies"])
    assert set(re.findall(r"^(?:toolgate)?\[([a-z]+)\]$", "\n".join(spans(text)), re.MULTILINE)) <= extras
    source = "\n".join(text_of(path) for path in ROOT.glob("[bst]*/**/*.py"))
    for variable in re.findall(r"\bTOOLGATE_[A-Z]+\b", text):
        assert variable in source or variable.removeprefix("TOOLGATE_").lower() in source, variable


# ---------------------------------------------------------------- commands


def command_lines(text: str) -> list[list[str]]:
    """Every `toolgate …` in prose and in blocks, split into words."""
    lines = [line for block in blocks(text) for line in block.text.splitlines()]
    found = [re.sub(r"^(?:\$|#) ", "", line.strip()) for line in [*spans(text), *lines]]
    return [shlex.split(line, comments=True) for line in found if line.startswith("toolgate ")]


def command(words: list[str]) -> Any:
    """The command that these words call; fails if there is none."""
    (point,) = entry_points(group="toolgate.commands", name=words[1])
    loaded = point.load()
    if not isinstance(loaded, typer.Typer):
        holder = typer.Typer(add_completion=False)
        holder.command()(loaded)
        return typer.main.get_command(holder)
    group: Any = typer.main.get_command(loaded)
    alone = loaded.registered_callback is not None and loaded.info.invoke_without_command is True
    if len(words) == 2 or (alone and words[2] not in group.commands):
        return group
    return group.commands[words[2]]


@pure
@each_document
def test_every_command_and_option_that_is_named_exists(document: Path) -> None:
    for words in command_lines(text_of(document)):
        if len(words) > 1 and words[1].islower():
            options = {
                name for param in command(words).params for name in (*param.opts, *param.secondary_opts)
            }
            assert {word for word in words if re.match(r"--?[a-z]", word)} <= options, words


@pure
def test_the_changelog_names_every_command_module_and_scheduler() -> None:
    text = text_of(ROOT / "CHANGELOG.md")
    for group in ("toolgate.commands", "amplifier.modules", "toolgate.schedulers"):
        for name in PYPROJECT["project"]["entry-points"][group]:
            assert re.search(rf"`(?:toolgate )?{name}[` ]", text), name


# ---------------------------------------------------------------- tables


@pure
def test_the_readme_has_every_key_of_the_toolgate_config_and_its_default() -> None:
    told = {cells[0].strip("`"): cells for cells in rows(section("A mount plan, and what it can say"))}
    assert list(told) == list(ToolgateConfig.model_fields)
    for name, default in ToolgateConfig().model_dump().items():
        shown = told[name][1].strip("`")
        if isinstance(default, bool):
            assert shown == str(default).lower()
        elif isinstance(default, int | float):
            assert float(shown) == default
        elif isinstance(default, str) and default:
            assert shown == default
    assert all(f"`{name}`" in told["schedulers"][2] for name in SchedulerLimits.model_fields)
    assert all(f"`{name}`" in told["redact"][2] for name in RedactConfig.model_fields)
    assert str(RedactConfig().max_chars) in told["redact"][1]


@pure
def test_both_readmes_name_every_key_of_the_loop() -> None:
    for document in (README, ROOT / "orchestrator" / "README.md"):
        assert set(LoopConfig.model_fields) - {"toolgate"} <= set(spans(text_of(document)))


@pure
def test_the_metrics_table_is_the_one_that_the_code_prints() -> None:
    told = [
        line for line in section("Metrics", ROOT / "deploy" / "README.md").splitlines() if line[:1] == "|"
    ]
    assert told == metrics.table().splitlines(), "python -m toolgate_bus.telemetry.metrics prints the table"
    served = {family.name for family in metrics.REGISTRY.collect()}
    assert {metric.name for metric in (*definitions.FLEET, *definitions.PROCESS)} <= served


@pure
def test_the_payload_of_tool_selecting_is_the_documented_one() -> None:
    text = section("Payloads", ROOT / "orchestrator" / "README.md")
    (row,) = (line for line in text.splitlines() if line.startswith("| `tool:selecting`"))
    told = set(re.findall(r"`(\w+)`", row))
    assert told == set(selecting_payload(ToolSelecting(id="0" * 32, tool_name="t")))


@pure
def test_denials_are_told_in_the_documented_words() -> None:
    text = section("What the LLM is told", ROOT / "orchestrator" / "README.md")
    config = ToolgateConfig()
    told = [
        Ruling("continue", "agreed").refused(answer, "x").reason
        for answer in ("refuse", "expired", "no_approver")
    ]
    silent = Round({"<name>": True}, patience=0.5, max_hold=1.0, now=0.0)
    holding = Round({"<name>": False}, patience=0.5, max_hold=1.0, now=0.0)
    holding.receive(Heard("<name>", Hold(seconds=1.0)), 0.1)
    silent.tick(1.0)
    holding.tick(9.0)
    for closed in (silent.close(), holding.close()):
        call = Ruled(b"", "t", {}, [], None, None, {}, ("t", ""), {}, 0.0)
        ruling = denial(call, closed, config)
        assert ruling is not None
        told.append(ruling.reason)
    for reason in told:
        assert f"`{Refusal(reason or '', Call('c', 't'))}`" in text, reason
    assert f"`{Refusal('<its reason>', Call('c', 't'))}`" in text


@pure
def test_every_decision_says_what_was_decided_and_what_follows() -> None:
    entries = re.split(r"^### ", text_of(ROOT / "DECISIONS.md"), flags=re.MULTILINE)[1:]
    assert [int(entry.split(".")[0]) for entry in entries] == list(range(1, len(entries) + 1))
    for entry in entries:
        assert entry.count("**Decided**:") == entry.count("**Follows**:") == 1, entry
        assert len(entry.splitlines()) <= 30, entry


@pure
def test_every_sentence_of_the_seeds_names_tests_that_exist() -> None:
    text = section("Sentences of the seeds", ROOT / "tests" / "README.md")
    lines = [line for line in text.splitlines() if re.match(r"\| [a-z]+-", line)]
    table = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    assert {cells[0] for cells in table} == {
        "agent-loop",
        "contract-short",
        "loop-basic",
        "loop-events",
        "orchestrator-contract",
    }
    for cells in table:
        named = re.findall(r"`((?:acceptance/)?test_[\w*]+\.py)(?:::(test_\w+))?`", cells[2])
        assert named or cells[2].startswith(("not check", "row")), cells
        for file, test in named:
            found = list((ROOT / "tests").rglob(file))
            assert found, file
            assert not test or any(f"def {test}(" in text_of(path) for path in found), test


# ---------------------------------------------------------------- samples


@pure
@each_document
def test_every_sample_is_well_formed(document: Path) -> None:
    for block in blocks(text_of(document)):
        match block.language:
            case "python":
                compile(block.text, document.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            case "yaml":
                assert yaml.safe_load(block.text)
            case "toml":
                assert tomllib.loads(block.text)
            case _:
                assert block.language in ("sh", "text", "console", ""), block.language


@pure
def test_the_plan_of_the_readme_has_a_config_that_the_loop_takes() -> None:
    plan = yaml.safe_load(sample("plan.yaml").text)
    config = plan["orchestrators"][0]["config"]
    assert LoopConfig.model_validate(config).toolgate.required == ("policy",)
    with pytest.raises(ValidationError):
        LoopConfig.model_validate({**config, "toolgate": {"no_such_key": 1}})


@pure
def test_the_first_scheduler_takes_ten_lines_from_nothing_to_its_ruling() -> None:
    steps = [
        block for block in blocks(section("Your own scheduler, in ten lines")) if block.language != "text"
    ]
    lines = [line for block in steps for line in block.text.splitlines()]
    assert len([line for line in lines if line.strip() and not line.startswith("# ")]) == TEN


def sample(file: str) -> Block:
    """The block of the README that is this file."""
    (block,) = (block for block in blocks(text_of(README)) if block.file == file)
    return block


def commands_in(title: str) -> list[list[str]]:
    """The commands of one section of the README, in order."""
    shown = (block.text for block in blocks(section(title)) if block.language == "sh")
    return [shlex.split(line) for text in shown for line in text.splitlines()]


def output_in(title: str) -> str:
    """What the section says comes out."""
    (block,) = (block for block in blocks(section(title)) if block.language == "text")
    return block.text


class Reader:
    """Somebody who follows the README in an empty folder, on the embedded server of this user."""

    def __init__(
        self, folder: Path, process: Callable[..., Any], wait: Callable[..., Awaitable[Any]]
    ) -> None:
        self.folder, self._process, self._wait = folder, process, wait

    def writes(self, *files: str) -> None:
        for file in files:
            (self.folder / file).write_text(sample(file).text, encoding="utf-8")

    async def starts(self, words: list[str]) -> Any:
        """A scheduler, in a terminal of its own, until it says that it rules."""
        running = self._process(*words, cwd=self.folder)
        await self._wait(lambda: READY in running.stderr or not running.alive, timeout=30)
        assert running.alive, running.stderr
        return running

    def runs(self, *words: str) -> Any:
        """A command to its good end."""
        running = self._process(*words, cwd=self.folder)
        assert running.wait(60) == 0, running.stderr
        return running


@pytest.fixture(name="reader")
def _reader(
    tmp_path: Path, process: Callable[..., Any], wait_until: Callable[..., Awaitable[Any]]
) -> Iterator[Reader]:
    folder = tmp_path / "empty"
    folder.mkdir()
    yield Reader(folder, process, wait_until)
    shutil.rmtree(folder)


@pytest.mark.acceptance
async def test_the_first_scheduler_of_the_readme_rules_on_a_real_agent(reader: Reader) -> None:
    title = "Your own scheduler, in ten lines"
    start, call = commands_in(title)
    reader.writes("my_scheduler.py", "agent.yaml")
    scheduler = await reader.starts(start)
    assert f"pid {scheduler.pid}" in scheduler.stderr
    assert reader.runs(*call).stdout == output_in(title)
    assert not (reader.folder / ".env").exists()
    assert "my-scheduler" in reader.runs("toolgate", "scheduler", "list").stdout
    assert "secrets stay here" in reader.runs("toolgate", "decisions").stdout


@pytest.mark.acceptance
async def test_without_the_scheduler_the_same_agent_writes_the_file(reader: Reader) -> None:
    _, call = commands_in("Your own scheduler, in ten lines")
    reader.writes("agent.yaml")
    reader.runs(*call)
    assert (reader.folder / ".env").read_text() == "KEY=1"


@pytest.mark.acceptance
async def test_the_gate_example_is_ruled_on_by_that_scheduler(reader: Reader) -> None:
    reader.writes("my_scheduler.py", "ask.py")
    await reader.starts(commands_in("Your own scheduler, in ten lines")[0])
    assert reader.runs("python", "ask.py").stdout == output_in("Ask from any asyncio program")


@pytest.mark.acceptance
async def test_the_plan_is_ruled_on_by_the_rules_and_denied_without_them(reader: Reader) -> None:
    reader.writes("plan.yaml", "rules.yaml")
    _, call = commands_in("Replay recorded runs")
    assert "policy is not alive on" in reader.runs(*call).stdout
    assert not (reader.folder / "todo.txt").exists()
    started = next(
        words for words in command_lines(section("Replay recorded runs")) if words[1] == "scheduler"
    )
    await reader.starts(started)
    assert "deleting is for people" in reader.runs(*call).stdout
    assert (reader.folder / "todo.txt").read_text() == "buy tea"


@pytest.mark.acceptance
def test_recorded_runs_are_replayed_as_the_readme_shows(reader: Reader) -> None:
    reader.writes("rules.yaml")
    shutil.copy(ROOT / "tests" / "data" / "runs.jsonl", reader.folder / "runs.jsonl")
    replay, _ = commands_in("Replay recorded runs")
    assert "Every recorded call got exactly one tool result, in order." in reader.runs(*replay).stdout
