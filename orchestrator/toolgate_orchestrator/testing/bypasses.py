"""Check that no call gets past the adapter unseen: each attempt is stopped, refused, or reported as a gap."""

from toolgate_bus.errors import ToolgateError

from toolgate_orchestrator.testing.rulings import OVER
from toolgate_orchestrator.testing.script import Actor, Delegation, Use, calls
from toolgate_orchestrator.testing.stage import PromiseBreak, Stage

_DELETE = calls(Use("delete", {"path": "secret.txt"}, "x-1"))


async def lets_nobody_change_a_call_behind_it(stage: Stage) -> str:
    """Change arguments as far behind the adapter as a user can: the call that was ruled on must run."""
    script = (calls(Use("delete", {"path": "old.txt"}, "x-1")), OVER)
    return await _attempt(stage, Actor("lead", script, ("delete",), tamper={"path": "secret.txt"}))


async def lets_no_agent_below_go_ungated(stage: Stage) -> str:
    """Check a sub-agent that was built without the adapter."""
    helper = Actor("helper", (_DELETE, OVER), ("delete",), is_gated=False)
    script = (calls(Delegation("helper", id="c-1")), OVER)
    return await _attempt(stage, Actor("lead", script, ("search",), helpers=(helper,)))


async def lets_no_late_tool_go_ungated(stage: Stage) -> str:
    """Check a tool that was added after the adapter was put in."""
    return await _attempt(stage, Actor("lead", (_DELETE, OVER), ("search",), late_tools=("delete",)))


async def _attempt(stage: Stage, lead: Actor) -> str:
    """Run the attempt, and return how it was caught."""
    with stage.guard() as guard:
        scene = stage.scene(lead, guard)
        gaps = list(stage.harness.find_gaps(scene))
        refusal = ""
        try:
            await stage.harness.run(scene)
        except ToolgateError as error:
            refusal = str(error)
        gone = [one for one in scene.toolbox.run("delete") if one["path"].startswith("secret")]
        if gone and not gaps:
            raise PromiseBreak(f"a denied call ran, and find_gaps reported no gap: {gone}")
        if gone:
            return f"named: {gaps[0]}"
        if not refusal and not any(voice.told for voice in scene.voices.values()):
            raise PromiseBreak("the attempt was not made: no model got a result")
        return f"refused: {refusal}" if refusal else "stopped"
