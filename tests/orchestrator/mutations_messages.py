"""Changes for the worse that the tests of stored messages must notice."""

from mutation import ORCHESTRATOR, Mutant

MUTANTS = (
    Mutant(
        "messages",
        "an answer without its calls keeps what goes on from them",
        f"{ORCHESTRATOR}/turn/values/messages.py",
        "    if not calls and _has_calls(response):\n",
        "    if False:\n",
        "../orchestrator/turn/test_messages.py::test_what_led_to_calls_that_are_not_run_is_not_stored_either",
    ),
    Mutant(
        "messages",
        "a block that no request can have is stored",
        f"{ORCHESTRATOR}/turn/values/messages.py",
        "    if isinstance(made, dict) and (_is_call(made) or _is_known(made)):\n",
        "    if True:\n",
        "../orchestrator/turn/test_messages.py::test_of_a_block_that_messages_do_not_have_its_text_is_stored",
    ),
    Mutant(
        "messages",
        "a call goes back without its signature",
        f"{ORCHESTRATOR}/turn/values/messages.py",
        '        | ({"signature": signatures[call.id]} if call.id in signatures else {})\n',
        "",
        "../orchestrator/turn/test_messages.py::test_a_call_goes_back_with_what_its_provider_signed_it_with",
    ),
    Mutant(
        "messages",
        "a call among the blocks has its name beside them, too",
        f"{ORCHESTRATOR}/turn/values/messages.py",
        "    named = not any(map(_is_call, content))\n",
        "    named = True\n",
        "../orchestrator/turn/test_messages.py::test_a_call_has_a_name_in_one_place_only",
    ),
    Mutant(
        "messages",
        "calls stand among the blocks of a provider that puts none there",
        f"{ORCHESTRATOR}/turn/values/messages.py",
        "    if response is None or any(map(_is_call, stored)):\n",
        "    if calls:\n",
        "../orchestrator/turn/test_messages.py"
        "::test_calls_that_a_provider_keeps_beside_its_content_stay_there_and_have_their_names",
    ),
    Mutant(
        "memory",
        "each session has the default judges of goals to itself",
        f"{ORCHESTRATOR}/turn/goals/config.py",
        "        return hash((self.provider, self.model))\n",
        "        raise TypeError\n",
        "../orchestrator/turn/test_memory.py::test_a_session_that_is_set_up_takes_a_few_pages_of_memory",
    ),
    Mutant(
        "memory",
        "the conversation is kept while the LLM answers",
        f"{ORCHESTRATOR}/turn/llm/request.py",
        "sent = first.pop() if first and token_budget is None",
        "sent = first[0] if token_budget is None",
        "../orchestrator/turn/test_memory.py"
        "::test_while_the_llm_thinks_nobody_keeps_what_its_request_was_made_from",
    ),
)
