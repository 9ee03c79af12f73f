"""Schedulers that choose agents; which way, the instruction of the delegation says."""

from toolgate_schedulers import Continue, Modify, scheduler


@scheduler(tools=["delegate"])
async def rerouter(call):
    """Another agent, by its name, by an argument, or both; once."""
    how, _, agent = call.tool_input["instruction"].partition(" ")
    if how == "target":
        return Modify(tool=call.tool_name, agent_target=agent)
    if how == "argument":
        return Modify(tool=call.tool_name, arguments={**call.tool_input, "agent": agent})
    if how == "both":
        return Modify(
            tool=call.tool_name, arguments={**call.tool_input, "agent": "nobody"}, agent_target=agent
        )
    return Continue()
