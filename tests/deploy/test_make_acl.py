"""`make_acl.py`: each role has a user, and a URL closed to others; a wrong option is refused by name."""

import re
import subprocess
import sys
from runpy import run_path

import pytest
from guarded_server import DEPLOY, make_acl
from toolgate_bus.protocol.names import PSEUDO_NAMES, STORE_NAMES
from toolgate_bus.protocol.sentinel_url import read_sentinel_url

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(180)]


def test_the_server_has_no_passwords_and_each_role_its_own_url_closed_to_others(tmp_path):
    make_acl(tmp_path, "redis://valkey:6379/0", ["policy", "treasury:approval"])
    users = (tmp_path / "users.acl").read_text()
    urls = sorted((tmp_path / "urls").iterdir())
    assert [one.name for one in urls if "scheduler" in one.name] == ["scheduler-policy", "scheduler-treasury"]
    for one in urls:
        assert one.stat().st_mode & 0o777 == 0o600
        user, _, password = one.read_text().removeprefix("redis://").partition("@")[0].partition(":")
        assert user == one.name
        assert len(password) >= 40
        assert password not in users
    assert (tmp_path / "env").stat().st_mode & 0o777 == 0o600
    assert "in:treasury " in users
    before = [one.read_text() for one in urls]
    (tmp_path / "urls" / "agent").unlink()
    make_acl(tmp_path, "redis://valkey:6379/0", ["policy", "treasury:approval"])
    after = {one.name: one.read_text() for one in urls}
    assert {one.name for one, was in zip(urls, before, strict=True) if after[one.name] != was} == {"agent"}


def test_a_copy_outside_a_clone_says_where_it_runs(tmp_path):
    copy = tmp_path / "make_acl.py"
    copy.write_text((DEPLOY / "redis" / "make_acl.py").read_text())
    ended = subprocess.run([sys.executable, copy], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr == f"{copy}: run it in a clone of Toolgate: here it lacks role_file.py\n"


def test_servers_and_sentinels_that_are_named_get_users_and_passwords_of_their_own(tmp_path):
    make_acl(tmp_path, "redis+sentinel://s1,s2:5,s3/fleet", ["policy"])
    passwords = {one.name: one.read_text() for one in (tmp_path / "nodes").iterdir()}
    assert passwords.keys() == {"replica", "sentinel", "client", "peer", "sentinel-admin"}
    assert all(one.stat().st_mode & 0o777 == 0o600 for one in (tmp_path / "nodes").iterdir())
    files = (tmp_path / "users.acl").read_text(), (tmp_path / "sentinel.acl").read_text()
    assert not any(password in text for password in passwords.values() for text in files)
    found = [[line.split()[1] for line in text.splitlines()] for text in files]
    assert {"replica", "sentinel", "agent"} <= set(found[0])
    assert set(found[1]) == {"default", "client", "peer", "admin"}
    at = read_sentinel_url((tmp_path / "urls" / "agent").read_text())
    assert at.sentinels == (("s1", 26379), ("s2", 5), ("s3", 26379))
    assert (at.sentinel_username, at.sentinel_password) == ("client", passwords["client"])
    make_acl(tmp_path, "redis+sentinel://s1,s2:5,s3/fleet", ["policy"])
    assert {one.name: one.read_text() for one in (tmp_path / "nodes").iterdir()} == passwords


def test_a_container_gets_its_own_passwords_in_a_folder_that_is_closed_to_others(tmp_path):
    make_acl(tmp_path, "redis+sentinel://s1,s2,s3/fleet", ["policy"])
    mounts = tmp_path / "mounts"
    assert mounts.stat().st_mode & 0o777 == 0o700
    agent = (tmp_path / "urls" / "agent").read_text()
    assert {one.name for one in (mounts / "agent").iterdir()} == {"server", "sentinels"}
    for one in (mounts / "agent").iterdir():
        assert one.stat().st_mode & 0o777 == 0o640  # a file that others may read is refused
        assert one.read_text() in agent
    assert {one.name for one in (mounts / "server").iterdir()} == {"server.acl", "replica", "health"}
    assert {one.name for one in (mounts / "sentinel").iterdir()} == {"sentinel.acl", "sentinel", "peer"}
    assert (mounts / "server" / "server.acl").read_text() == (tmp_path / "users.acl").read_text()
    make_acl(tmp_path, "redis://valkey:6379/0", ["policy"])  # another fleet: what it has not, is gone
    assert {one.name for one in (mounts / "agent").iterdir()} == {"server"}
    assert {one.name for one in (mounts / "server").iterdir()} == {"server.acl", "health"}


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["--scheduler", "a b"], "a b"),
        (["--scheduler", "budget"], "budget"),
        (["--scheduler", "config"], "config names keys of the shared store"),
        (["--scheduler", "order:policy"], "order names keys of the shared store"),
        (["--scheduler", "policy+pauses"], "pauses names keys of the shared store"),
        (["--scheduler", "deferred"], "deferred names keys of the shared store"),
        (["--scheduler", "approval:policy"], "approval names keys of the shared store"),
        (["--scheduler", "slots:own"], "slots names keys of the shared store"),
        (["--scheduler", "operator"], "mean somebody else by operator"),
        (["--scheduler", "in-process"], "mean somebody else by in-process"),
        (["--scheduler", "treasury:aproval"], "aproval"),
        (["--scheduler", "policy+treasury:aproval"], "aproval"),
        (["--namespace", "a:b"], "--namespace"),
        (["--server", "redis+sentinel://s1,s2,s3"], "--server"),
        (["--server", "redis://me:secret@valkey:6379/0"], "--server"),
    ],
)
def test_a_wrong_option_of_make_acl_is_refused_by_name(words, names, tmp_path):
    script = [sys.executable, str(DEPLOY / "redis" / "make_acl.py"), "--to", str(tmp_path), *words]
    ended = subprocess.run(script, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert names in ended.stderr
    assert not (tmp_path / "users.acl").exists()


def test_the_names_that_make_acl_refuses_are_those_that_the_bus_refuses():
    script = run_path(str(DEPLOY / "redis" / "make_acl.py"))
    assert (script["PSEUDO"], script["STORE"]) == (PSEUDO_NAMES, STORE_NAMES)


def test_every_first_word_of_a_key_in_the_shared_store_is_no_schedulers_name():
    script = run_path(str(DEPLOY / "redis" / "make_acl.py"))
    roles = (DEPLOY / "redis" / "roles").read_text(encoding="utf-8")
    words = set(re.findall(r":ledger\}:([A-Za-z0-9_.-]+)", roles))
    assert {"config", "deferred", "order", "pauses"} < words
    assert words <= script["STORE"] | script["KINDS"]
