"""What `toolgate scheduler run` makes of several schedulers: whose is which option, and what is refused."""

from pathlib import Path

import pytest
from toolgate_bus.errors import ConfigError
from toolgate_schedulers.commands.scheduler import complete_spec
from toolgate_schedulers.commands.scheduler_run import RunOptions

pytestmark = pytest.mark.pure


def options(*specs, **given):
    plain = {"name": None, "priority": None, "tools": None, "config": None, "shadow": False, "revision": None}
    return RunOptions(list(specs), **plain | given, concurrency=64, json=False)


def test_each_has_its_own_file_and_name():
    found = options(
        "policy", "treasury=approval", "a:b", config=["treasury=t=1.yaml", "a:b=c.yaml"]
    ).schedulers()
    assert [(one.spec, one.more["name"], one.config) for one in found] == [
        ("policy", None, None),
        ("approval", "treasury", Path("t=1.yaml")),
        ("a:b", None, Path("c.yaml")),
    ]


@pytest.mark.parametrize("written", ["a=b.yaml", "policy=a=b.yaml"])
def test_of_one_a_file_needs_no_name(written):
    (found,) = options("policy", config=[written]).schedulers()
    assert found.config == Path("a=b.yaml")


WRONG = {
    "no name": (
        ["policy", "router"],
        {"config": ["a.yaml"]},
        "(policy, router), for example --config policy=a.yaml",
    ),
    "a typo": (["policy", "router"], {"config": ["ruter=a.yaml"]}, "--config router=a.yaml"),
    "two files": (["policy"], {"config": ["a.yaml", "b.yaml"]}, "policy has a file already, a.yaml"),
    "the same twice": (["policy", "policy"], {}, "for example second-policy=policy"),
    "one name for two": (["policy", "router"], {"name": "mine"}, "write mine=policy"),
    "one priority": (["policy", "router"], {"priority": 3}, "--priority: there are several"),
    "one list of tools": (["policy", "router"], {"tools": ["a*"]}, "--tools: there are several"),
    "an empty name": (["=policy"], {}, "treasury=policy"),
}


@pytest.mark.parametrize(("specs", "given", "said"), WRONG.values(), ids=WRONG)
def test_what_is_nobodys_is_refused_with_what_to_write(specs, given, said):
    with pytest.raises(ConfigError) as refused:
        options(*specs, **given).schedulers()
    assert said in str(refused.value)


def test_a_wrong_configuration_is_told_with_the_name_of_its_scheduler(tmp_path):
    (tmp_path / "wrong.yaml").write_text("rulez: []")
    first, second = options("policy", "own=policy", config=[f"own={tmp_path / 'wrong.yaml'}"]).schedulers()
    with pytest.raises(ConfigError, match=r"^policy: policy needs a configuration: --config policy=FILE"):
        first.load()
    with pytest.raises(ConfigError, match=r"^own: .*wrong.yaml:1: rulez: unknown key"):
        second.load()


def test_names_are_completed_also_behind_a_name_of_ones_own():
    assert "policy" in complete_spec("po")
    assert complete_spec("mine=rou") == ["mine=router"]
