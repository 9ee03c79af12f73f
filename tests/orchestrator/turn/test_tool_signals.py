"""What a tool's failure says of itself is read in short, within bounds, and hurts nobody."""

import email.utils
import time
import urllib.error
from email.message import Message

import httpx2
import pytest
from amplifier_core.llm_errors import RateLimitError
from toolgate_bus.errors import CodecError
from toolgate_bus.facts.validation import check_fact
from toolgate_orchestrator.turn.values.tool_signals import read_retry_after, signals_in, signals_of

pytestmark = pytest.mark.pure


def error_with(**fields):
    made = RuntimeError("no")
    made.__dict__.update(fields)
    return made


def raised_from(cause):
    made = ValueError("no")
    made.__cause__ = cause
    return made


def http_error(status, **headers):
    request = httpx2.Request("GET", "http://a.b")
    response = httpx2.Response(status, headers=headers, request=request)
    return httpx2.HTTPStatusError("no", request=request, response=response)


def url_error(status, after):
    headers = Message()
    headers["Retry-After"] = after
    return urllib.error.HTTPError("http://a.b", status, "no", headers, None)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("429"), {}),
        (error_with(status_code=429), {"signal": "429"}),
        (error_with(status=503, retry_after=2), {"signal": "503", "retry_after": 2.0}),
        (error_with(code="RESOURCE_EXHAUSTED"), {"signal": "RESOURCE_EXHAUSTED"}),
        (error_with(status="failed", code="429"), {"signal": "429"}),
        (http_error(429, **{"Retry-After": "7"}), {"signal": "429", "retry_after": 7.0}),
        (url_error(429, "1.5"), {"signal": "429", "retry_after": 1.5}),
        (RateLimitError("no", status_code=429, retry_after=3), {"signal": "429", "retry_after": 3.0}),
        (TimeoutError(), {"signal": "timeout"}),
        (httpx2.ReadTimeout("no"), {"signal": "timeout"}),
        (raised_from(error_with(status_code=429)), {"signal": "429"}),
        (error_with(status_code=20_000, status=True, code="x" * 65, retry_after="soon"), {}),
        (error_with(code="a b", retry_after=float("nan")), {}),
        (error_with(retry_after=10**400), {}),
        (error_with(retry_after=1e9), {"retry_after": 86_400.0}),
        (error_with(retry_after=-1), {}),
    ],
)
def test_what_was_raised_says(error, said):
    assert signals_of(error) == said


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ({"message": "429"}, {}),
        ({"status": 429, "retry_after": 2}, {"signal": "429", "retry_after": 2.0}),
        ({"type": "ReadTimeout", "code": "e_1"}, {"signal": "timeout"}),
        ({"code": "rate_limited"}, {"signal": "rate_limited"}),
        ({"code": ["429"], "status": {}, "type": 1, "retry_after": []}, {}),
        ("429", {}),
        (None, {}),
    ],
)
def test_what_a_result_tells_says(error, said):
    assert signals_in(error) == said


def test_a_retry_after_may_be_a_date_as_http_has_it():
    now = time.time()
    told = read_retry_after(email.utils.formatdate(now + 60, usegmt=True), now)
    assert told == pytest.approx(60, abs=1)
    assert read_retry_after(email.utils.formatdate(now - 60, usegmt=True), now) == 0
    assert read_retry_after("Mon, 99 Nov 99999 99:99:99 GMT", now) is None
    assert read_retry_after("9" * 200, now) is None


class Hostile(Exception):  # noqa: N818
    """Whatever is asked of it raises."""

    @property
    def status_code(self):
        raise GeneratorExit

    @property
    def response(self):
        return self

    @property
    def headers(self):
        raise SystemExit

    @property
    def __class__(self):
        raise RuntimeError


def test_what_raises_when_it_is_read_says_nothing():
    assert signals_of(Hostile()) == {}
    looped = error_with()
    looped.__cause__ = looped
    assert signals_of(looped) == {}


@pytest.mark.parametrize("fields", [{"signal": ["429"]}, {"signal": True}, {"retry_after": {}}])
def test_a_fact_may_say_it_as_it_stood_in_a_header_and_not_as_anything_else(fields):
    assert check_fact({"event": "tool:error", "signal": 429, "retry_after": "1"})
    with pytest.raises(CodecError):
        check_fact({"event": "tool:error", **fields})
