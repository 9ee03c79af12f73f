"""A scheduler whose answers no wire carries as they are: `tool_input["answer"]` says which."""

from toolgate_schedulers import AskUser, Deny, Hold, Modify, ToolSelecting, scheduler

LONE = "\ud800"
TOO_LONG = "x" * 100_000
DEEP: dict = {}
for _ in range(60):
    DEEP = {"deeper": DEEP}

ANSWERS = {
    "deny with a lone surrogate": Deny(reason=f"never {LONE}"),
    "deny with 100,000 characters": Deny(reason=TOO_LONG),
    "deny with a priority that no reader takes": Deny.model_construct(reason="no", priority=2**40),
    "deny with a number for a reason": Deny.model_construct(reason=5),
    "ask with a lone surrogate": AskUser(prompt=f"really {LONE}?", options=("Allow once", f"Deny {LONE}")),
    "ask with 100,000 characters": AskUser(prompt=TOO_LONG),
    "ask with 1,000 long options": AskUser(prompt="?", options=(TOO_LONG[:100],) * 1000),
    "modify with a lone surrogate": Modify(tool="fetch", arguments={"url": LONE}),
    "modify with 100,000 characters": Modify(tool="fetch", arguments={"url": TOO_LONG}),
    "modify with many keys": Modify(tool="fetch", arguments={str(n): n for n in range(2000)}),
    "modify that is deep": Modify(tool="fetch", arguments=DEEP),
    "modify with a huge number": Modify(tool="fetch", arguments={"n": 2**70}),
}


@scheduler(name="wordy")
async def wordy(call: ToolSelecting):
    """Answer so; `hold` first where told to."""
    if call.tool_input.get("hold"):
        yield Hold(seconds=5, reason=f"wait {LONE}")
    yield ANSWERS[call.tool_input["answer"]]
