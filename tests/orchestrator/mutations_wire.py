"""Mutations of what is stored of a response, as the strict servers notice them."""

from mutation import ORCHESTRATOR, Mutant

_TURNS = "../orchestrator/wire/test_wire_turns.py"
_MESSAGES = f"{ORCHESTRATOR}/turn/values/messages.py"

MUTANTS = (
    Mutant(
        "stored",
        "signed thinking stands in the content alone",
        _MESSAGES,
        '        message["thinking_block"] = thought\n',
        "        pass\n",
        _TURNS,
    ),
    Mutant(
        "stored",
        "a call has a name in both places",
        _MESSAGES,
        '{"id": call.id, "tool": call.name, "arguments"',
        '{"id": call.id, "name": call.name, "tool": call.name, "arguments"',
        _TURNS,
    ),
    Mutant(
        "stored",
        "a call is not among the blocks",
        _MESSAGES,
        "    return [*stored, *map(_call_block, others)]\n",
        "    return [block for block in stored if not _is_call(block)]\n",
        _TURNS,
    ),
)
