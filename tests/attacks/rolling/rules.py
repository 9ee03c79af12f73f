"""The same rule as `version_one.py` has, for `toolgate scheduler run rules:rules`."""

from toolgate_schedulers import Continue, Deny, scheduler


@scheduler(name="rules")
async def rules(call):
    """Never `rm`."""
    return Deny(reason="never") if call.tool_name == "rm" else Continue()
