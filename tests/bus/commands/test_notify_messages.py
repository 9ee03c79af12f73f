"""Who is told, what goes out together, what never leaves, and how it is signed."""

import base64
import json
import re
from pathlib import Path

import pytest
from toolgate_bus.commands.notify.apprise_service import make_sender
from toolgate_bus.commands.notify.cli import open_receivers
from toolgate_bus.commands.notify.config import ALERTS, NotifyConfig
from toolgate_bus.commands.notify.notification import (
    MAX_LISTED,
    MAX_QUEUED,
    MAX_WAITING,
    Incident,
    Notification,
    cleanse,
    make_redactor,
    make_sample,
    put,
    receivers_of,
    take_due,
)
from toolgate_bus.commands.notify.outbox import NotifyMemory
from toolgate_bus.commands.notify.receivers import read_config
from toolgate_bus.commands.notify.webhook import make_body, read_retry_after, sign
from toolgate_bus.config.check import check
from toolgate_bus.errors import ConfigError

pytestmark = pytest.mark.pure

HOOK = {"url": "https://hooks.example/x"}
KEY = f"whsec_{base64.b64encode(bytes(32)).decode()}"
ROOT = Path(__file__).parents[3]
# apprise loads a module that Python 3.13 no longer has, if it is there.
OLD_MODULE = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")


def config(**fields):
    return NotifyConfig.model_validate({"receivers": {"ops": HOOK, "chat": HOOK}} | fields)


def incident(number=0, cause="held", severity="warning", stage="open", labels=None, **fields):
    fields = {"scheduler": "approval", "tool": "transfer", "agent": "teller", "seconds_left": 60} | fields
    return Incident(f"k{number}", cause, severity, stage, 0.0, fields, labels or {})


def due(settings, incidents, now=100.0, queued=None, waiting=None):
    waiting = {} if waiting is None else waiting
    redact = make_redactor(settings)
    for one in incidents:
        put(waiting, one, settings, redact, 0.0)
    return list(take_due(waiting, queued or {}, settings, "fleet", now))


@pytest.mark.parametrize(
    ("route", "one", "goes"),
    [
        ({}, incident(), True),
        ({"causes": ["budget"]}, incident(), False),
        ({"causes": ["held"], "severities": ["warning"]}, incident(), True),
        ({"severities": ["critical"]}, incident(), False),
        ({"labels": {"team": "pay*"}}, incident(labels={"team": "payments"}), True),
        ({"labels": {"team": "pay*"}}, incident(labels={"team": "books"}), False),
        ({"labels": {"team": "*"}}, incident(), False),
    ],
)
def test_a_route_takes_what_fits_all_that_it_says(route, one, goes):
    settings = config(routes=[{"receivers": ["ops"], **route}])
    assert receivers_of(one, settings) == (("ops",) if goes else ())


def test_whom_several_routes_name_is_told_once_and_without_routes_all_are():
    routes = [{"receivers": ["ops", "chat"]}, {"receivers": ["ops"]}]
    assert receivers_of(incident(), config(routes=routes)) == ("ops", "chat")
    assert receivers_of(incident(), config()) == ("ops", "chat")


def test_many_at_once_are_one_message_and_a_list_that_ends():
    settings = config(routes=[{"receivers": ["ops"]}])
    (one,) = due(settings, [incident(number) for number in range(MAX_WAITING + 7)])
    assert (len(one.incidents), one.left_off) == (MAX_LISTED, MAX_WAITING + 7 - MAX_LISTED)


def test_what_came_just_now_waits_for_others():
    settings, waiting = config(routes=[{"receivers": ["ops"]}], group_s=5), {}
    assert due(settings, [incident(1)], 4.9, waiting=waiting) == []
    (one,) = due(settings, [incident(2)], 5.0, waiting=waiting)
    assert len(one.incidents) == 2


def test_a_call_that_waits_still_stands_in_a_message_once():
    settings, waiting = config(routes=[{"receivers": ["ops"]}]), {}
    again = [incident(number, stage="repeat", call=f"c{number % 2}") for number in range(6)]
    (one,) = due(settings, again, waiting=waiting)
    assert [each.fields["call"] for each in one.incidents] == ["c0", "c1"]


def test_for_a_receiver_with_a_full_queue_it_waits_and_leaves_together():
    settings, waiting = config(routes=[{"receivers": ["ops"]}]), {}
    assert due(settings, [incident(1)], queued={"ops": MAX_QUEUED}, waiting=waiting) == []
    (one,) = due(settings, [incident(2)], queued={"ops": MAX_QUEUED - 1}, waiting=waiting)
    assert len(one.incidents) == 2


def test_the_same_causes_have_the_same_id_and_each_receiver_its_own():
    first, again = (due(config(), [incident(1), incident(2)]) for _ in range(2))
    assert [one.id for one in first] == [one.id for one in again]
    assert len({one.id for one in first}) == 2


@pytest.mark.parametrize(
    "planted",
    [
        "sk-abcdefghij0123456789",
        "ghp_abcdefghij0123456789abcd",
        "xoxb-1234567890-abc",
        "AKIAABCDEFGHIJKLMNOP",
        "eyJhbGciOiJI.eyJzdWIiOiIx.sig",
        "https://user:hunter2@host/",
        "ours-4711",
    ],
)
def test_what_looks_like_a_token_leaves_in_no_field_and_no_label(planted):
    settings = config(redact=["ours-[0-9]+"], labels=["team"])
    labels = {"team": f"x {planted}", "other": planted}
    one = incident(planted, tool=planted, agent=f"a {planted} b", labels=labels)
    found = due(settings, [one])
    body = make_body(found[0], "fleet", None).decode()
    assert planted not in body
    assert "hunter2" not in body
    assert "[redacted]" in body


def test_labels_leave_only_by_name():
    one = incident(labels={"team": "pay", "user": "eve"})
    assert cleanse(one, config(labels=["team", "none"]), str).labels == {"team": "pay"}


def test_a_signature_is_that_of_standard_webhooks():
    """The example of the specification."""
    key = base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    body = b'{"test": 2432232314}'
    signature = sign("msg_p5jXN8AQM9LWM0D4loKWxJek", body, key, 1614265330)
    assert signature == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_what_is_kept_is_read_back_and_nothing_else_is():
    one = make_sample("ops", 5.0, "x")
    assert Notification.from_bytes(one.to_bytes()) == one
    memory = NotifyMemory(changes="5-0", budgets={"a": 50}, waiting={"ops:held:open": [1.0, 0]})
    assert NotifyMemory.from_bytes(memory.to_bytes()) == memory
    for raw in (b"", b"x", b"\x93\x01\x02\x03"):
        with pytest.raises(ValueError, match=r"."):
            Notification.from_bytes(raw)
        with pytest.raises(ValueError, match=r"."):
            NotifyMemory.from_bytes(raw)


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("7", 7.0),
        ("0", 0.0),
        ("999999", 3600.0),
        ("Thu, 01 Jan 1970 00:01:00 GMT", 30.0),
        ("soon", None),
        (None, None),
    ],
)
def test_retry_after_is_read_in_both_forms_and_bounded(said, seconds):
    assert read_retry_after(said, 30.0) == seconds


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"receivers": {}}, "receivers"),
        ({"receivers": {"a": {}}}, "one of url, url_file, url_env"),
        ({"receivers": {"a": {"url": "ftp://x"}}}, "must be an address"),
        ({"receivers": {"a": {**HOOK, "kind": "apprise", "key_env": "K"}}}, "are for `kind: json`"),
        ({"receivers": {"a": {**HOOK, "kind": "slack"}}}, "write `kind: apprise`"),
        ({"receivers": {"a": {"url": "slack://x"}}}, "need `kind: apprise`"),
        ({"receivers": {"a": HOOK}, "routes": [{"receivers": ["b"]}]}, "no receiver is called b"),
        ({"receivers": {"a": HOOK}, "causes": {"held": {"repeat": 5}}}, "did you mean repeat_s"),
        ({"receivers": {"a": HOOK}, "redact": ["("]}, "redact.0"),
        ({"receivers": {"a b": HOOK}}, "receivers"),
    ],
)
def test_a_config_that_is_wrong_is_refused_by_its_field(wrong, words):
    with pytest.raises(ConfigError, match=words):
        check(NotifyConfig, wrong, "notify.yaml")


def test_a_key_or_address_that_is_wrong_is_refused_and_not_shown(tmp_path, monkeypatch):
    file, secret = tmp_path / "notify.yaml", tmp_path / "secret"
    file.write_text(f"receivers: {{a: {{url_file: {secret}, key_env: HOOK_KEY}}}}")
    for url, key, words in (
        (None, "whsec_x", r"secret cannot be read"),
        ("planted", KEY, r"receivers.a: url must be an address"),
        ("https://x.example", "planted", "its key must be whsec_ and 24 to 64 bytes"),
        ("https://x.example", "", "HOOK_KEY is not set"),
    ):
        if url is not None:
            secret.write_text(url)
        monkeypatch.setenv("HOOK_KEY", key)
        with pytest.raises(ConfigError, match=words) as refused:
            open_receivers(read_config(file), "fleet")
        assert "planted" not in str(refused.value)


LINKS = (
    *(
        "https://evil.example/x?q=1",
        "evil.example/x",
        "www.evil.example",
        "ftp://evil.example",
        "evil。example",
    ),
    *(
        "mailto:eve@evil.example",
        "eve@evil.example",
        "@everyone",
        "@here",
        "slack://x",
        "<https://evil.example|pay>",
    ),
    *("<!channel>", "<@U123>", "<b>x</b>"),
    *("[pay](https://evil.example)", "évil.example", "evil.example.", "a.b.c.run", "xn--evl-ema.example"),
)
UNFOLDED = re.compile(r"://|[<>]|@\w|\w[.。]\w*[^\W\d_]")


@pytest.mark.parametrize("name", LINKS)
def test_no_name_that_an_agent_chose_becomes_a_link_or_calls_anybody(name):
    one = Notification("msg_1", "ops", (incident(tool=name, agent=name, scheduler=name),), 0, 100.0)
    text = json.loads(make_body(one, "fleet", "https://console.example"))["text"]
    line, own = text.rsplit("\n", 1)
    assert own == "https://console.example#approvals"
    assert UNFOLDED.search(line) is None, line


def test_what_is_no_link_stays_as_it_is():
    one = Notification("msg_1", "ops", (incident(tool="mail_send", agent="v1.2 (0.50), ok."),), 0, 100.0)
    text = json.loads(make_body(one, "fleet", None))["text"]
    assert text.startswith("Toolgate fleet: mail_send of v1.2 (0.50), ok. (approval) waits for a person")


@pytest.mark.parametrize("cause", ALERTS)
@pytest.mark.parametrize("where", ["routes", "causes"])
def test_a_cause_that_is_an_alert_now_is_refused_with_the_name_of_the_alert(cause, where):
    named = {"routes": [{"receivers": ["ops"], "causes": ["held", cause]}], "causes": {cause: {"after_s": 5}}}
    with pytest.raises(ConfigError) as refused:
        check(NotifyConfig, {"receivers": {"ops": HOOK}, where: named[where]}, "notify.yaml")
    assert "Alertmanager does, by" in str(refused.value)
    for alert in ALERTS[cause].split(" and "):
        assert alert in str(refused.value)


def test_the_alerts_that_took_the_place_of_causes_are_shipped():
    rules = (ROOT / "deploy" / "prometheus" / "rules" / "toolgate-alerts.yml").read_text()
    for alert in " and ".join(ALERTS.values()).split(" and "):
        assert f"- alert: {alert}\n" in rules


def test_what_an_earlier_version_kept_of_such_causes_is_dropped_and_the_rest_read():
    memory = NotifyMemory(waiting={"ops:gone:open": [1.0, 0], "ops:held:open": [2.0, 0]})
    assert NotifyMemory.from_bytes(memory.to_bytes()).waiting == {"ops:held:open": [2.0, 0]}


@OLD_MODULE
@pytest.mark.parametrize("address", ["planted://x", "planted", "slack://planted", ""])
def test_an_address_that_apprise_does_not_know_is_refused_and_not_shown(
    tmp_path, monkeypatch, caplog, address
):
    file = tmp_path / "notify.yaml"
    file.write_text("receivers: {a: {kind: apprise, url_env: HOOK}}")
    monkeypatch.setenv("HOOK", address)
    with pytest.raises(ConfigError, match=r"apprise knows|HOOK is not set") as refused:
        open_receivers(read_config(file), "fleet")
    assert "planted" not in str(refused.value) + caplog.text


@OLD_MODULE
def test_an_address_cannot_have_apprise_try_again_and_a_text_that_is_too_long_is_cut():
    (service,) = make_sender("json://127.0.0.1:9/?retry=3&wait=5")
    assert (service.retry, service.wait, service.overflow_mode) == (0, 0.0, "truncate")
    (service,) = make_sender("json://127.0.0.1:9/?overflow=split")
    assert service.overflow_mode == "split"
