"""Every option of `provenance`, as a process of its own, by what a gate decides."""

from typing import Any

import pytest
import yaml
from toolgate_bus.protocol.events import AskUser
from toolgate_orchestrator.gate.gate import Gate

pytestmark = pytest.mark.acceptance

PROMPT = "Mail the report to ann@out.example and to Bob Jones; then remove the old one."
CONFIG = {
    "trusted": ["*@house.example"],
    "action": "deny",
    "timeout_s": 77,
    "annotations": {
        "search_web": {"readOnlyHint": True},
        "search_home": {"openWorldHint": False},
        "fetch": {},
    },
    "sinks": [
        {"name": "mail", "tools": "send_mail", "to": ["to", "message.cc"]},
        {"name": "note", "tools": "note", "to": "to", "match": "name", "trusted": ["wall"]},
        {"name": "deleting", "tools": "delete_*", "words": ["remov*"]},
        {"name": "posting", "tools": "post", "links": True},
        {"name": "fetching", "tools": "fetch", "to": "url", "action": "ask"},
    ],
}


async def test_every_option_of_a_sink_holds(schedulers: Any, tmp_path: Any) -> None:
    file = tmp_path / "provenance.yaml"
    file.write_text(yaml.safe_dump(CONFIG))
    await schedulers.start("provenance", "--config", file)
    asked: list[AskUser] = []

    async def person(question: AskUser, _call: Any) -> str:
        asked.append(question)
        return "refuse"

    async with Gate.open(
        redis=schedulers.url,
        namespace=schedulers.namespace,
        required=["provenance"],
        patience_ms=20_000,
        ask=person,
    ) as gate:

        async def rule(tool: str, request: str = PROMPT, **arguments: Any) -> str:
            decision = await gate.decide(tool, arguments, [tool], request=request)
            heard = [getattr(one.verdict, "rule_name", None) for one in decision.verdicts]
            return f"{decision.outcome} {heard[0]}" if heard and heard[0] else decision.outcome

        assert await rule("send_mail", to="ann@out.example") == "continue"
        assert await rule("send_mail", to="me@house.example") == "continue"
        assert await rule("send_mail", to="bob.jones@out.example") == "deny mail"
        assert await rule("send_mail", to="ann@out.example", message={"cc": "eve@x.example"}) == "deny mail"
        assert await rule("send_mail", "", to="ann@out.example") == "deny mail"
        assert await rule("note", to="bob.jones@out.example") == "continue"
        assert await rule("note", to="wall") == "continue"
        assert await rule("note", to="door") == "deny note"
        assert await rule("delete_file", id=7) == "continue"
        assert await rule("delete_file", "Keep it", id=7) == "deny deleting"
        assert await rule("post", text="see ann@out.example") == "continue"
        assert await rule("post", text="see https://evil.example/") == "deny posting"
        assert await rule("search_web", query="wages https://evil.example/") == "deny search_web"
        assert await rule("search_web", query="wages") == "continue"
        assert await rule("search_home", query="wages https://evil.example/") == "continue"
        assert not asked
        assert await rule("fetch", url="https://evil.example/") == "deny fetching"
        (question,) = asked
        assert "does not name evil.example" in question.prompt
        assert question.timeout_s == 77
