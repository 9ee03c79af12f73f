"""Changes for the worse that the tests of sessions that must be gated must notice."""

from mutation import ORCHESTRATOR, Mutant

_GUARD = f"{ORCHESTRATOR}/modules/hooks_required.py"
_TESTS = "../orchestrator/modules/test_hooks_required.py"
_BUNDLES = "../orchestrator/commands/test_bundle_reading.py"

MUTANTS = (
    Mutant(
        "switch",
        "a session on another's loop runs ungated",
        _GUARD,
        "        if not isinstance(loop, LoopBase):\n",
        "        if False:\n",
        f"{_TESTS}::test_a_session_on_anothers_loop_is_refused_and_says_why",
    ),
    Mutant(
        "switch",
        "a loop of ours that asks nobody is good enough",
        _GUARD,
        "        if loop.gate is None:\n",
        "        if False:\n",
        f"{_TESTS}::test_one_of_our_loops_without_a_section_is_refused",
    ),
    Mutant(
        "switch",
        "a warning does for a session that somebody must rule on",
        _GUARD,
        '        return self.settings.on_ungated == "deny" or bool(must)\n',
        '        return self.settings.on_ungated == "deny"\n',
        f"{_TESTS}::test_who_is_required_is_not_done_without_for_a_warning",
    ),
    Mutant(
        "switch",
        "a child's plan loosens its parent's",
        _GUARD,
        '    denies = "deny" in (above.on_ungated, own.on_ungated)\n',
        '    denies = own.on_ungated == "deny"\n',
        f"{_TESTS}::test_a_childs_config_does_not_loosen_its_parents",
    ),
    Mutant(
        "switch",
        "work is handed to an agent that brings another's loop",
        _GUARD,
        '        return HookResult(action="deny", reason=text) if self._denies() else HookResult()\n',
        "        return HookResult()\n",
        f"{_TESTS}::test_work_is_not_handed_to_an_agent_that_brings_anothers_loop",
    ),
    Mutant(
        "switch",
        "an empty bus is taken for one on which somebody rules",
        f"{ORCHESTRATOR}/decision/vacancy.py",
        "    if ruling or config.required:\n",
        "    if True:\n",
        f"{_TESTS}::test_where_nobody_rules_the_session_is_refused_until_somebody_does",
    ),
    Mutant(
        "switch",
        "a hook that only listens is taken for one that rules",
        _GUARD,
        "        return wanted and self._emitter",
        "        return self._emitter",
        f"{_TESTS}::test_a_hook_that_listens_to_everything_is_nobody",
    ),
    Mutant(
        "switch",
        "an inherited source is overlooked",
        f"{ORCHESTRATOR}/modules/loop_origin.py",
        "    if by_source and source:\n",
        "    if False:\n",
        f"{_BUNDLES}::test_an_id_without_a_source_of_its_own_is_ungated_and_says_whose_source_it_is",
    ),
    Mutant(
        "switch",
        "a bundle is taken to forget what an included one says",
        f"{ORCHESTRATOR}/commands/host/bundle.py",
        "            spec = merge_spec(spec, named)\n",
        "            spec = merge_spec(None, named)\n",
        f"{_BUNDLES}::test_what_a_later_bundle_leaves_out_stays_as_an_earlier_one_said",
    ),
    Mutant(
        "switch",
        "the guard of a host names no hook that looks",
        "orchestrator/amplifier/behaviors/guard.yaml",
        "  - module: hooks-toolgate-required\n",
        "  - module: hooks-toolgate-logging\n",
        "test_bundle_gated.py"
        "::test_a_host_that_lays_the_guard_over_all_bundles_refuses_one_that_requires_and_mounts_anothers_loop",
    ),
)
