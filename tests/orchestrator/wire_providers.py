"""Providers as other people write them, each over the real SDK: where they look in a stored message.

    AnthropicLike   thinking in `thinking_block`, calls in `tool_calls` under `tool`, never in the content;
                    texts beside thinking and calls are left out; the prompt cache ends before the last
                    messages that are marked `metadata.ephemeral`
    ResponsesLike   each entry of `tool_calls` that has a `name`, and each `tool_call` block of the content;
                    reasoning in the blocks' `content`
    ChatLike        the blocks of the content alone

With `streams` they read the server's stream, in `complete` too. `ProviderOpenAI` is our own.
"""

from wire_anthropic import AnthropicLike
from wire_openai import ChatLike, ResponsesLike
from wire_provider import WireProvider

__all__ = ["PROVIDERS"]

PROVIDERS: dict[str, type[WireProvider]] = {
    "anthropic": AnthropicLike,
    "responses": ResponsesLike,
    "chat": ChatLike,
}
