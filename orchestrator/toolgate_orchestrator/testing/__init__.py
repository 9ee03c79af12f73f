"""Test an adapter of your own against Toolgate's promises: write a `Harness`, run the suite.

    from toolgate_orchestrator.testing import AdapterSuite

    class TestMyFramework(AdapterSuite):
        harness = MyHarness()

Each column of the kit is then a test of pytest, with a real server and real scheduler processes
(extra `embedded`). `docs/frameworks.md` is the guide.
"""

from toolgate_orchestrator.testing.column import COLUMNS, Column
from toolgate_orchestrator.testing.harness import Conversation, Harness, OpenQuestion, Scene
from toolgate_orchestrator.testing.script import (
    INPUT_TOKENS,
    LAST_WORDS,
    MODEL,
    OUTPUT_TOKENS,
    PROVIDER,
    Actor,
    Delegation,
    Handover,
    Speech,
    Use,
    calls,
    says,
)
from toolgate_orchestrator.testing.stage import PromiseBreak, Stage
from toolgate_orchestrator.testing.suite import AdapterSuite
from toolgate_orchestrator.testing.toolbox import Execution, Toolbox
from toolgate_orchestrator.testing.voice import ToolAnswer, Voice
from toolgate_orchestrator.testing.world import World, open_world

__all__ = [
    "COLUMNS",
    "INPUT_TOKENS",
    "LAST_WORDS",
    "MODEL",
    "OUTPUT_TOKENS",
    "PROVIDER",
    "Actor",
    "AdapterSuite",
    "Column",
    "Conversation",
    "Delegation",
    "Execution",
    "Handover",
    "Harness",
    "OpenQuestion",
    "PromiseBreak",
    "Scene",
    "Speech",
    "Stage",
    "ToolAnswer",
    "Toolbox",
    "Use",
    "Voice",
    "World",
    "calls",
    "open_world",
    "says",
]
