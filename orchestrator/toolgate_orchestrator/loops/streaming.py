"""`loop-streaming`: like `loop-basic`, but the answer's text is delivered as it is produced.

Each piece goes to the hooks as content_block:delta, and to the reader of `stream()`. Tool calls of a
stream run when the response is complete, in parallel. The session can be cancelled in the middle of a
response: the text so far stays in the conversation. A tool that raises is reported twice, by tool:error
and then by tool:post with `success: false`, so that hosts that save on tool:post miss none.
"""

from typing import ClassVar

from toolgate_orchestrator.loops.basic import LoopBasic
from toolgate_orchestrator.turn.loop import mount_of

__amplifier_module_type__ = "orchestrator"


class LoopStreaming(LoopBasic):
    """The orchestrator for interactive use."""

    name: ClassVar[str] = "loop-streaming"
    streams: bool = True
    posts_errors: bool = True
    error_status: ClassVar[str] = "error"


mount = mount_of(LoopStreaming)
config_model = LoopStreaming.config_model
