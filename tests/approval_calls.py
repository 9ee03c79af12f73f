"""Rules of approval, and calls that it is asked about."""

from toolgate_bus.config.check import check
from toolgate_bus.config.document import parse_document
from toolgate_bus.protocol.events import ToolSelecting
from toolgate_schedulers.shipped.approval.config import ApprovalConfig

RULES = """
rules:
  - {tools: transfer, when: {amount: {lt: 10}}, action: allow}
  - {tools: [transfer, "file_*"], name: money, prompt: "Sure?", expires_s: 60}
  - {tools: app, via: ask_user, expires_s: 5, options: [Go, Stop]}
  - {tools: refund, always: false}
"""
ID = "0" * 31 + "1"


def config(text=RULES):
    return check(ApprovalConfig, parse_document(text.encode(), "approval.yaml").value, "approval.yaml")


def call(tool="transfer", phase="select", id_=ID, **arguments):
    return ToolSelecting(
        id=id_, phase=phase, tool_name=tool, tool_input=arguments, session="s", agent="teller"
    )
