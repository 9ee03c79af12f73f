"""Each file that an orchestrator is given goes through one reader: nothing in it is taken by chance."""

import pytest
from toolgate_bus.commands.notify.receivers import read_config as read_notify
from toolgate_bus.errors import ConfigError
from toolgate_bus.server.settings import read_keys
from toolgate_orchestrator import Guard
from toolgate_orchestrator.commands.hook.cli import make_settings
from toolgate_orchestrator.commands.host.plan import read_plan
from toolgate_orchestrator.commands.mcp.cli import _read as read_mcp
from toolgate_orchestrator.commands.replay.with_schedulers import prices_of, specs_of, targets_of
from toolgate_orchestrator.commands.serve.cli import read_config as read_serve
from toolgate_orchestrator.modules.provider_scripted import ProviderScripted

pytestmark = pytest.mark.pure

DOORS = {
    "a guard": lambda file: Guard(str(file)),
    "a plan": read_plan,
    "a script": lambda file: ProviderScripted({"script": str(file)}),
    "serve": read_serve,
    "mcp": lambda file: read_mcp(file, (), ""),
    "a hook": lambda file: make_settings("claude", None, file, 5, "", "", "", portable=False),
    "notify": read_notify,
    "prices": lambda file: prices_of(specs_of([f"policy={file}"])),
    "targets": lambda file: targets_of(specs_of([f"policy={file}"])),
    "keys": read_keys,
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("toolgate: {required: [policy]}\ntoolgate: {required: []}\n", "f.yaml:2: "),
        ("toolgate:\n  required: [policy]\n  required: []\n", "f.yaml:3: "),
        ('toolgate:\n  "required": [policy]\n  required: []\n', "f.yaml:3: "),
        ('toolgate:\n  "r\\u0065quired": [policy]\n  required: []\n', "f.yaml:3: "),
        ("a: {b: 1}\n1: x\n'1': y\n", "f.yaml:3: "),
        ("base: &b {required: []}\ntoolgate:\n  required: [policy]\n  <<: *b\n", "f.yaml:4: the merge key"),
        ("toolgate:\n  required: !!set {policy}\n", "f.yaml:2: a tag"),
        ("# a remark\u2028toolgate: {required: []}\n", "f.yaml:1: contains the character U+2028"),
        ("%YAML 1.1\n---\ntoolgate: {}\n", "f.yaml: its line %YAML names a version"),
    ],
)
def test_what_has_two_readings_is_refused_at_every_door(tmp_path, door, text, said):
    file = tmp_path / "f.yaml"
    file.write_text(text, encoding="utf-8")
    file.chmod(0o600)
    with pytest.raises(ConfigError) as error:
        DOORS[door](file)
    assert said in str(error.value)


@pytest.mark.parametrize("door", ["a guard", "serve"])
def test_names_that_yaml_1_1_takes_for_truth_values_are_names(tmp_path, door):
    (tmp_path / "f.yaml").write_text("toolgate: {required: [NO, on], namespace: off, agent: 12:30}\n")
    read = DOORS[door](tmp_path / "f.yaml")
    fields = read if isinstance(read, dict) else read.config.model_dump(exclude_unset=True)
    assert {**fields, "required": list(fields["required"])} == {
        "required": ["NO", "on"],
        "namespace": "off",
        "agent": "12:30",
    }


@pytest.mark.parametrize("door", ["a guard", "serve"])
def test_required_beside_the_section_is_named(tmp_path, door):
    (tmp_path / "f.yaml").write_text("toolgate: {agent: clerk}\nrequired: [policy]\n")
    with pytest.raises(ConfigError, match=r"f\.yaml: required: .* move it into that section"):
        DOORS[door](tmp_path / "f.yaml")
