"""Adapters on the real frameworks, an environment each; and the kit itself: an agent that breaks a promise is
seen."""

import frameworks
import pytest

pytestmark = [pytest.mark.system, pytest.mark.acceptance, pytest.mark.timeout(1200)]
IN_CI = {
    "langchain": "langchain__pydantic_ai",
    "langchain__pydantic_ai": "langchain__pydantic_ai",
    "openai_agents": "openai_agents",
    "pydantic_ai": "langchain__pydantic_ai",
}
"""And the environment of each: two frameworks that go beside each other need to be installed once."""
INSTALL_S = 300.0
"""To install one; the others take longer: `make test-adapters`."""


@pytest.mark.parametrize("name", IN_CI)
def test_an_adapter_keeps_every_promise_that_its_framework_allows(name: str) -> None:
    try:
        ended = frameworks.hold(name, where=IN_CI[name], quiet=True, install_s=INSTALL_S)
    except frameworks.NoPackages as error:
        pytest.skip(f"the packages of [{frameworks.extra_of(name)}] cannot be had here: {error}")
    assert ended.returncode == 0, ended.stdout[-8_000:]
