"""Settings come from options or the environment, and wrong ones are refused by name, without secrets."""

import pytest
from toolgate_bus.errors import ConfigError
from toolgate_bus.protocol.cluster_url import read_cluster_url
from toolgate_bus.protocol.host_list import reach
from toolgate_bus.protocol.sentinel_url import read_sentinel_url
from toolgate_bus.server.settings import bus_settings, check_url, read_keys, redact_url

pytestmark = pytest.mark.pure

KEY = "00112233445566778899aabbccddeeff"


def test_without_options_and_environment_the_embedded_server_serves_the_default_namespace():
    settings = bus_settings()
    assert (settings.redis, settings.namespace, settings.keys) == (None, "default", None)


def test_the_environment_gives_what_no_option_gives(monkeypatch, tmp_path):
    monkeypatch.setenv("TOOLGATE_REDIS_URL", "redis://fleet:6379/1")
    monkeypatch.setenv("TOOLGATE_NAMESPACE", "prod")
    monkeypatch.setenv("TOOLGATE_KEYS", str(tmp_path / "keys.yaml"))
    settings = bus_settings()
    assert settings.redis == "redis://fleet:6379/1"
    assert settings.namespace == "prod"
    assert settings.keys == tmp_path / "keys.yaml"


def test_an_option_wins_over_the_environment(monkeypatch):
    monkeypatch.setenv("TOOLGATE_REDIS_URL", "redis://fleet:6379/1")
    monkeypatch.setenv("TOOLGATE_NAMESPACE", "prod")
    settings = bus_settings(redis="unix:///run/redis.sock?db=0", namespace="test")
    assert settings.redis == "unix:///run/redis.sock?db=0"
    assert settings.namespace == "test"


def test_an_empty_variable_is_one_that_is_not_set(monkeypatch):
    for name in ("TOOLGATE_REDIS_URL", "TOOLGATE_NAMESPACE", "TOOLGATE_KEYS"):
        monkeypatch.setenv(name, "")
    settings = bus_settings()
    assert (settings.redis, settings.namespace, settings.keys) == (None, "default", None)


@pytest.mark.parametrize("namespace", ["", "a b", "a:b", "{a}", "x" * 65, "a\n"])
def test_a_namespace_that_would_break_a_key_is_refused_by_name(namespace):
    with pytest.raises(ConfigError, match=r"^namespace: "):
        bus_settings(namespace=namespace)


@pytest.mark.parametrize(
    "url",
    [
        *(
            "redis://localhost",
            "redis://:pw@h:6379/0",
            "rediss://h:6380/2",
            "unix:///a/b.sock",
            "unix:///a?db=1",
        ),
        *("redis+sentinel://a,b:26380,c/fleet", "rediss+sentinel://u:p@a/fleet/2?sentinel_password=q"),
        *("redis+cluster://a,b:7001", "rediss+cluster://u:p@a/?address_map=10.0.0.1=a,10.0.0.2:6379=b:7001"),
    ],
)
def test_urls_of_a_server_are_taken_as_they_are(url):
    assert check_url(url) == url
    assert bus_settings(redis=url).redis == url


@pytest.mark.parametrize(
    "url",
    [
        "localhost:6379",
        "http://secret@h",
        "redis://secret@h:port",
        "redis://secret@h:99999",
        "unix:secret",
        "secret",
    ],
)
def test_any_other_url_is_refused_by_name_without_showing_it(url):
    with pytest.raises(ConfigError, match=r"^redis: .*redis://host:6379/0.*unix:///") as caught:
        bus_settings(redis=url)
    assert "secret" not in str(caught.value)
    with pytest.raises(ConfigError, match=r"^redis: "):
        check_url(url)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("redis+sentinel://u:secret@a,b", "the name of the service is missing"),
        ("redis+sentinel://u:secret@a,b/fleet/one", "the database must be a number"),
        ("redis+sentinel://u:secret@a,,b/fleet", "is not a host of a sentinel"),
        ("redis+sentinel://u:secret@a:99999/fleet", "from 1 to 65535"),
        (
            "redis+sentinel://u:secret@a/fleet?password=secret",
            "password: a redis.sentinel:// URL has no such",
        ),
        ("redis+cluster://u:secret@a,,b", "is not a host of a cluster"),
        ("redis+cluster://u:secret@a:0", "from 1 to 65535"),
        ("redis+cluster://u:secret@a/1", "a cluster has only database 0"),
        ("redis+cluster://u:secret@a?db=1", "db: a redis.cluster:// URL has no such"),
        ("redis+cluster://u:secret@a?address_map=b:1=c", "must be ANNOUNCED=REACHED"),
        ("redis+sentinel://u:secret@a/fleet?address_map=b", "must be ANNOUNCED=REACHED"),
    ],
)
def test_a_url_of_several_hosts_that_is_wrong_is_refused_by_its_part(url, why):
    with pytest.raises(ConfigError, match=why) as caught:
        bus_settings(redis=url)
    assert "secret" not in str(caught.value)


def test_servers_and_sentinels_get_each_their_own_password_from_the_environment(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("of the sentinels\n")
    (tmp_path / "file").chmod(0o600)
    monkeypatch.setenv("TOOLGATE_REDIS_PASSWORD", "of/servers")
    monkeypatch.setenv("TOOLGATE_SENTINEL_PASSWORD_FILE", str(tmp_path / "file"))
    url = check_url("redis+sentinel://me@a,b/fleet")
    read = read_sentinel_url(url)
    assert read.server_url(("s", 1)) == "redis://me:of%2Fservers@s:1/0"
    assert read.sentinel_password == "of the sentinels"
    assert redact_url(url) == "redis+sentinel://a,b/fleet"
    assert "of" not in repr(read).replace("credentials", "")
    assert check_url(url) == url


def test_the_nodes_of_a_cluster_get_the_password_from_the_environment(monkeypatch):
    monkeypatch.setenv("TOOLGATE_REDIS_PASSWORD", "of/nodes")
    url = check_url("rediss+cluster://me@a,b:7001?ssl_check_hostname=false")
    read = read_cluster_url(url)
    assert read.nodes == (("a", 6379), ("b", 7001))
    assert read.server_url(("n", 1)) == "rediss://me:of%2Fnodes@n:1?ssl_check_hostname=false"
    assert redact_url(url) == "rediss+cluster://me@a,b:7001".replace("me@", "")
    assert "of" not in repr(read)


def test_an_address_that_is_announced_is_reached_by_what_the_map_says():
    mapped = read_cluster_url("redis+cluster://a?address_map=10.0.0.1:7000=h:1,10.0.0.1=g").address_map
    assert reach(("10.0.0.1", 7000), mapped) == ("h", 1)
    assert reach(("10.0.0.1", 7001), mapped) == ("g", 7001)
    assert reach(("10.0.0.2", 7000), mapped) == ("10.0.0.2", 7000)


@pytest.fixture
def keys_file(tmp_path):
    """Write a keys file and give back its path."""

    def write(text: str | bytes):
        path = tmp_path / "keys.yaml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def test_keys_are_read_by_scheduler_name(keys_file):
    path = keys_file(f"# fleet\ncost-aware: {KEY}\npolicy: '{KEY.upper()}00'\n")
    assert read_keys(path) == {"cost-aware": bytes.fromhex(KEY), "policy": bytes.fromhex(KEY) + b"\0"}


@pytest.mark.parametrize("key", ["1" * 32, "0" * 32, "12345678e" + "0" * 23])
def test_a_key_that_looks_like_a_number_is_still_a_key(keys_file, key):
    assert read_keys(keys_file(f"a: {key}\n")) == {"a": bytes.fromhex(key)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"policy: {KEY[:-2]}\n", r"keys.yaml: policy: .*at least 16 bytes"),
        (f"policy: {KEY[:-1]}x\n", r"keys.yaml: policy: .*hexadecimal"),
        (f"policy: [{KEY}]\n", r"keys.yaml: policy: .*hexadecimal"),
        ("policy:\n", r"keys.yaml: policy: .*at least 16 bytes"),
        (f"a: {KEY}\nb c: {KEY}\n", r"keys.yaml:2: .*scheduler's name"),
        (f"? [a]\n: {KEY}\n", r"keys.yaml:1: is not YAML"),
        (f"a: {KEY}\na: {KEY}\n", r"keys.yaml:2: a name is given twice"),
        (f"- {KEY}\n", r"keys.yaml must map scheduler names"),
        ("", r"keys.yaml must map scheduler names"),
        (f"a: {KEY}: {KEY}\n", r"keys.yaml:1: is not YAML \(column"),
        (b"\xff\xfe\xff", r"keys.yaml: is not YAML$"),
        (f"a: !{KEY} 1\n", r"keys.yaml:1: a tag .* is not supported"),
        ("a: &x [*x]\n", r"keys.yaml: nested .* contains itself"),
        ("# " + "x" * (1 << 20), r"keys.yaml: longer than 1024 KiB"),
    ],
)
def test_a_wrong_keys_file_is_refused_by_file_and_entry_without_showing_a_key(keys_file, text, message):
    with pytest.raises(ConfigError, match=message) as caught:
        read_keys(keys_file(text))
    assert KEY[:-2] not in str(caught.value)


def test_a_keys_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"keys: .*none.yaml cannot be read: No such file"):
        read_keys(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("url", "names"),
    [
        ("redis://u:secret@host/0?ssl_ca_certs=/etc/hostname", "ssl_ca_certs"),
        ("rediss://u:secret@host/0?ssl_ca_cert=/etc/hostname", "ssl_ca_cert:"),
        ("rediss://u:secret@host/0?ssl_ca_certs=/nowhere/ca.crt", "/nowhere/ca.crt"),
        ("redis://u:secret@host/0?retry_on_timeout=yes", "retry_on_timeout"),
        ("unix:///s.sock?socket_timeout=1", "socket_timeout"),
    ],
)
def test_an_option_of_the_url_that_cannot_be_is_refused_by_name(url, names):
    with pytest.raises(ConfigError) as refused:
        bus_settings(redis=url)
    assert names in str(refused.value)
    assert "secret" not in str(refused.value)


def test_a_url_may_name_the_files_of_tls(tmp_path):
    (tmp_path / "ca.crt").write_text("")
    url = f"rediss://host:6380/0?ssl_ca_certs={tmp_path}/ca.crt&ssl_check_hostname=false"
    assert bus_settings(redis=url).redis == url


@pytest.mark.parametrize("mode", [0o604, 0o602, 0o666])
def test_a_file_of_secrets_that_others_can_read_is_refused(keys_file, monkeypatch, mode):
    path = keys_file(f"a: {KEY}\n")
    path.chmod(mode)
    with pytest.raises(ConfigError, match=f"chmod 600 {path}"):
        read_keys(path)
    monkeypatch.setenv("TOOLGATE_REDIS_PASSWORD_FILE", str(path))
    with pytest.raises(ConfigError, match=f"chmod 600 {path}"):
        bus_settings("redis://server:6379/0")


def test_a_password_comes_from_a_file_or_the_environment_unless_the_url_has_one(monkeypatch, tmp_path):
    file = tmp_path / "password"
    file.write_text("p@ss/w:rd\n")
    file.chmod(0o600)
    monkeypatch.setenv("TOOLGATE_REDIS_PASSWORD", "other")
    assert bus_settings("redis://anna@server:6379/0").redis == "redis://anna:other@server:6379/0"
    monkeypatch.setenv("TOOLGATE_REDIS_PASSWORD_FILE", str(file))
    assert bus_settings("rediss://server").redis == "rediss://:p%40ss%2Fw%3Ard@server"
    for own in ("redis://:mine@server", "redis://server?password=mine", "unix:///run/s.sock"):
        assert bus_settings(own).redis == own
    monkeypatch.setenv("TOOLGATE_REDIS_PASSWORD_FILE", str(tmp_path / "none"))
    with pytest.raises(ConfigError, match=r"TOOLGATE_REDIS_PASSWORD_FILE: .* cannot be read"):
        bus_settings("redis://server")


SECRETS = ("qzq#xvx/w@wjw", "qzq?xvx", "qzq/xvx", "987#xvx", "987/xvx", "987?xvx", "987?xvx&wjw", "qzq[xvx")
SECRETS += ("qzq@xvx", "987?db=1&xvx=wjw", "℀xvx", "qzq xvx", "qzq%xvx")


@pytest.mark.parametrize("url", ["redis://{}host:6379/0", "rediss://{}host", "redis+sentinel://{}a,b/fleet"])
@pytest.mark.parametrize("user", ["", "me"])
@pytest.mark.parametrize("secret", SECRETS)
def test_no_part_of_a_password_is_shown_however_it_is_written(url, user, secret):
    """One that is not percent-encoded ends the address early: the rest would be taken for path or option."""
    for one in (url, url.replace("+sentinel", "+cluster").replace("/fleet", "")):
        written = one.format(f"{user}:{secret}@")
        try:
            settings = bus_settings(redis=written)
        except ConfigError as error:
            said = str(error)
        else:
            said = f"{redact_url(settings.redis)} {settings!r}"
        for part in ("qzq", "xvx", "wjw", "987", "℀"):
            assert part not in said, said


@pytest.mark.parametrize(
    "url",
    [
        "redis://host?password=p@ss",
        "redis://host:6379/0?password=p%23ss%2Fw%40rd",
        "redis+sentinel://:p%2Fss@a,b/fleet?sentinel_password=se@cret",
        "redis://:p@ss@host:6379/0",
        "unix:///run/a@b/s.sock?db=0",
    ],
)
def test_a_password_that_can_be_read_in_one_way_is_taken_and_not_shown(url):
    settings = bus_settings(redis=url)
    assert settings.redis == url
    for secret in ("p@ss", "p%23", "p%2F", "cret"):
        assert secret not in f"{redact_url(settings.redis)} {settings!r}"
