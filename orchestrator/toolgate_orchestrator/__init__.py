"""The orchestrator side of Toolgate: the gate, and Amplifier loops that ask it before a tool runs.

`Gate` is for any asyncio program. The loops and the other Amplifier modules are not imported here:
Amplifier finds them by entry point (group `amplifier.modules`).
"""

from toolgate_orchestrator.gate.config import RedactConfig, SchedulerLimits, ToolgateConfig
from toolgate_orchestrator.gate.gate import Answer, Ask, Gate, LocalScheduler

__all__ = ["Answer", "Ask", "Gate", "LocalScheduler", "RedactConfig", "SchedulerLimits", "ToolgateConfig"]
