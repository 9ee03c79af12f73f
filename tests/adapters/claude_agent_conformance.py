"""Claude Agent SDK, held to the kit: the SDK is real; its CLI is a scripted one, which speaks its control
protocol in this process and has the kit's tools as its own."""

import asyncio
import itertools
import json
from types import SimpleNamespace
from typing import ClassVar

from claude_agent_sdk import (
    ClaudeAgentOptions,
    HookMatcher,
    PermissionResultAllow,
    PermissionResultDeny,
    ResultMessage,
    Transport,
    query,
)
from toolgate_orchestrator.contrib.claude_agent import gate, watch
from toolgate_orchestrator.contrib.claude_agent.check import find_gaps
from toolgate_orchestrator.testing import (
    INPUT_TOKENS,
    MODEL,
    OUTPUT_TOKENS,
    Actor,
    AdapterSuite,
    Conversation,
    Delegation,
    Harness,
    OpenQuestion,
    Stage,
    ToolAnswer,
    Use,
    calls,
    says,
)
from toolgate_orchestrator.testing.reader import CLASSIFIED, KEY, MARK, PAGES

WITHHELD = f"The tool ran, but its result is withheld: {CLASSIFIED}"


class ScriptedCli(Transport):
    """What the CLI does at the other end: asks before each tool, runs it, tells what became of it."""

    def __init__(self, scene, functions):
        self.scene, self.functions = scene, functions
        self.hooks, self.waiting, self.numbers = {}, {}, itertools.count(1)
        self.lines, self.work, self.told = asyncio.Queue(), None, {}

    async def connect(self):
        """There is no process."""

    def is_ready(self):
        return True

    async def end_input(self):
        """It goes on until it has said everything."""

    async def close(self):
        if self.work is not None:
            self.work.cancel()
            await asyncio.wait({self.work})

    async def read_messages(self):
        while (line := await self.lines.get()) is not None:
            yield line

    async def write(self, data):
        said = json.loads(data)
        if said["type"] == "control_response":
            self.waiting.pop(said["response"]["request_id"]).set_result(said["response"])
        elif said["type"] == "control_request":  # initialize
            self.hooks = said["request"]["hooks"] or {}
            response = {"hook_on_failure_supported": True, "hooks_applied": True}
            told = {"subtype": "success", "request_id": said["request_id"], "response": response}
            await self.lines.put({"type": "control_response", "response": told})
        elif self.work is None:
            self.work = asyncio.create_task(self.converse())

    async def ask(self, **request):
        """A control request to the SDK, and what it answers."""
        id_ = f"cli-{next(self.numbers)}"
        self.waiting[id_] = asyncio.get_running_loop().create_future()
        await self.lines.put({"type": "control_request", "request_id": id_, "request": request})
        response = await self.waiting[id_]
        return None if response["subtype"] == "error" else response["response"]

    async def fire(self, event, who, **fields):
        """All callbacks of an event, at once; None stands for one that failed."""
        told = {"hook_event_name": event, "session_id": self.scene.session, "cwd": "/", **who, **fields}
        asked = [
            (
                matcher,
                self.ask(
                    subtype="hook_callback",
                    callback_id=id_,
                    input=told,
                    tool_use_id=fields.get("tool_use_id"),
                ),
            )
            for matcher in self.hooks.get(event, ())
            for id_ in matcher["hookCallbackIds"]
        ]
        answers = await asyncio.gather(*(one for _, one in asked))
        return [
            {
                "hookSpecificOutput": {
                    "permissionDecision": "deny",
                    "permissionDecisionReason": "a hook failed",
                }
            }
            if answer is None and matcher.get("onFailure") == "block"
            else answer or {}
            for (matcher, _), answer in zip(asked, answers, strict=True)
        ]

    async def converse(self):
        words = await self.play(self.scene.lead, {})
        usage = {"input_tokens": INPUT_TOKENS, "output_tokens": OUTPUT_TOKENS}
        about = {"duration_ms": 1, "duration_api_ms": 1, "is_error": False, "num_turns": 1}
        result = {"session_id": self.scene.session, "result": words, "usage": usage, "total_cost_usd": 0.25}
        model = {MODEL: {"costUSD": 0.25}}
        await self.lines.put({"type": "result", "subtype": "success", **about, **result, "modelUsage": model})
        await self.lines.put(None)

    async def play(self, actor, who):
        """One agent, to its last words; `who` are the fields that a sub-agent's events bear."""
        told = []
        while True:
            speech = self.scene.voice(actor).speak(told)
            text = [{"type": "text", "text": speech.words}] if speech.words else []
            uses = [_use(one) for one in speech.calls]
            await self.say("assistant", {"content": [*text, *uses], "model": MODEL, "role": "assistant"})
            if not uses:
                await self.fire("SubagentStop" if who else "Stop", who)
                return speech.words
            results = await asyncio.gather(*(self.call(actor, who, use) for use in uses))
            blocks = [
                {"type": "tool_result", "tool_use_id": use["id"], "content": result}
                for use, result in zip(uses, results, strict=True)
            ]
            await self.say("user", {"content": blocks, "role": "user"})
            told += [ToolAnswer(use["id"], "", result) for use, result in zip(uses, results, strict=True)]

    async def say(self, kind, message):
        await self.lines.put(
            {"type": kind, "message": message, "session_id": self.scene.session, "uuid": "u"}
        )

    async def call(self, actor, who, use):
        """One call, as the CLI rules on it: a denial before a question before a change."""
        about = {"tool_name": use["name"], "tool_use_id": use["id"]}
        arguments = use["input"]
        answers = await self.fire("PreToolUse", who, tool_input=arguments, **about)
        said = [one.get("hookSpecificOutput") or {} for one in answers]
        decisions = [one.get("permissionDecision") for one in said]
        for one in said:
            if one.get("permissionDecision") == "deny":
                return one["permissionDecisionReason"]
        for one in said:
            arguments = one.get("updatedInput") or arguments
        if "ask" in decisions:
            reason = said[decisions.index("ask")]["permissionDecisionReason"]
            person = {"subtype": "can_use_tool", "input": arguments, "decision_reason": reason, **about}
            answer = await self.ask(**person)
            if answer is None or answer["behavior"] != "allow":
                return (answer or {}).get("message", "nobody to ask")
            arguments = answer["updatedInput"]
        try:
            result = await self.run(actor, use["name"], arguments)
        except Exception as error:  # noqa: BLE001 - the tool's own
            await self.fire("PostToolUseFailure", who, tool_input=arguments, error=str(error), **about)
            return f"Error: {error}"
        after = await self.fire("PostToolUse", who, tool_input=arguments, tool_response=result, **about)
        said = [one.get("hookSpecificOutput") or {} for one in after]
        for one in said:
            result = one.get("updatedToolOutput", result)
        return "\n".join([*(one["additionalContext"] for one in said if "additionalContext" in one), result])

    async def run(self, actor, tool, arguments):
        if tool == "Task":
            (helper,) = [one for one in actor.helpers if one.name == arguments["subagent_type"]]
            return await self.play(helper, {"agent_id": f"a-{helper.name}", "agent_type": helper.name})
        return await self.functions[tool](**arguments)


def _use(step):
    if isinstance(step, Delegation):
        arguments = {"subagent_type": step.to, "prompt": step.task}
        return {"type": "tool_use", "id": step.id, "name": "Task", "input": arguments}
    return {"type": "tool_use", "id": step.id, "name": step.tool, "input": dict(step.arguments)}


class ClaudeAgentHarness(Harness):
    framework = "Claude Agent SDK"
    packages = ("claude-agent-sdk",)
    adapter = "toolgate_orchestrator.contrib.claude_agent.adapter"
    cannot: ClassVar = {
        "tool": "The CLI runs its own tools: another cannot run in a call's place, and denies it.",
        "handoff": "The SDK has sub-agents, and no handoffs.",
        "usage": "The CLI tells what a whole turn used and cost: one fact a turn, not one a request.",
        "errors": "The CLI cannot replace an error: where a part of one was hidden, the turn ends.",
        "sync": "The SDK has no blocking form.",
    }

    async def run(self, scene, answers=None):
        waits, questions = asyncio.get_running_loop().create_future(), {}

        async def person(tool, arguments, context):
            questions[context.tool_use_id] = OpenQuestion(
                context.tool_use_id, tool, arguments, context.decision_reason
            )
            allowed = (await waits)[context.tool_use_id] == "allow"
            return PermissionResultAllow() if allowed else PermissionResultDeny(message="The person says no.")

        running = asyncio.create_task(self._run(scene, self._options(scene, person)))
        try:
            while not running.done() and not questions:
                await asyncio.wait({running}, timeout=0.01)
        except asyncio.CancelledError:
            running.cancel()
            await asyncio.wait({running})
            raise
        if questions:
            return Conversation("", tuple(questions.values()), state=(running, waits))
        return await running

    async def resume(self, scene, conversation, answers):
        running, waits = conversation.state
        waits.set_result(answers)
        return await running

    async def stream(self, scene):
        return await self.run(scene)

    def find_gaps(self, scene):
        return [str(one) for one in find_gaps(self._options(scene, None))]

    async def _run(self, scene, options):
        functions = {one.__name__: one for one in scene.toolbox.functions(*_names(scene.lead))}
        transport, events, answer = ScriptedCli(scene, functions), [], ""
        async for message in watch(query(prompt=scene.prompt, options=options, transport=transport), options):
            events.append(f"{type(message).__name__} {getattr(message, 'content', '')}")
            if isinstance(message, ResultMessage):
                answer = message.result
        return Conversation(answer, (), tuple(events), tuple(events))

    def _options(self, scene, person):
        async def tamper(fields, id_, context):
            others = {**fields["tool_input"], **scene.lead.tamper}
            told = {"hookEventName": "PreToolUse", "permissionDecision": "allow", "updatedInput": others}
            return {"hookSpecificOutput": told}

        hooks = {"PreToolUse": [HookMatcher(hooks=[tamper])]} if scene.lead.tamper else None
        options = ClaudeAgentOptions(hooks=hooks, can_use_tool=person)
        return gate(options, scene.guard) if scene.guard else options


def _names(actor):
    below = [name for one in actor.helpers for name in _names(one)]
    return [*actor.tools, *actor.late_tools, *below]


class TestClaudeAgent(AdapterSuite):
    harness = ClaudeAgentHarness()

    def test_an_output_keeps_the_shape_that_the_cli_asks_for_or_ends_the_turn(self, world):
        def shell(text):
            return {"stdout": text, "stderr": "", "interrupted": False, "isImage": False}

        outputs = {
            "shell": (shell(PAGES["keys"]), (shell(PAGES["keys"].replace(KEY, MARK)), True)),
            "withheld": (shell(PAGES["vault"]), (shell(""), False)),
            "file": (
                {"type": "text", "file": {"filePath": "/a", "content": PAGES["vault"], "numLines": 9}},
                ({"type": "text", "file": {"filePath": "", "content": "", "numLines": 0}}, False),
            ),
            "fine": (shell("fine"), (None, True)),
        }

        async def run():
            seen = {}
            with world.guard() as guard:
                options = gate(ClaudeAgentOptions(), guard)
                for name, (output, _) in outputs.items():
                    use = use_of("fetch", {"page": name})
                    await tell(options, "PreToolUse", use)
                    told = await tell(options, "PostToolUse", {**use, "tool_response": output})
                    output = told.get("hookSpecificOutput", {}).get("updatedToolOutput")
                    seen[name] = (output, told.get("continue_", True))
                await tell(options, "PreToolUse", use)
                ends = await tell(options, "PostToolUseFailure", {**use, "error": PAGES["vault"]})
                await tell(options, "PreToolUse", use)
                numbers = await tell(options, "PostToolUse", {**use, "tool_response": [PAGES["vault"]]})
                return seen, ends, numbers

        seen, *ends = asyncio.run(run())
        assert seen == {name: wanted for name, (_, wanted) in outputs.items()}
        assert [(one["continue_"], one["stopReason"]) for one in ends] == [(False, WITHHELD)] * 2

    def test_a_turns_cost_is_told_once(self, world):
        async def run():
            stage = Stage(self.harness, world)
            with stage.guard() as guard:
                lead = Actor(
                    "lead", (calls(Use("search", {"query": "tea"}, "c-1")), says("Done.")), ("search",)
                )
                scene = stage.scene(lead, guard)
                await self.harness.run(scene)
                return await stage.facts(scene, "usage")

        (fact,) = asyncio.run(run())
        assert (fact["input_tokens"], fact["output_tokens"]) == (INPUT_TOKENS, OUTPUT_TOKENS)
        assert (fact["model"], float(fact["cost_usd"])) == (MODEL, 0.25)

    def test_a_person_who_changes_what_they_are_shown_changes_nothing_of_what_runs(self, world):
        async def person(tool, arguments, context):
            arguments["filter"]["limit"] = 5000
            return PermissionResultAllow()

        async def run():
            with world.guard() as guard:
                options = gate(ClaudeAgentOptions(can_use_tool=person), guard)
                use = use_of("search", {"query": "tea", "filter": {"limit": 1}})
                assert await tell(options, "PreToolUse", use) == {}
                context = SimpleNamespace(tool_use_id="c-1")
                return await options.can_use_tool("search", use["tool_input"], context)

        assert asyncio.run(run()).updated_input == {"query": "tea", "filter": {"limit": 1}}

    def test_a_denied_call_that_bears_another_ones_id_is_not_told_as_run(self, world):
        async def run():
            stage = Stage(self.harness, world)
            with stage.guard() as guard:
                scene = stage.scene(Actor("lead"), guard)
                options = gate(ClaudeAgentOptions(), guard)
                harmless = use_of("search", {"query": "tea"}, scene.session)
                denied = use_of("delete", {"path": "secret.txt"}, scene.session)
                assert await tell(options, "PreToolUse", harmless) == {}
                assert "deny" in str(await tell(options, "PreToolUse", denied))
                await tell(options, "PostToolUse", {**denied, "tool_response": "deleted"})
                await guard.flush()
                before = [one for one in await world.facts(scene.session) if one["event"] == "tool:post"]
                await tell(options, "PostToolUse", {**harmless, "tool_response": "found"})
                return before, await stage.facts(scene, "tool:post")

        before, after = asyncio.run(run())
        assert (before, [one["tool"] for one in after]) == ([], ["search"])


def use_of(tool, arguments, session="s-1"):
    return {"session_id": session, "tool_name": tool, "tool_input": arguments, "tool_use_id": "c-1"}


async def tell(options, event, fields):
    """What our callback answers to an event."""
    callback = options.hooks[event][-1].hooks[0]
    return await callback({"hook_event_name": event, **fields}, fields["tool_use_id"], None)
