"""A desk that hands over to billing, on the OpenAI Agents SDK. Toolgate needs the guard and `gate`."""

from agents import Agent, function_tool
from toolgate_orchestrator import Guard
from toolgate_orchestrator.contrib.openai_agents import gate

guard = Guard(required=["policy"], namespace="example-openai-agents")


@function_tool
def refund(order: str, amount: float) -> str:
    """Pay money back."""
    return f"paid {amount:g} EUR back for order {order}"


billing = Agent(name="billing", tools=[refund])
desk = Agent(name="desk", handoffs=[billing])
gate(desk, guard)
