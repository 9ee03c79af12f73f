"""Whatever a server or a connection does wrong becomes the kernel's error for it, without a secret."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from amplifier_core import llm_errors
from openai_client import KEY, events_of, forget_environment, of_type, provider_for, request
from openai_server import MODEL, Exchange, Server, chunk, completion, error, finish, streamed, text
from toolgate_orchestrator.modules.provider_openai.client import ErrorSource, translate_error
from toolgate_orchestrator.modules.provider_openai.provider import ProviderOpenAI
from toolgate_orchestrator.turn.values.messages import text_of


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_environment(monkeypatch)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with Server() as started:
        yield started


@pytest.fixture
async def provider(server: Server) -> AsyncIterator[ProviderOpenAI]:
    provider = provider_for(server)
    yield provider
    await provider.close()


@pytest.mark.parametrize(
    ("status", "more", "kind", "retryable"),
    [
        (400, {}, llm_errors.InvalidRequestError, False),
        (400, {"code": "context_length_exceeded"}, llm_errors.ContextLengthError, False),
        (400, {"message": "maximum context length is 4096"}, llm_errors.ContextLengthError, False),
        (400, {"code": "content_filter"}, llm_errors.ContentFilterError, False),
        (401, {}, llm_errors.AuthenticationError, False),
        (403, {}, llm_errors.AccessDeniedError, False),
        (404, {}, llm_errors.NotFoundError, False),
        (408, {}, llm_errors.LLMTimeoutError, True),
        (409, {}, llm_errors.ProviderUnavailableError, True),
        (413, {}, llm_errors.ContextLengthError, False),
        (418, {}, llm_errors.InvalidRequestError, False),
        (422, {}, llm_errors.InvalidRequestError, False),
        (429, {}, llm_errors.RateLimitError, True),
        (429, {"code": "insufficient_quota"}, llm_errors.QuotaExceededError, False),
        (500, {}, llm_errors.ProviderUnavailableError, True),
        (503, {}, llm_errors.ProviderUnavailableError, True),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_each_status_is_an_error_of_its_kind(
    server: Server,
    provider: ProviderOpenAI,
    status: int,
    more: dict[str, Any],
    kind: type[llm_errors.LLMError],
    retryable: bool,
    stream: bool,
) -> None:
    server.answers(error(status, **{"message": f"said no to {KEY}", **more}))
    with pytest.raises(llm_errors.LLMError) as caught:
        await (events_of(provider) if stream else provider.complete(request()))
    failed = caught.value
    assert type(failed) is kind
    assert (failed.status_code, failed.retryable) == (status, retryable)
    assert (failed.provider, failed.model) == ("openai-compatible", MODEL)
    assert str(failed) == more.get("message", "said no to [secret]")
    assert failed.__cause__ is not None
    assert KEY not in f"{failed!r}{failed.__cause__}{failed.__cause__!r}{vars(failed.__cause__)['body']}"


@pytest.mark.parametrize(
    ("header", "value", "seconds"),
    [
        ("retry-after", "7", 7.0),
        ("retry-after-ms", "1500", 1.5),
        ("retry-after", "-1", None),
        ("retry-after", "soon", None),
        ("retry-after", "Wed, 21 Oct 2015 07:28:00 GMT", 0.0),
    ],
)
async def test_how_long_to_wait_is_read_from_the_header(
    server: Server, provider: ProviderOpenAI, header: str, value: str, seconds: float | None
) -> None:
    server.answers(error(429, headers={header: value}))
    with pytest.raises(llm_errors.RateLimitError) as caught:
        await provider.complete(request())
    assert caught.value.retry_after == seconds


@pytest.mark.parametrize(
    "body", ['{"error": "plain"}', '{"detail": [{"loc": ["plain"]}]}', "plain", '["plain"]']
)
async def test_errors_in_other_forms_say_what_the_server_said(
    server: Server, provider: ProviderOpenAI, body: str
) -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.raw(body.encode(), 422, {"content-type": "application/json"})

    server.answers(answer)
    with pytest.raises(llm_errors.InvalidRequestError, match="plain"):
        await provider.complete(request())


@pytest.mark.parametrize("chunked", [True, False])
@pytest.mark.parametrize("begun", [(), (text("half an"),)])
async def test_a_connection_that_breaks_in_mid_stream_is_a_retryable_error(
    server: Server, provider: ProviderOpenAI, chunked: bool, begun: tuple[Any, ...]
) -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.begin(chunked=chunked)
        await exchange.send(*begun)
        exchange.drop()

    server.answers(answer)
    said: list[Any] = []
    with pytest.raises(llm_errors.StreamError) as caught:
        await events_of(provider, into=said)
    assert caught.value.retryable
    assert [event["text"] for event in of_type(said, "text.delta")] == ["half an"] * len(begun)


async def test_an_end_without_a_finish_reason_is_no_answer(server: Server, provider: ProviderOpenAI) -> None:
    server.answers(streamed(text("half an")))
    with pytest.raises(llm_errors.StreamError, match="before it was complete") as caught:
        await events_of(provider)
    assert caught.value.retryable


async def test_what_breaks_behind_a_whole_answer_does_not_matter(
    server: Server, provider: ProviderOpenAI
) -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.begin()
        await exchange.send(text("all of it"), finish())
        exchange.drop()

    server.answers(answer)
    assert text_of((await events_of(provider))[-1]) == "all of it"


@pytest.mark.parametrize("garbage", [b"data: {oops\n\n", b'data: {"id": "\xff"}\n\n'])
async def test_garbage_in_a_stream_is_an_error_and_no_crash(
    server: Server, provider: ProviderOpenAI, garbage: bytes
) -> None:
    server.answers(streamed(text("a"), garbage, finish()))
    with pytest.raises(llm_errors.StreamError):
        await events_of(provider)


async def test_an_error_that_the_server_tells_in_mid_stream_keeps_its_kind(
    server: Server, provider: ProviderOpenAI
) -> None:
    server.answers(
        streamed(text("a"), {"error": {"message": "bad input", "code": 400}}),
        streamed(text("a"), {"error": {"message": "engine died"}}),
        streamed(text("a"), {"error": {"message": "no", "code": "context_length_exceeded"}}),
    )
    for kind in (llm_errors.InvalidRequestError, llm_errors.StreamError, llm_errors.ContextLengthError):
        with pytest.raises(kind):
            await events_of(provider)


@pytest.mark.parametrize(
    "odd", [[1], "text", 5, {}, {"choices": 7}, {"choices": [None]}, chunk({"content": 5})]
)
async def test_chunks_of_other_shapes_are_passed_over(
    server: Server, provider: ProviderOpenAI, odd: Any
) -> None:
    server.answers(streamed(text("a"), odd, text("b"), finish()))
    assert text_of((await events_of(provider))[-1]) == "ab"


async def test_a_page_instead_of_an_answer_points_at_the_base_url(
    server: Server, provider: ProviderOpenAI
) -> None:
    async def page(exchange: Exchange) -> None:
        await exchange.raw(b"<html>welcome</html>", 200, {"content-type": "text/html"})

    server.answers(page, page)
    with pytest.raises(llm_errors.ConfigurationError, match="right base_url"):
        await provider.complete(request())
    with pytest.raises(llm_errors.StreamError, match="before it was complete"):
        await events_of(provider)


async def test_a_page_of_an_error_is_one_line(server: Server, provider: ProviderOpenAI) -> None:
    page = b"<!DOCTYPE HTML>\n<html><head><title>Error\nresponse</title></head><body>Code: 501</body></html>"

    async def answer(exchange: Exchange) -> None:
        await exchange.raw(page, 501, {"content-type": "text/html"})

    server.answers(answer)
    with pytest.raises(llm_errors.ProviderUnavailableError) as failed:
        await provider.complete(request())
    words = "answers with HTTP 501 and a web page (Error response), as no LLM does"
    assert str(failed.value) == f"{provider._endpoint.whose.server} {words}"


async def test_an_answer_that_the_filter_took_away_is_an_error(
    server: Server, provider: ProviderOpenAI
) -> None:
    server.answers(completion(None, finish_reason="content_filter"), streamed(finish("content_filter")))
    with pytest.raises(llm_errors.ContentFilterError):
        await provider.complete(request())
    with pytest.raises(llm_errors.ContentFilterError):
        await events_of(provider)


async def test_a_server_that_is_not_there_is_a_network_error() -> None:
    async with Server() as gone:
        url = gone.url
    provider = ProviderOpenAI({"base_url": url, "model": MODEL, "max_retries": 0})
    with pytest.raises(llm_errors.NetworkError, match=r"127\.0\.0\.1") as caught:
        await provider.complete(request())
    assert caught.value.retryable
    with pytest.raises(llm_errors.NetworkError):
        await events_of(provider)
    await provider.close()


def test_secrets_are_taken_out_of_the_whole_chain_of_an_error() -> None:
    inner, outer = OSError(f"refused {KEY}"), RuntimeError("outer")
    outer.__cause__ = inner
    failed = translate_error(outer, ErrorSource("p", "s", (KEY,)), "m")
    assert str(failed) == "outer"
    assert str(inner) == "refused [secret]"
