"""A scheduler is found by name or module:attribute, configured, and what is wrong is said."""

import importlib.metadata
import itertools
import sys
from importlib.metadata import EntryPoint, entry_points

import pytest
from toolgate_bus.errors import ConfigError
from toolgate_schedulers import Continue, Deny, Modify, ToolSelecting
from toolgate_schedulers.worker import loading
from toolgate_schedulers.worker.loading import GROUP, load

pytestmark = pytest.mark.pure

CALL = ToolSelecting(id="0" * 32, tool_name="cancel_reservation", available_tools=("other",))
numbers = itertools.count()


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The current directory, which is importable as it is for uvicorn."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    return tmp_path


def module(here, text):
    """A module of that text in the current directory; gives its name."""
    name = f"authors_module_{next(numbers)}"
    (here / f"{name}.py").write_text(text)
    return name


async def test_a_shipped_scheduler_is_loaded_by_its_name(here):
    (here / "p.yaml").write_text("rules: [{tools: cancel_*, action: deny}]")
    policy = load("policy", config=here / "p.yaml")
    assert (policy.name, policy.priority, policy.tools) == ("policy", 0, ("*",))
    assert await policy.decide(CALL) == Deny(
        reason="cancel_reservation is not allowed (rule 1)", rule_name="rule 1"
    )
    (here / "r.yaml").write_text("routes: [{from: cancel_reservation, to: other}]")
    router = load("router", config=here / "r.yaml")
    assert (router.name, router.priority, router.tools) == ("router", 10, ("cancel_reservation",))
    assert isinstance(await router.decide(CALL), Modify)


async def test_a_module_of_the_current_directory_is_found(here):
    name = module(
        here,
        "from toolgate_schedulers import Continue, scheduler\n"
        "@scheduler(name='mine', priority=3, tools=['a'])\n"
        "async def route(call):\n    return Continue()\n",
    )
    mine = load(f"{name}:route")
    assert (mine.name, mine.priority, mine.tools, mine.shadow) == ("mine", 3, ("a",), False)
    assert await mine.decide(CALL) == Continue()


def test_options_override_what_the_author_set(here):
    name = module(here, "async def route(call): ...")
    mine = load(f"{name}:route", name="other", priority=-1, tools=["x", "y"], shadow=True)
    assert (mine.name, mine.priority, mine.tools, mine.shadow) == ("other", -1, ("x", "y"), True)


def test_an_option_may_be_zero(here):
    name = module(here, "class S:\n    name='s'; priority=5\n    async def decide(self, call): ...")
    assert load(f"{name}:S", priority=0).priority == 0


def test_options_are_checked_like_the_authors_fields(here):
    name = module(here, "async def route(call): ...")
    with pytest.raises(ConfigError, match="name: 1 to 64 letters"):
        load(f"{name}:route", name="no spaces")


async def test_a_class_an_instance_and_a_hook_are_loaded(here):
    name = module(
        here,
        "from toolgate_schedulers import Continue, HookResult\n"
        "class Own:\n"
        "    name = 'own'\n"
        "    async def decide(self, call): return Continue(reason='class')\n"
        "    class Inner:\n"
        "        async def decide(self, call): return Continue(reason='inner')\n"
        "made = Own()\n"
        "async def hook(event, data): return HookResult(action='deny', reason=data['tool_name'])\n",
    )
    assert await load(f"{name}:Own").decide(CALL) == Continue(reason="class")
    assert await load(f"{name}:made").decide(CALL) == Continue(reason="class")
    assert (await load(f"{name}:Own.Inner").decide(CALL)).reason == "inner"
    assert await load(f"{name}:hook").decide(CALL) == Deny(reason="cancel_reservation")


CONFIGURED = """
from pydantic import BaseModel
from toolgate_schedulers import Deny

class Config(BaseModel):
    limit: int
    note: str = "none"

class Limit:
    name = "limit"
    config_model = Config
    def __init__(self, config): self.config = config
    async def decide(self, call): return Deny(reason=f"{self.config.limit} {self.config.note}")
"""


async def test_a_class_is_given_its_config(here):
    name = module(here, CONFIGURED)
    (here / "c.yaml").write_text("limit: 3")
    assert await load(f"{name}:Limit", config=here / "c.yaml").decide(CALL) == Deny(reason="3 none")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("limit: x", ":1: limit: Input should be a valid integer"),
        ("limit: 1\nlimt: 2", ":2: limt: unknown key; allowed: limit, note; did you mean limit?"),
        ("note: y", ": limit: Field required; allowed: a whole number"),
        ("limit: 1\nlimit: 2", ":2: the key 'limit' is given twice"),
    ],
)
def test_a_wrong_config_names_its_file_and_field(here, text, said):
    name = module(here, CONFIGURED)
    file = here / "c.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as error:
        load(f"{name}:Limit", config=file)
    assert f"{file}{said}" in str(error.value)


def test_a_config_that_is_needed_is_asked_for(here):
    with pytest.raises(ConfigError, match=r"(?s)policy needs a configuration: --config FILE.*give rules"):
        load("policy")
    with pytest.raises(ConfigError, match=r"(?s)router needs a configuration.*routes: Field required"):
        load("router")


@pytest.mark.parametrize(
    "text",
    [
        "async def s(call): ...",
        "class s:\n    async def decide(self, call): ...",
        "from toolgate_schedulers import scheduler\n@scheduler\nasync def s(call): ...",
    ],
)
def test_a_config_that_nobody_takes_is_refused(here, text):
    name = module(here, text)
    (here / "c.yaml").write_text("a: 1")
    with pytest.raises(ConfigError, match=rf"{name}:s takes no configuration: leave --config"):
        load(f"{name}:s", config=here / "c.yaml")


def test_an_unknown_name_lists_the_installed_ones():
    with pytest.raises(ConfigError) as error:
        load("polcy")
    installed = ", ".join(sorted(entry_points(group=GROUP).names))
    assert f"no scheduler 'polcy' is installed. Did you mean policy? Installed: {installed}. Name" in str(
        error.value
    )


def test_a_name_offered_twice_names_both_distributions(monkeypatch):
    class Dist:
        def __init__(self, name):
            self.name = name

    offered = [
        EntryPoint("limit", f"{name}:Limit", "toolgate.schedulers")._for(Dist(name))
        for name in ("acme", "zeta")
    ]
    monkeypatch.setattr(
        loading, "entry_points", lambda group: importlib.metadata.EntryPoints(offered).select(group=group)
    )
    with pytest.raises(ConfigError, match=r"limit is offered by acme \(acme:Limit\) and zeta \(zeta:Limit\)"):
        load("limit")


@pytest.mark.parametrize("spec", [":route", "module:", ":"])
def test_half_a_name_is_refused(spec):
    with pytest.raises(ConfigError, match="must be module:attribute"):
        load(spec)


DECORATED = "@scheduler(name='mine')\nasync def route(call): ...\n"


@pytest.mark.parametrize(
    ("file", "text", "spec", "instead"),
    [
        ("my.py", DECORATED, "my.py:route", "my:route"),
        ("my.py", DECORATED, "my.py:other", "my:other"),
        ("my.py", DECORATED, "./my.py", "my:route"),
        ("my.py", DECORATED, "my", "my:route"),
        ("my.py", DECORATED, "my:", "my:route"),
        ("rules/my.py", DECORATED, "rules/my.py:route", "rules.my:route"),
        ("src/my.py", DECORATED, "my", "my:route"),
        ("my.py", "class Own:\n    async def decide(self, call): ...\n", "my", "my:Own"),
        ("my.py", 2 * DECORATED, "my", "my:ATTRIBUTE, where ATTRIBUTE is route, route"),
        ("my.py", "def f(:", "my", "my:ATTRIBUTE, where ATTRIBUTE is a function or class in it"),
    ],
)
def test_a_file_is_told_how_to_be_written(here, file, text, spec, instead):
    (here / file).parent.mkdir(exist_ok=True)
    (here / file).write_text(text)
    with pytest.raises(ConfigError) as error:
        load(spec)
    assert str(error.value).endswith(f"{file} is a file; write its module: toolgate scheduler run {instead}")


@pytest.mark.parametrize(
    "spec", ["my.py:route", "../my.py:route", "/etc/my.py", "my\0.py:x", "m" * 300 + ".py:x"]
)
def test_a_file_that_is_not_here_is_not_told_of(here, spec):
    (here.parent / "my.py").write_text(DECORATED)
    with pytest.raises(ConfigError) as error:
        load(spec)
    assert "is a file" not in str(error.value)


def test_a_module_that_is_not_there_is_named(here):
    with pytest.raises(ConfigError, match="there is no module 'not_there_at_all': looked in"):
        load("not_there_at_all:route")


def test_a_module_that_misses_another_one_shows_where(here):
    name = module(here, "import not_there_at_all\n")
    with pytest.raises(ConfigError) as error:
        load(f"{name}:route")
    assert f"cannot import {name}: ModuleNotFoundError: No module named 'not_there_at_all'" in str(
        error.value
    )
    assert f'{name}.py", line 1' in str(error.value)


def test_an_error_in_the_authors_module_keeps_its_words_and_lines(here):
    name = module(here, "def f():\n    raise ValueError('my own words')\nf()\n")
    with pytest.raises(ConfigError) as error:
        load(f"{name}:route")
    assert "ValueError: my own words" in str(error.value)
    assert f'{name}.py", line 2, in f' in str(error.value)
    assert "importlib" not in str(error.value)
    assert "loading.py" not in str(error.value)


def test_a_module_with_a_syntax_error_is_shown_its_line(here):
    name = module(here, "def f(:\n")
    with pytest.raises(ConfigError, match=r"(?s)line 1.*def f\(:"):
        load(f"{name}:route")


def test_an_attribute_that_is_not_there_names_those_that_are(here):
    name = module(here, "from toolgate_schedulers import Continue\nasync def route(call): ...\n")
    with pytest.raises(ConfigError) as error:
        load(f"{name}:rout")
    assert str(error.value) == f"module {name} has no 'rout'. Did you mean route? It has: route"


def test_a_constructor_that_wants_something_else_is_refused(here):
    name = module(here, "class S:\n    def __init__(self, a): ...\n    async def decide(self, call): ...")
    with pytest.raises(ConfigError, match="its constructor must take no arguments"):
        load(f"{name}:S")


def test_a_constructor_that_raises_keeps_its_words(here):
    name = module(
        here, "class S:\n    def __init__(self): raise OSError('no disk')\n    async def decide(self, c): ..."
    )
    with pytest.raises(ConfigError, match=r"S cannot be created: OSError: no disk"):
        load(f"{name}:S")
