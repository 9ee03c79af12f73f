"""A clerk for orders, on LangGraph. What Toolgate needs are the guard and the line `middleware=`."""

from langchain.agents import create_agent
from langchain.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from toolgate_orchestrator import Guard
from toolgate_orchestrator.contrib.langchain import ToolgateMiddleware

guard = Guard(agent="clerk", required=["policy"], namespace="example-langgraph")


@tool
def refund(order: str, amount: int) -> str:
    """Pay money back for an order, in EUR."""
    return f"paid {amount} EUR back for order {order}"


@tool
def delete_order(order: str) -> str:
    """Delete an order."""
    return f"deleted order {order}"


def make_agent(model):
    """Return the agent on this LLM."""
    return create_agent(
        model,
        [refund, delete_order],
        middleware=[ToolgateMiddleware(guard)],
        checkpointer=InMemorySaver(),
        name="clerk",
    )
