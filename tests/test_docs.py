"""What the documents say is true: links lead somewhere, samples run, tables agree with the code."""

import ast
import json
import re
import shlex
import tomllib
from functools import cache
from importlib.metadata import distributions, entry_points
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest
import typer
import yaml
from documents import (
    DOCUMENTS,
    README,
    ROOT,
    blocks,
    commands_in,
    page,
    prose,
    sample,
    script,
    section,
    spans,
    text_of,
)
from packaging.specifiers import SpecifierSet
from pydantic import ValidationError
from questions import question_about
from toolgate_bus import installation
from toolgate_bus.protocol.events import Hold, ReceivedVerdict, ToolSelecting
from toolgate_bus.ruling.round import Round
from toolgate_bus.telemetry import definitions, metrics
from toolgate_orchestrator.decision.config import ToolgateConfig
from toolgate_orchestrator.decision.round.decision_state import DecisionState as Ruled
from toolgate_orchestrator.decision.ruling import RulingResult, denial
from toolgate_orchestrator.modules.provider_openai.config import OpenAIConfig
from toolgate_orchestrator.turn.calls.tool_call import CallRefusal
from toolgate_orchestrator.turn.hooks.scheduler import payload_of
from toolgate_orchestrator.turn.loop_config import LoopConfig
from toolgate_orchestrator.turn.values.messages import ToolCall

pytestmark = pytest.mark.source
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
DOZEN = 12
COLUMNS = 80
MAX_ENTRY = 16
"""Lines of an entry of DECISIONS.md, with its title and the blank lines."""
SENTENCES = 201
PAGES = [document for document in DOCUMENTS if document.parent == ROOT / "docs"]

each_document = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda one: str(one.relative_to(ROOT)))


# ---------------------------------------------------------------- links and names


def anchors(document: Path) -> set[str]:
    """The anchors that a forge makes of a document's headings."""
    headings = re.findall(r"^#+ (.*)$", prose(text_of(document)), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@each_document
def test_every_link_between_documents_leads_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", prose(text_of(document))):
        if target.startswith("https://"):
            continue
        name, _, anchor = target.partition("#")
        linked = (document.parent / name).resolve() if name else document
        assert linked.is_file(), target
        assert not anchor or anchor in anchors(linked), target


PICTURES = sorted((ROOT / "docs" / "pictures").glob("*.svg"))


@pytest.mark.parametrize("picture", PICTURES, ids=lambda one: one.stem)
def test_a_picture_is_told_in_words_follows_the_readers_colours_and_fetches_nothing(picture: Path) -> None:
    text = text_of(picture)
    shown = [f"]({picture.relative_to(document.parent)})" in text_of(document) for document in PAGES]
    assert shown.count(True) == 1
    assert re.search(r'role="img" aria-labelledby="title desc"', text)
    assert len(re.findall(r'<(title|desc) id="\1">[^<]{10,}</\1>', text)) == 2
    assert "prefers-color-scheme: dark" in text
    assert re.findall(r"(?:href|src)=|url\((?!#)|@import|https?://(?!www\.w3\.org/2000/svg)", text) == []


def test_every_document_can_be_reached_from_the_readme() -> None:
    seen, ahead = set(), [README]
    while ahead:
        document = ahead.pop()
        seen.add(document)
        targets = re.findall(r"\]\(([^)#]+\.md)[^)]*\)", text_of(document))
        linked = {(document.parent / target).resolve() for target in targets if "://" not in target}
        ahead += linked - seen
    assert seen >= set(DOCUMENTS)


def test_the_menu_of_the_site_has_every_document() -> None:
    assert script("build").pages_without_place() == []


def test_the_architecture_fits_two_pages_and_the_readme_150_lines() -> None:
    assert len(text_of(ROOT / "ARCHITECTURE.md").splitlines()) <= 120
    assert len(text_of(README).splitlines()) <= 150


def test_what_the_readme_has_people_type_and_read_fits_a_terminal() -> None:
    shown = [line for block in blocks(text_of(README)) for line in block.text.splitlines()]
    assert [line for line in shown if len(line) > COLUMNS] == []


def test_the_list_of_targets_fits_a_terminal() -> None:
    targets = re.findall(r"^([a-z-]+):.*## (.*)$", text_of(ROOT / "Makefile"), re.MULTILINE)
    assert [name for name, about in targets if len(f"  make {name:<12} {about}") > COLUMNS] == []


@each_document
def test_what_is_generated_is_up_to_date(document: Path) -> None:
    text = text_of(document)
    assert script("generate").rewritten(text) == text, "run: python docs/generate.py"


@each_document
def test_every_python_file_that_is_named_exists(document: Path) -> None:
    files = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("[bdost]*/**/*.py")}
    for span in spans(text_of(document)):
        if not re.fullmatch(r"[\w/]+\.py", span) or "NAME" in span or span in named_by_samples():
            continue
        assert any(file == span or file.endswith(f"/{span}") for file in files), span


def named_by_samples() -> set[str]:
    """Files that the samples themselves have the reader write."""
    found = {block.file for one in DOCUMENTS for block in blocks(text_of(one)) if block.file}
    return found | {"my_rules.py", "test_my_rules.py"}


def test_the_architecture_shows_the_rooms_that_are_checked() -> None:
    contracts = PYPROJECT["tool"]["importlinter"]["contracts"]
    text = text_of(ROOT / "ARCHITECTURE.md")
    for package in ("toolgate_bus", "toolgate_orchestrator", "toolgate_schedulers"):
        layers = next(one["layers"] for one in contracts if one.get("containers") == [package])
        checked = [set(re.findall(r"\w+", layer)) for layer in layers if layer != "__main__"]
        drawn = text.partition(f"\n`{package}`:\n\n```text\n")[2].partition("\n```")[0]
        assert [set(re.split(r"\s{2,}", line)[0].split(" · ")) for line in drawn.splitlines()] == checked


@cache
def every_text() -> dict[str, str]:
    """Return each text file of the repository by its path, but for this one."""
    kinds = {".py", ".md", ".toml", ".tmpl", ".yaml", ".yml", ".txt", ".json", ".lua"}
    found = {}
    for file in ROOT.rglob("*"):
        parts = file.relative_to(ROOT).parts
        if file.suffix not in kinds or parts[0][0] == "." or parts[0] == "build" or file == Path(__file__):
            continue
        if "node_modules" not in parts:
            found["/".join(parts)] = file.read_text(encoding="utf-8", errors="replace")
    return found


def places_of(pattern: re.Pattern[str]) -> list[str]:
    """Return what a pattern finds in all texts, each with its file."""
    return [f"{path}: {one[0]}" for path, text in every_text().items() for one in pattern.finditer(text)]


def test_nothing_of_ours_installs_or_wants_the_program_of_a_stranger() -> None:
    """On the package index `toolgate` is not this project: that is `toolgate-bus`."""
    stranger = re.compile(
        r"""pip install[^\n]*?["' ]toolgate(?!-bus)\b|["']toolgate(\[|\s*[<>=~!]=?\s*[\d$])"""
    )
    assert PYPROJECT["project"]["name"] == "toolgate-bus"
    assert stranger.search('pip install "toolgate[all]"')
    assert stranger.search('dependencies = ["toolgate>=0.1"]')
    assert places_of(stranger) == []


def test_texts_refer_to_nothing_that_a_reader_does_not_have() -> None:
    """A blueprint that is not in the repository; an entry of DECISIONS.md by its number, which may change."""
    unknown = re.compile(r"\bDESIGN\b|DECISIONS(?:\.md)?,? (?:entry |no\. |#)*\d")
    assert unknown.search("the rules of DESIGN")
    assert unknown.search("why: DECISIONS.md, entry 12")
    assert places_of(unknown) == []


INSTALLS = re.compile(
    r"(?:(?:python -m )?\bpipx?|\buv(?: pip| tool)?) (?:install|add|inject)\b[^\n`&#]*|toolgate-bus\[[^\n`]*"
)
EXTRAS = PYPROJECT["project"]["optional-dependencies"]


def test_every_page_installs_from_a_clone_and_one_page_says_how_from_a_wheel() -> None:
    """The distribution is on no package index: a line that names it there would fail."""
    wheel = f"dist/toolgate_bus-{PYPROJECT['project']['version']}-py3-none-any.whl"
    templates = (ROOT / "schedulers/toolgate_schedulers/commands/templates").glob("*.tmpl")
    seen, wrong = [], []
    for file in (*DOCUMENTS, *templates):
        for line in INSTALLS.findall(text_of(file)):
            _, _, words = line.partition("install ")
            what, _, extras = words.strip().strip('"').removesuffix("]").partition("[")
            sources = {"pytest", *({".", wheel} if file.name == "start.md" else {"."})}
            if (
                not line.startswith("python -m pip install")
                or what not in sources
                or not set(extras.split(",")) <= {"", *EXTRAS}
            ):
                wrong.append(f"{file.name}: {line}")
            seen.append(what)
    assert wrong == []
    assert {".", wheel, "pytest"} <= set(seen)


def test_a_message_that_names_a_command_to_install_has_it_from_one_function() -> None:
    asked = re.compile(r"how_to_install\(['\"]([\w-]+)['\"]\)")
    own, named = [], set(installation.EXTRAS.values())
    for package in (
        "bus/toolgate_bus",
        "orchestrator/toolgate_orchestrator",
        "schedulers/toolgate_schedulers",
    ):
        for file in (ROOT / package).rglob("*.py"):
            text = text_of(file)
            named |= set(asked.findall(text))
            if file.name != "installation.py":
                own += [f"{file.name}: {one}" for one in INSTALLS.findall(text)]
    assert own == []
    assert {"all", "bench", "embedded", "llm", "otel"} <= named <= EXTRAS.keys()


def test_every_version_that_is_pinned_runs_on_the_oldest_python_that_is_promised() -> None:
    promised = PYPROJECT["project"]["requires-python"].removeprefix(">=") + ".0"
    pinned = re.findall(r"^([\w.-]+)==(\S+)$", text_of(ROOT / "constraints.txt"), re.MULTILINE)
    wanted = {(one.name.lower().replace("_", "-"), one.version): one for one in distributions()}
    seen = [wanted[pin] for name, version in pinned if (pin := (name.replace("_", "-"), version)) in wanted]
    assert len(seen) > len(pinned) / 2
    needs = ((one.name, one.metadata["Requires-Python"] or "") for one in seen)
    assert [one for one in needs if promised not in SpecifierSet(one[1])] == []


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


def test_every_name_of_a_package_that_documents_give_can_be_imported() -> None:
    named = {
        name
        for document in DOCUMENTS
        for span in spans(text_of(document))
        for name in re.findall(r"^toolgate_(?:bus|orchestrator|schedulers)(?:\.\w+)+", span)
    }
    assert len(named) > 2
    for name in named:
        assert resolve_name(name) is not None


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
    lines = [line for block in blocks(text) for line in block.text.replace("\\\n", " ").splitlines()]
    found = [re.sub(r"^(?:\$|#) ", "", line.strip()) for line in [*spans(text), *lines]]
    typed = (re.split(r"\s{3,}", line)[0] for line in found if line.startswith("toolgate "))
    return [shlex.split(line, comments=True) for line in typed]


@cache
def command(words: tuple[str, ...]) -> Any:
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


@each_document
def test_every_command_and_option_that_is_named_exists(document: Path) -> None:
    for words in command_lines(script("generate").hand_written(text_of(document))):
        if len(words) > 1 and re.match(r"[a-z][a-z-]*$", words[1]):
            options = {
                name
                for param in command(tuple(words[:3])).params
                for name in (*param.opts, *param.secondary_opts)
            }
            assert {word for word in words if re.match(r"--?[a-z]", word)} <= options, words


def test_the_changelog_names_every_command_module_and_scheduler() -> None:
    text = text_of(ROOT / "CHANGELOG.md")
    for group in ("toolgate.commands", "amplifier.modules", "toolgate.schedulers"):
        for name in PYPROJECT["project"]["entry-points"][group]:
            assert re.search(rf"`(?:toolgate )?{name}[` ]", text), name


# ---------------------------------------------------------------- tables


def test_the_pages_about_loops_have_a_row_and_a_column_for_each() -> None:
    modules = PYPROJECT["project"]["entry-points"]["amplifier.modules"]
    loops = {name for name, place in modules.items() if place.startswith("toolgate_orchestrator.loops.")}
    loops = {name for name in loops if "toolgate" not in name}  # the same by ids of our own
    rows = re.findall(r"^\| `(loop-\w+)` \|", text_of(page("agents")), re.MULTILINE)
    (columns,) = re.findall(r"^\| property \| (loop-.*) \|$", text_of(page("loops")), re.MULTILINE)
    assert set(rows) == set(columns.split(" | ")) == loops


def test_every_metric_of_the_reference_is_served() -> None:
    served = {family.name for family in metrics.REGISTRY.collect()}
    assert {metric.name for metric in (*definitions.FLEET, *definitions.PROCESS)} <= served


def test_the_page_about_watching_has_every_alert_with_its_severity() -> None:
    rules = yaml.safe_load(text_of(ROOT / "deploy" / "prometheus" / "rules" / "toolgate-alerts.yml"))
    alerts = [rule for group in rules["groups"] for rule in group["rules"]]
    rows = [
        line.split(" | ") for line in text_of(page("watch")).splitlines() if line.startswith("| `Toolgate")
    ]
    told = {name: row[1] for row in rows for name in re.findall(r"`(\w+)`", row[0])}
    assert told.keys() == {alert["alert"] for alert in alerts}
    assert all(alert["labels"]["severity"] in told[alert["alert"]] for alert in alerts)


def test_the_payload_of_tool_selecting_is_the_documented_one() -> None:
    text = section("Payloads", page("reference/events"))
    (row,) = (line for line in text.splitlines() if line.startswith("| `tool:selecting`"))
    told = set(re.findall(r"`(\w+)`", row))
    assert told == set(payload_of(ToolSelecting(id="0" * 32, tool_name="t")))


WIRE = page("reference/wire")


def named_in(table_after: str) -> set[str]:
    """The names in the first cells of the first table after these words on the page of the wire."""
    table = text_of(WIRE).split(table_after, 1)[1].lstrip().split("\n|", 1)[1].split("\n\n", 1)[0]
    return {name for line in table.splitlines() for name in re.findall(r"`(\w+)`", line.split(" | ")[0])}


def test_the_page_of_the_wire_has_every_field_of_a_question() -> None:
    fields = set(ToolSelecting.model_fields) - {"id", "again"} | {"result_form"}
    assert named_in("### The question, `tool:selecting`") == fields


def test_the_page_of_the_wire_has_every_field_of_a_heartbeat() -> None:
    schema = json.loads(text_of(ROOT / "bus" / "schemas" / "v2" / "heartbeat.json"))
    plain, inner = named_in("Of a scheduler's replica"), named_in("| `mac` | binary |")
    assert set(schema["properties"]) - {"left"} <= plain | inner  # that one is told of in words


def test_denials_are_told_in_the_documented_words() -> None:
    text = section("What the LLM is told", page("reference/events"))
    config = ToolgateConfig()
    told = [
        RulingResult("continue", "agreed").with_refusal(answer, "x").reason
        for answer in ("refuse", "expired", "no_approver")
    ]
    silent = Round({"<name>": True}, patience=0.5, max_hold=1.0, now=0.0)
    holding = Round({"<name>": False}, patience=0.5, max_hold=1.0, now=0.0)
    holding.receive(ReceivedVerdict("<name>", Hold(seconds=1.0)), 0.1)
    silent.tick(1.0)
    holding.tick(9.0)
    for closed in (silent.close(), holding.close()):
        call = Ruled(b"", question_about("t", {}), [], None, ("t", ""), 0.0)
        ruling = denial(call, closed, config)
        assert ruling is not None
        told.append(ruling.reason)
    for reason in told:
        assert f"`{CallRefusal(reason or '', ToolCall('c', 't'))}`" in text, reason
    assert f"`{CallRefusal('<its reason>', ToolCall('c', 't'))}`" in text


def test_every_decision_is_a_short_entry_under_a_title_of_its_own() -> None:
    entries = re.split(r"^##+ (?=\d)", text_of(ROOT / "DECISIONS.md"), flags=re.MULTILINE)[1:]
    numbers, titles = zip(*(entry.splitlines()[0].split(". ", 1) for entry in entries), strict=True)
    assert list(numbers) == [str(number) for number in range(1, len(entries) + 1)]
    assert len(set(titles)) == len(titles)
    assert [entry for entry in entries if not 4 <= len(entry.splitlines()) <= MAX_ENTRY] == []


def test_every_document_of_the_loops_has_sentences_that_tests_show() -> None:
    table = section("Sentences of the seeds", ROOT / "tests" / "README.md")
    seeds = ("agent-loop", "contract-short", "loop-basic", "loop-events", "orchestrator-contract")
    rows = [line for line in table.splitlines() if line.startswith(tuple(f"| {seed} |" for seed in seeds))]
    assert len(rows) == SENTENCES


def names_of_tests(file: str) -> set[str]:
    found = [ast.walk(ast.parse(text_of(path))) for path in (ROOT / "tests").rglob(file)]
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for nodes in found for node in nodes if isinstance(node, kinds)}


def test_each_risk_of_owasps_list_has_its_row_with_a_test_that_exists() -> None:
    table = section("Beside OWASP's list for agents", ROOT / "SECURITY.md")
    rows = [line.split(" | ") for line in table.splitlines() if line.startswith("| **ASI")]
    assert [row[0][4:9] for row in rows] == [f"ASI{number:02}" for number in range(1, 11)]
    for name, does, does_not, shown in rows:
        named = re.findall(r"`(test_\w+\.py)::(test_\w+)`", shown)
        assert all((does, does_not, named)), name
        assert [one for one in named if one[1] not in names_of_tests(one[0])] == []


@cache
def printed_texts() -> str:
    """Return every text of the packages' code; … stands for a value that is put in."""
    texts = []
    for package in ("bus", "orchestrator", "schedulers"):
        for file in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(text_of(file))):
                match node:
                    case ast.JoinedStr():
                        parts = (getattr(part, "value", "…") for part in node.values)
                        texts.append("".join(part if isinstance(part, str) else "…" for part in parts))
                    case ast.Constant(value=str(text)):
                        texts.append(text)
    return "\n".join(texts)


def test_troubleshooting_quotes_messages_as_the_code_prints_them() -> None:
    messages = [" ".join(block.text.split()) for block in blocks(text_of(page("troubleshooting")))]
    assert len(messages) >= 20
    assert len(set(messages)) == len(messages)
    for message in messages:  # one may be made of several texts, with these between them
        parts = [part.strip("`. ") for part in re.split(r"…|[;:] |\. |, and ", message)]
        assert [part for part in parts if part not in printed_texts()] == [], message


# ---------------------------------------------------------------- samples


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


def test_the_first_plan_has_a_config_that_the_loop_takes() -> None:
    plan = yaml.safe_load(sample("plan.yaml").text)
    config = plan["orchestrators"][0]["config"]
    assert LoopConfig.model_validate(config).toolgate.required == ("policy",)
    with pytest.raises(ValidationError):
        LoopConfig.model_validate({**config, "toolgate": {"no_such_key": 1}})


def test_the_plan_with_a_real_llm_has_a_config_that_its_provider_takes() -> None:
    (provider,) = yaml.safe_load(sample("chat.yaml").text)["providers"]
    assert OpenAIConfig.model_validate(provider["config"]).model == "qwen3"


def test_the_first_scheduler_takes_a_dozen_lines_from_nothing_to_its_ruling() -> None:
    title = "Your own scheduler, in a dozen lines"
    steps = [block for block in blocks(section(title)) if block.language != "text"]
    lines = [line for block in steps for line in block.text.splitlines()]
    assert 0 < len([line for line in lines if line.strip() and not line.startswith("# ")]) <= DOZEN
    assert len(commands_in(title)) == 2
