"""The provider's config: what is refused by name, where the key comes from, and that it is never shown."""

import re
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
from openai_client import KEY, forget_environment, provider_for, request
from openai_server import MODEL, Server, completion
from toolgate_bus.errors import ConfigError
from toolgate_bus.installation import how_to_install
from toolgate_orchestrator.modules.provider_openai.provider import ProviderOpenAI


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_environment(monkeypatch)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with Server() as started:
        yield started


async def test_a_server_without_keys_gets_a_placeholder(server: Server) -> None:
    server.answers(completion("a"), completion("b"))
    for config in ({"api_key": None}, {"api_key": ""}):
        provider = provider_for(server, **config)
        await provider.complete(request())
        await provider.close()
    assert {asked.headers["authorization"] for asked in server.requests} == {"Bearer no-key"}


async def test_key_and_server_may_come_from_the_environment(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", " sk-environment\n")
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    provider = ProviderOpenAI({"model": MODEL})
    server.answers(completion("a"))
    await provider.complete(request())
    assert server.requests[0].headers["authorization"] == "Bearer sk-environment"
    await provider.close()


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({}, "model: .*name the model to use"),
        ({"model": " "}, "model: .*name the model to use"),
        ({"model": "m", "base": "x"}, "base: unknown key; allowed: api_key, base_url"),
        ({"model": "m", "base_url": "localhost:11434"}, "base_url: .*http"),
        (
            {"model": "m", "prices": {"input_per_million": -1, "output_per_million": 1}},
            "prices.input_per_million",
        ),
        ({"model": "m", "prices": {"input_per_million": 1}}, "prices.output_per_million"),
        ({"model": "m", "max_retries": -1}, "max_retries"),
        ({"model": "m", "timeout_s": 0}, "timeout_s"),
        ({"model": "m"}, "api_key: none given; set OPENAI_API_KEY"),
        ({"model": "m", "api_key": "sk-secret\nkey"}, "api_key: .*one line"),
        (
            {"model": "m", "api_key": "k", "extra_headers": {"x": "sk-secret\r\ny: z"}},
            "extra_headers: .*one line",
        ),
    ],
)
def test_a_wrong_config_is_refused_by_name_and_without_its_secrets(
    config: dict[str, Any], named: str
) -> None:
    with pytest.raises(ConfigError, match=named) as caught:
        ProviderOpenAI(config)
    assert "sk-secret" not in str(caught.value)


def test_a_key_of_the_environment_that_cannot_be_sent_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret\nkey")
    with pytest.raises(ConfigError, match="OPENAI_API_KEY: must be one line") as caught:
        ProviderOpenAI({"model": "m"})
    assert "sk-secret" not in str(caught.value)


def test_without_the_sdk_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(ConfigError, match=re.escape(f"run `{how_to_install('llm')}`")):
        ProviderOpenAI({"model": "m", "api_key": KEY})


async def test_it_describes_itself_and_hides_its_key() -> None:
    provider = ProviderOpenAI({"model": "gpt-x", "api_key": KEY, "priority": 3, "name": "mine"})
    info = provider.get_info()
    assert (provider.name, provider.model, provider.priority, info.id) == ("mine", "gpt-x", 3, "mine")
    assert {key: info.defaults[key] for key in ("model", "context_window", "max_output_tokens")} == {
        "model": "gpt-x",
        "context_window": 128_000,
        "max_output_tokens": 8_192,
    }
    assert KEY not in f"{info!r}{vars(provider)}"
    await provider.close()
