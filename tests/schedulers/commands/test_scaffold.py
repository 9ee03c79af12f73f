"""What `toolgate scheduler new` writes: names that fit, files that are right, nothing overwritten."""

import ast
import tomllib

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from toolgate_bus.commands.new_files import write_new_files
from toolgate_bus.errors import ConfigError
from toolgate_schedulers.commands.scheduler_new import SchedulerNames, contents, names_of

pytestmark = pytest.mark.pure

GUARD = names_of("my-guard")
lines = st.text(min_size=1, max_size=200).filter(lambda text: text.strip() and text.isprintable())


def test_the_names_that_follow_from_one():
    assert names_of("my-guard") == SchedulerNames("my-guard", "my_guard", "MyGuard")
    assert names_of("spend_cap2") == SchedulerNames("spend_cap2", "spend_cap2", "SpendCap2")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("My Guard", "did you mean my-guard?"),
        ("1st", "did you mean st?"),
        ("", "1 to 64 lower-case letters and digits, a letter first"),
        ("a" * 65, "1 to 64"),
        ("a--b", "did you mean a-b?"),
        ("../x", "did you mean x?"),
        ("policy", "policy is the name of an installed scheduler"),
        ("toolgate-bus", "toolgate-bus is the name of an installed package"),
        ("json", "there is a module json already"),
        ("lambda", "a keyword of Python"),
        ("match", "a keyword of Python"),
        ("deny", "its class Deny would have the name of one"),
    ],
)
def test_a_name_that_does_not_fit_is_refused_with_what_does(name, said):
    with pytest.raises(ConfigError, match=r"^NAME: ") as caught:
        names_of(name)
    assert said in str(caught.value)


@given(lines)
def test_any_line_will_do_as_a_description(description):
    texts = contents(GUARD, description)
    assert tomllib.loads(texts["pyproject.toml"])["project"]["description"] == description
    assert ast.get_docstring(ast.parse(texts["src/my_guard/__init__.py"]), clean=False) == description
    assert description in texts["README.md"]


@pytest.mark.parametrize("description", ["", " ", "a\nb", "a\x7f", "\udc80", "x" * 201])
def test_a_description_that_is_no_line_is_refused_by_the_options_name(description):
    with pytest.raises(ConfigError, match=r"^--description: must be one line of 1 to 200 characters"):
        contents(GUARD, description)


def test_the_package_offers_its_scheduler_by_name():
    project = tomllib.loads(contents(GUARD, "x")["pyproject.toml"])
    assert project["project"]["entry-points"]["toolgate.schedulers"] == {"my-guard": "my_guard:MyGuard"}
    assert project["project"]["dependencies"][0].startswith("toolgate-bus>=")
    assert project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"] == ["src/my_guard"]


def test_every_file_is_well_formed_and_no_blank_is_left():
    texts = contents(GUARD, "x")
    assert {path.rpartition(".")[2] for path in texts} == {"toml", "md", "yaml", "py"}
    for path, text in texts.items():
        if path.endswith(".py"):
            compile(text, path, "exec")
        elif path.endswith(".yaml"):
            assert yaml.safe_load(text)
        assert "${" not in text.replace("${last_result}", "")


def test_nothing_is_overwritten_and_then_nothing_written(tmp_path):
    (tmp_path / "config.yaml").write_text("mine")
    with pytest.raises(ConfigError, match=r"config\.yaml exists already: nothing was written"):
        write_new_files(tmp_path, contents(GUARD, "x"))
    assert [path.name for path in tmp_path.iterdir()] == ["config.yaml"]
    assert (tmp_path / "config.yaml").read_text() == "mine"


def test_a_link_that_leads_nowhere_is_not_written_through(tmp_path):
    (tmp_path / "config.yaml").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="exists already"):
        write_new_files(tmp_path, contents(GUARD, "x"))


def test_a_folder_with_other_things_in_it_will_do(tmp_path):
    (tmp_path / ".git").mkdir()
    write_new_files(tmp_path, contents(GUARD, "x"))
    assert (tmp_path / "src" / "my_guard" / "__init__.py").is_file()


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written"):
        write_new_files(tmp_path / "file" / "below", contents(GUARD, "x"))
