"""compose.sentinel.yaml and compose.cluster.yaml over compose.yaml: what goes wrong in containers alone."""

import ipaddress

import pytest
import yaml
from guarded_server import DEPLOY

pytestmark = pytest.mark.pure
OVERLAYS = ("sentinel", "cluster")
BASE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
COMPOSED = {name: yaml.safe_load((DEPLOY / f"compose.{name}.yaml").read_text()) for name in OVERLAYS}


def servers(topology):
    return {
        name: one
        for name, one in COMPOSED[topology]["services"].items()
        if one.get("command", [""] * 2)[1].endswith("/start")
    }


@pytest.mark.parametrize("topology", OVERLAYS)
def test_no_list_repeats_what_compose_yaml_has_since_compose_appends_lists(topology):
    for name, service in COMPOSED[topology]["services"].items():
        for key, value in service.items():
            there = BASE.get(name, {}).get(key)
            if isinstance(value, list) and key not in ("command", "entrypoint") and there:
                assert not set(value) & set(there), f"{name}.{key}"


@pytest.mark.parametrize("topology", OVERLAYS)
def test_whatever_is_added_is_bounded_and_confined_as_the_rest(topology):
    for name, service in COMPOSED[topology]["services"].items():
        if name not in BASE:
            assert service["mem_limit"], name
            assert service["pids_limit"] <= 256, name
            assert service["logging"]["options"] == BASE["valkey"]["logging"]["options"], name
            assert service["cap_drop"] == ["ALL"], name
            assert service["security_opt"] == ["no-new-privileges:true"], name
            assert service["group_add"] == BASE["valkey"]["group_add"], name


@pytest.mark.parametrize("topology", OVERLAYS)
def test_folders_are_mounted_and_a_change_in_them_makes_the_container_anew(topology):
    for name, service in servers(topology).items():
        mounts = [*BASE.get(name, {}).get("volumes", ()), *service.get("volumes", ())]
        ours = [one.partition(":")[0] for one in mounts if one.startswith("./")]
        label = (service.get("labels") or BASE[name]["labels"])["toolgate.files"]
        for source in ours:
            assert source.startswith("./made/mounts/") or (DEPLOY / source).is_dir(), name
            assert f"TOOLGATE_FILES_{source.rpartition('/')[2].upper()}:?" in label, name
        assert len(ours) == 2, name


def test_the_name_of_a_server_that_is_gone_is_refused_at_once():
    """Sentinels look names up every second, and wait: an answer of two seconds keeps them from a failover."""
    for name, service in servers("sentinel").items():
        assert service["dns"] == ["127.0.0.1"], name


def test_nodes_of_a_cluster_have_addresses_of_their_own_that_no_other_container_gets():
    (network,) = COMPOSED["cluster"]["networks"]["default"]["ipam"]["config"]
    default = network["subnet"].partition(":-")[2].partition("}")[0]

    def filled(text):
        return text.replace(f"${{TOOLGATE_NETWORK:-{default}}}", default)

    others, subnet = (
        ipaddress.ip_network(filled(network["ip_range"])),
        ipaddress.ip_network(filled(network["subnet"])),
    )
    given = [
        ipaddress.ip_address(filled(one["networks"]["default"]["ipv4_address"]))
        for one in servers("cluster").values()
    ]
    assert len(set(given)) == len(given) == 6
    assert subnet.is_private
    for address in given:
        assert address in subnet
        assert address not in others


@pytest.mark.parametrize("topology", OVERLAYS)
def test_commands_of_a_person_wait_for_nothing_in_no_overlay(topology):
    assert COMPOSED[topology]["services"].keys().isdisjoint({"operator", "doctor", "admin"})
