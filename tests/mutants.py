"""Break the code on purpose, one place at a time, and see that the tests notice.

    python tests/mutants.py            all of them: `make mutants`
    python tests/mutants.py reader     those in whose name or truth the word occurs
    python tests/mutants.py options    each option of each shipped scheduler, as if nobody had written it

Each mutation is a textual change to a copy of the checkout in a temporary directory, and names the
tests that must go red under it; the copy is found green first. Ends with 1 if a mutation stays green,
or cannot be made because the text it changes is no longer there. The truths are those that the
acceptance tests show; their numbers stand beside each mutation.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "acceptance"))
sys.path.insert(0, str(Path(__file__).parent))

from mutation import ACCEPTANCE, BUS, ORCHESTRATOR, SCHEDULERS, Mutant
from options_tested import CONFIGS, shown_by

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("bus", "orchestrator", "schedulers")
TIME_LIMIT = 40
"""Seconds for one test: a mutation may well make it hang."""


def of_attacks() -> tuple[Mutant, ...]:
    """The mutations that stand beside the attacks: `attacks/mutations_*.py`, each with its MUTANTS."""
    found: list[Mutant] = []
    for file in sorted((Path(__file__).parent / "attacks").glob("mutations_*.py")):
        spec = importlib.util.spec_from_file_location(file.stem, file)
        if spec is not None and spec.loader is not None:
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            found += module.MUTANTS
    return tuple(found)


MUTANTS = (
    *of_attacks(),
    # 3: recorded runs go through the real loop
    Mutant(
        3,
        "a denied call runs all the same",
        f"{ORCHESTRATOR}/turn/selection.py",
        "if not decision.allowed:",
        "if False:",
        "test_replay.py::test_a_policy_that_denies_one_tool_stops_exactly_its_calls_and_the_llm_is_told_why",
    ),
    Mutant(
        3,
        "a replacement keeps the old arguments",
        f"{ORCHESTRATOR}/turn/selection.py",
        "name=decision.tool_name, arguments=decision.tool_input,",
        "name=decision.tool_name, arguments=call.arguments,",
        "test_replay.py::test_a_router_sends_exactly_one_tools_calls_to_another_with_mapped_arguments",
    ),
    Mutant(
        3,
        "results in the wrong order",
        f"{ORCHESTRATOR}/turn/results.py",
        "self._open = deque(calls)",
        "self._open = deque(reversed(calls))",
        "test_replay.py::test_with_no_scheduler_alive_every_call_runs_with_exactly_its_recorded_arguments",
    ),
    # 4: many verdicts, one ruling
    Mutant(
        4,
        "the first modify wins",
        f"{BUS}/ruling/merge.py",
        "ranked = sorted(standing.values(), key=rank)",
        "ranked = list(standing.values())",
        "test_ruling.py::test_of_two_modifies_the_higher_priority_wins_and_runs_with_its_arguments",
    ),
    Mutant(
        4,
        "a deny wins only by its priority",
        f"{BUS}/ruling/merge.py",
        "    if denies:",
        "    if denies and denies[0] is ranked[0]:",
        "test_ruling.py::test_any_deny_wins_over_any_modify_of_higher_priority",
    ),
    Mutant(
        4,
        "from one scheduler the first answer counts",
        f"{BUS}/ruling/merge.py",
        "if other is None or _order(one) < _order(other):",
        "if other is None:",
        "../bus/ruling/test_merge.py",
    ),
    Mutant(
        4,
        "verify off",
        f"{ORCHESTRATOR}/gate/gate.py",
        "and self.config.verify:",
        "and False:",
        "test_ruling.py::test_a_deny_of_the_replacement_vetoes",
    ),
    Mutant(
        4,
        "the person is shown the LLM's call, not the one that would run",
        f"{ORCHESTRATOR}/gate/gate.py",
        "final = call if ruling.winner is None else call.with_ruling(ruling)",
        "final = call",
        "test_ruling.py::test_the_person_is_asked_about_the_call_that_would_run",
    ),
    Mutant(
        4,
        "a required scheduler's silence continues",
        f"{ORCHESTRATOR}/gate/ruling.py",
        "if closed.required_silent:",
        "if False:",
        "test_ruling.py::test_a_required_scheduler_that_is_dead_denies",
    ),
    Mutant(
        4,
        "a hold that runs out continues",
        f"{ORCHESTRATOR}/gate/ruling.py",
        "if closed.expired:",
        "if False:",
        "test_ruling.py::test_a_hold_that_runs_out_denies_though_its_scheduler_is_optional",
    ),
    Mutant(
        4,
        "answers after patience count",
        f"{BUS}/ruling/round.py",
        "if self._closed or (given_up and action not in RESTRICTIVE):",
        "if self._closed:",
        "../bus/ruling/test_round.py",
    ),
    Mutant(
        4,
        "one that hangs is waited for every time",
        f"{BUS}/ruling/breaker.py",
        "return one is not None and one.count >= SILENCES",
        "return False",
        "test_ruling.py::test_after_three_silences_it_is_not_waited_for_until_it_answers_again",
    ),
    # 5: bad schedulers
    Mutant(
        5,
        "signatures are not checked",
        f"{BUS}/protocol/signing.py",
        "return hmac.compare_digest(mac, self.sign(",
        "return True or hmac.compare_digest(mac, self.sign(",
        "test_signed.py::test_a_forged_verdict_is_refused_and_counted",
    ),
    Mutant(
        5,
        "a verdict's signature is not bound to its question",
        f"{BUS}/protocol/signing.py",
        "scheduler, question + body,",
        "scheduler, body,",
        "test_signed.py::test_a_replayed_verdict_is_refused_and_counted[another call]",
    ),
    Mutant(
        5,
        "max_priority is ignored",
        f"{ORCHESTRATOR}/gate/pending.py",
        "capped = cap is not None and priority > cap",
        "capped = False",
        "test_bad_schedulers.py::test_priorities_above_the_cap_are_lowered_to_it_and_counted",
    ),
    Mutant(
        5,
        "any version is read",
        f"{BUS}/protocol/packing.py",
        "and version in _SPOKEN",
        "and version is not None",
        "test_bad_schedulers.py::test_bad_bytes_are_counted_and_change_nothing",
    ),
    Mutant(
        5,
        "whoever answers is heard, asked or not",
        f"{ORCHESTRATOR}/gate/client.py",
        "if question is not None and scheduler in question.asked:",
        "if question is not None:",
        "test_bad_schedulers.py::test_an_answer_to_a_question_that_was_put_to_someone_else_is_refused",
    ),
    Mutant(
        5,
        "nonsense is sent on as a verdict",
        f"{SCHEDULERS}/worker/worker.py",
        "if isinstance(verdict, _VERDICTS):",
        "if True:",
        "test_bad_schedulers.py::test_a_scheduler_that_fails_is_counted_and_the_others_still_count",
    ),
    # 6: nobody there costs nothing
    Mutant(
        6,
        "facts are written for nobody",
        f"{ORCHESTRATOR}/gate/recorder.py",
        "if decision.verdicts or self.is_recording:",
        "if True:",
        "test_idle.py::test_100_calls_with_nobody_alive_add_no_command",
    ),
    Mutant(
        6,
        "everyone is asked about everything",
        f"{ORCHESTRATOR}/gate/scheduler_info.py",
        "return globs.either(self.tools, tool)",
        "return True",
        "test_idle.py::test_a_scheduler_of_other_tools_is_not_told_of_100_calls",
    ),
    # 7: replicas
    Mutant(
        7,
        "what is being decided is not renewed",
        f"{BUS}/transport/redis/consumer_group.py",
        "        if held:",
        "        if False:",
        "test_replicas.py::test_each_is_decided_once_also_when_deciding_takes_longer_than_the_claim_time",
    ),
    Mutant(
        7,
        "nobody takes over from the dead",
        f"{BUS}/transport/redis/consumer_group.py",
        "        if not times:\n            return []",
        "        if True:\n            return []",
        "test_replicas.py::test_kill_9_of_a_replica_in_the_middle_of_500_decisions_loses_none",
    ),
    Mutant(
        7,
        "verdicts are read from `$`",
        f"{BUS}/transport/redis/verdicts.py",
        "*self._streams, *self._last.values()",
        '*self._streams, *("$" for _ in self._last)',
        "test_replicas.py::test_verdicts_that_come_while_the_agents_loop_is_busy_are_all_heard",
    ),
    Mutant(
        7,
        "inboxes are trimmed by count",
        f"{BUS}/transport/redis/publisher.py",
        'self._keys.inbox(scheduler), "*",',
        'self._keys.inbox(scheduler), "MAXLEN", 1, "*",',
        "test_replicas.py::test_questions_that_wait_in_the_inbox_while_all_replicas_are_busy_are_not_lost",
    ),
    # 8: the samples of seed loop-events
    Mutant(
        8,
        "hooks are not told the tool in the seed's spelling",
        f"{SCHEDULERS}/author/hook_adapter.py",
        '        "tool_name": call.tool_name,\n',
        "",
        "test_seed_samples.py::test_they_run_unchanged_as_separate_processes",
    ),
    Mutant(
        8,
        "a hook's priority is lost in process",
        f"{SCHEDULERS}/author/hook_adapter.py",
        'fields["data"] = {**fields["data"], "priority": priority}',
        "pass",
        "test_seed_samples.py::test_of_two_modifying_hooks_the_higher_priority_wins_in_process_and_out",
    ),
    # 9: cancellation and restarts
    Mutant(
        9,
        "a cancelled decision leaves its round open",
        f"{ORCHESTRATOR}/gate/dispatch.py",
        "del self.table.open[question.key]",
        "pass",
        "test_cancel.py::test_cancelling_one_that_waits_ends_it_at_once_and_leaves_nothing",
    ),
    Mutant(
        9,
        "the client's own retries are on",
        f"{BUS}/transport/redis/connection.py",
        "retry=Retry(NoBackoff(), 0),",
        "retry=Retry(NoBackoff(), 10),",
        "../bus/transport/test_redis_connections.py::test_a_command_whose_answer_was_lost_is_not_sent_again",
    ),
    Mutant(
        9,
        "a cancelled caller cancels the command",
        f"{BUS}/transport/redis/connection.py",
        "reply = await asyncio.shield(task)",
        "reply = await task",
        "../bus/transport/test_redis_connections.py::test_a_cancelled_caller_does_not_cancel_the_command",
    ),
    Mutant(
        9,
        "a group that vanished is not made again",
        f"{BUS}/transport/redis/scheduler.py",
        "self._heal.set()  # reading goes on once the group is there again",
        "pass",
        "test_restart.py::test_open_decisions_end_by_their_rules_and_the_next_are_ruled_on_again",
    ),
    # the loops
    Mutant(
        "loops",
        "no loop runs calls side by side",
        f"{ORCHESTRATOR}/loops/basic.py",
        "if not self.settings.parallel_tools:",
        "if True:",
        "../orchestrator/loops/test_seed_loop_basic_tools.py::test_tools_execute_in_parallel",
    ),
    Mutant(
        "loops",
        "calls out of a stream are dropped",
        f"{ORCHESTRATOR}/turn/provider_stream.py",
        "        calls = self._streamed.calls\n",
        "        calls = []\n",
        "../orchestrator/loops/test_published_defects.py",
    ),
    Mutant(
        "loops",
        "text is told when the response is over",
        f"{ORCHESTRATOR}/turn/provider_stream.py",
        "await self._take(streamed.feed(event))",
        "streamed.feed(event)",
        "test_chat_terminal.py::test_text_is_shown_before_the_answer_is_complete",
    ),
    Mutant(
        "loops",
        "a turn that breaks leaves calls without results",
        f"{ORCHESTRATOR}/turn/turn.py",
        'await despite_cancellation(results.close("was not completed: the turn ended first"))',
        "pass",
        "../orchestrator/turn/test_ways_out.py",
    ),
    Mutant(
        "loops",
        "a call waits for the stream to close",
        f"{ORCHESTRATOR}/loops/reactive_engine/tick.py",
        "            if not self._must_stop(reader):\n",
        "            if reader.done() and not self._must_stop(reader):\n",
        "../orchestrator/loops/test_reactive_examples.py",
    ),
    Mutant(
        "loops",
        "one Ctrl-C ends the running tool",
        f"{ORCHESTRATOR}/commands/run/chat_cli.py",
        "immediate = self._presses == 2",
        "immediate = True",
        "test_chat_terminal.py::test_ctrl_c_once_lets_the_running_tool_finish_and_ends_the_turn",
    ),
    Mutant(
        "loops",
        "a cancelled turn cancels the next",
        f"{ORCHESTRATOR}/commands/run/chat_cli.py",
        "self._coordinator.cancellation.reset()",
        "pass",
        "test_chat_terminal.py::test_text_is_shown_before_the_answer_is_complete",
    ),
    # what schedulers share
    Mutant(
        "bus",
        "facts that a lost connection took are gone",
        f"{BUS}/transport/redis/publisher.py",
        "for frame in self._facts.list_unconfirmed()[:most]]",
        "for frame in ()]",
        "../bus/transport/test_redis_faults.py::test_facts_that_were_lost_with_a_connection_are_written_again",
    ),
    Mutant(
        "bus",
        "decisions side by side bear one number",
        f"{BUS}/facts/columnar.py",
        '"seq": seq + number,',
        '"seq": seq,',
        "../bus/facts/test_columnar.py",
    ),
    Mutant(
        "bus",
        "a small fact may stand for any amount",
        f"{BUS}/facts/columnar.py",
        "if len(begin) * count + sum(map(len, rest)) > packing.MAX_FRAME:",
        "if False:",
        "../bus/facts/test_columnar.py",
    ),
    Mutant(
        "bus",
        "a wake-up during a heartbeat is lost",
        f"{BUS}/transport/redis/orchestrator.py",
        "with anyio.move_on_after(BEAT_SECONDS):",
        "self._poll.clear()\n            with anyio.move_on_after(BEAT_SECONDS):",
        "../bus/transport/test_redis_bus.py::test_who_joins_while_a_heartbeat_is_under_way_is_found_by_the_next",
    ),
    Mutant(
        "budgets",
        "whoever asks gets",
        f"{BUS}/budgets/lua/ledger_taking.lua",
        "if room == nil or needed <= room then",
        "if true then",
        "../bus/budgets/test_ledger.py",
    ),
    Mutant(
        "budgets",
        "what others will spend need not be there",
        f"{BUS}/budgets/lua/ledger_taking.lua",
        "if room == nil or needed <= room then",
        "if room == nil or want <= room then",
        "../bus/budgets/test_ledger.py",
    ),
    Mutant(
        "budgets",
        "settling twice spends twice",
        f"{BUS}/budgets/lua/ledger_giving.lua",
        "if r.state == 'settled' then return {'duplicate', '0', '0'} end",
        "",
        "../bus/budgets/test_ledger.py",
    ),
    Mutant(
        "budgets",
        "a reserve that comes late holds money for ever",
        f"{BUS}/budgets/lua/ledger_taking.lua",
        "if r.state and (over or is_foreign(r, ARGV[4]) or phase < number(r.phase)) then",
        "if r.state and phase < number(r.phase) then",
        "../bus/budgets/test_ledger.py",
    ),
    Mutant(
        "money",
        "nobody's account pays",
        f"{SCHEDULERS}/shipped/cost_aware/scheduler.py",
        "accounts = accounts_of(self.config, Payer.of(call), self.overrides)",
        "accounts = []",
        "test_published_schedulers.py::test_of_three_calls_of_40_at_once_a_budget_of_50_lets_one_run",
    ),
    Mutant(
        "money",
        "the affordable tool is given the dear one's arguments",
        f"{SCHEDULERS}/shipped/cost_aware/scheduler.py",
        "arguments=chosen.arguments,",
        "arguments=None,",
        "test_cost_aware_options.py::"
        "test_over_budget_the_cheaper_equivalent_runs_and_then_the_llm_is_told_why_nothing_does",
    ),
    Mutant(
        "money",
        "what was learned is never stored",
        f"{SCHEDULERS}/shipped/cost_aware/scheduler.py",
        "await self._shared.store.put(self._learned_key, self.learned.to_bytes())",
        "pass",
        "test_cost_aware_replay.py::"
        "test_costs_converge_on_the_recorded_runs_are_charged_and_survive_a_restart",
    ),
    Mutant(
        "money",
        "it is not known who asks",
        f"{SCHEDULERS}/worker/worker.py",
        "asking.set(job.asked.orchestrator)",
        'asking.set("nobody")',
        "test_cost_aware_options.py::"
        "test_a_call_of_an_orchestrator_that_died_is_an_orphan_and_those_of_the_living_are_not",
    ),
    Mutant(
        "money",
        "the cost weight is never read",
        f"{SCHEDULERS}/shipped/cost_aware/estimates.py",
        "cost_weight * _part(one.estimate.cost, dearest)",
        "0.0",
        "test_published_schedulers.py::test_the_weights_are_read",
    ),
    Mutant(
        "money",
        "a budget begins anew with each turn",
        f"{SCHEDULERS}/hooks/cost_aware.py",
        "pending, self._pending = self._pending, {}\n",
        "pending, self._pending = self._pending, {}\n"
        '        made = __import__("toolgate_bus.state.shared", fromlist=["x"])\n'
        "        self._scheduler.use(made.make_shared_state())\n",
        "test_published_schedulers.py::test_a_budget_does_not_begin_anew_with_each_turn",
    ),
    Mutant(
        "money",
        "recorded results do not tell what they cost",
        f"{ORCHESTRATOR}/commands/replay/tool_replay.py",
        "if priced is not None:",
        "if False:",
        "test_cost_aware_replay.py::"
        "test_costs_converge_on_the_recorded_runs_are_charged_and_survive_a_restart",
    ),
    Mutant(
        "shadows",
        "both sides of a comparison are the first",
        f"{ORCHESTRATOR}/commands/replay/jobs.py",
        "effect_of(after),",
        "effect_of(before),",
        "test_replay_against.py::test_what_against_says_is_what_happens_when_the_set_is_switched_on",
    ),
    Mutant(
        "shadows",
        "sessions are drawn anew for each comparison",
        f"{ORCHESTRATOR}/commands/replay/jobs.py",
        "return sha256(Path(recording.source).name.encode()).hexdigest()[:8]",
        'return new_namespace().rpartition("-")[2][:8]',
        "test_replay_against.py::test_so_it_is_for_every_shipped_scheduler",
    ),
    Mutant(
        "authors",
        "a reload is not announced",
        f"{SCHEDULERS}/worker/worker.py",
        "return await self._bus.announce(self._member(scheduler))",
        "return self._member(scheduler)",
        "test_reloading.py::test_all_replicas_are_reloaded_and_the_roster_says_so",
    ),
    Mutant(
        "authors",
        "what is allowed is kept to ourselves",
        f"{BUS}/config/check.py",
        'may = " or ".join(dict.fromkeys(word for word in words if word))',
        'may = ""',
        "../schedulers/worker/test_wrong_configs.py",
    ),
    Mutant(
        "rules",
        "a heuristic that is switched off replaces",
        f"{SCHEDULERS}/shipped/heuristic.py",
        "not config.override_enabled or ",
        "",
        "test_cost_aware_options.py::test_the_heuristic_chooses_by_its_strategy",
    ),
    Mutant(
        "limits",
        "rate-limit counts in each replica",
        f"{SCHEDULERS}/shipped/rate_limit.py",
        "self._buckets, self._runs_as = context.shared.buckets, context.name",
        "made = __import__('toolgate_bus.state.token_buckets', fromlist=['x'])\n"
        "        self._buckets = made.MemoryBuckets()\n"
        "        self._runs_as = context.name",
        "test_limits.py::test_three_replicas_let_exactly_as_many_pass_as_the_limit_says",
    ),
    Mutant(
        "limits",
        "a question delivered twice takes twice",
        f"{BUS}/state/lua/take_tokens.lua",
        "if known then return known end",
        "",
        "../bus/state/test_token_buckets.py",
    ),
    Mutant(
        "limits",
        "loop-guard lets one call more run",
        f"{SCHEDULERS}/shipped/loop_guard.py",
        "if limit is not None and count > limit:",
        "if limit is not None and count > limit + 1:",
        "test_limits.py::test_a_runaway_agent_runs_no_more_calls_than_it_may_and_is_told_to_stop",
    ),
    Mutant(
        "rules",
        "a rule that only observes denies",
        f"{SCHEDULERS}/shipped/policy.py",
        'if rule.mode == "enforce":',
        "if True:",
        "test_policy_options.py::test_every_option_of_a_rule_holds",
    ),
    Mutant(
        "rules",
        "weights mean nothing",
        f"{SCHEDULERS}/shipped/router/targets.py",
        "_draw(salt, key, *own, number) / target.weight",
        "_draw(salt, key, *own, number)",
        "test_router_options.py::test_every_option_of_a_route_holds_in_every_replica",
    ),
    Mutant(
        "rules",
        "a target that fails is tried all the same",
        f"{SCHEDULERS}/shipped/router/health.py",
        "return now >= known.open_until and not trying",
        "return True",
        "test_router_options.py::test_a_target_that_fails_too_often_is_left_alone_and_tried_again",
    ),
    Mutant(
        "people",
        "an edited call runs as it was",
        f"{SCHEDULERS}/shipped/approval/messages.py",
        'if answer.action == "approve":',
        'if answer.action in ("approve", "edit"):',
        "test_approvals.py::test_a_call_that_was_shown_and_edited_runs_exactly_as_it_was_edited",
    ),
    Mutant(
        "people",
        "an approval is good for whatever the call has become",
        f"{SCHEDULERS}/shipped/approval/records.py",
        "return _hash_words(scheduler, decision, phase, call_digest)",
        "return _hash_words(scheduler, decision)",
        "test_approvals.py::test_a_call_that_changed_after_it_was_shown_cannot_be_approved",
    ),
    Mutant(
        "people",
        "a replica that starts hears only of what comes",
        f"{SCHEDULERS}/shipped/approval/scheduler.py",
        'after = "0-0"',
        'after = "$"',
        "test_approvals.py::test_kill_9_while_a_call_is_held_loses_neither_the_call_nor_the_answer",
    ),
)

WITHOUT = """
        def without(at: Any, path: list[str]) -> Any:
            head, *rest = path
            if isinstance(at, list):
                return [without(one, rest) for one in at] if head == "*" and rest else at
            if not isinstance(at, dict):
                return at
            if head == "*":
                return {key: without(value, rest) for key, value in at.items()}
            return {
                key: without(value, rest) if key == head else value
                for key, value in at.items()
                if key != head or rest
            }

        if model.__name__ == "CONFIG":
            value = without(value, "OPTION".split("."))
        return model.model_validate(value)
"""
"""Reads a configuration as if one option were not in it."""

IGNORED = tuple(
    Mutant(
        "options",
        f"{scheduler}: {option} is ignored",
        f"{BUS}/config/check.py",
        "        return model.model_validate(value)\n",
        WITHOUT.replace("CONFIG", CONFIGS[scheduler]).replace("OPTION", option),
        test,
    )
    for scheduler, option, test in shown_by()
)


def main(words: list[str]) -> int:
    """Run the chosen mutations; 0 if the tests noticed each."""
    chosen = [one for one in (*MUTANTS, *IGNORED) if all(word in f"{one.truth} {one.name}" for word in words)]
    if not chosen:
        print(f"No mutation is called that. There are: {', '.join(one.name for one in (*MUTANTS, *IGNORED))}")
        return 1
    with tempfile.TemporaryDirectory(prefix="tg-mutants-") as directory:
        copy = Path(directory) / "toolgate"
        # Without caches, and without a virtual environment.
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".*", "__pycache__", "*.egg-info"))
        problem = found_wrong(copy, chosen)
        if problem:
            print(problem)
            return 1
        print(
            f"{len(chosen)} mutations\n{'truth':>9}  {'result':12} {'seconds':>7}  mutation: test", flush=True
        )
        failed = [one for one in chosen if not survives_not(copy, one)]
    print(f"\n{len(chosen) - len(failed)} of {len(chosen)} went red.")
    return 1 if failed else 0


def found_wrong(copy: Path, chosen: list[Mutant]) -> str | None:
    """Why the mutations cannot be judged: the copy is not what is imported, or is not green."""
    code = (
        "import toolgate_bus, toolgate_orchestrator, toolgate_schedulers as s; print(toolgate_bus.__file__)"
    )
    imported = subprocess.run(
        [sys.executable, "-c", code],
        cwd=copy,
        env=environment(copy),
        capture_output=True,
        text=True,
        check=True,
    )
    if not imported.stdout.startswith(str(copy)):
        return f"The copy is not what is imported, but {imported.stdout.strip()}"
    began = time.monotonic()
    code, said = run_tests(copy, sorted({one.tests for one in chosen}))
    if code != 0:
        return f"The tests are not green before any mutation (exit code {code}):\n{said}"
    print(f"Without a mutation all is green ({time.monotonic() - began:.0f} s).", flush=True)
    return None


def survives_not(copy: Path, mutant: Mutant) -> bool:
    """Make the mutation, run its tests, undo it; True if they went red."""
    began = time.monotonic()
    file = copy / mutant.file
    original = file.read_text()
    if mutant.old not in original:
        result, said = "NOT MADE", f"{mutant.file} does not hold the text to change: {mutant.old!r}"
    else:
        try:
            write(file, original.replace(mutant.old, mutant.new))
            code, said = run_tests(copy, [mutant.tests])
        finally:
            write(file, original)
        # 1 is: tests were run, and some failed. Anything else says nothing about them.
        result = {0: "STILL GREEN", 1: "red"}.get(code, f"BROKEN ({code})")
    seconds = time.monotonic() - began
    print(f"{mutant.truth!s:>9}  {result:12} {seconds:7.1f}  {mutant.name}: {mutant.tests}", flush=True)
    if result not in ("red", "STILL GREEN"):
        print(said)
    return result == "red"


def write(file: Path, text: str) -> None:
    """Replace a file by a version of another time, so that no compiled module of before passes for it."""
    later = file.stat().st_mtime + 10
    file.write_text(text)
    os.utime(file, (later, later))


def run_tests(copy: Path, tests: list[str]) -> tuple[int, str]:
    """pytest's exit code, and the end of what it said."""
    options = ["-x", "-q", "--no-header", "-p", "no:cacheprovider", "-o", f"timeout={TIME_LIMIT}"]
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *tests],
        cwd=copy / ACCEPTANCE,
        env=environment(copy),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return ended.returncode, ended.stdout[-4000:]


def environment(copy: Path) -> dict[str, str]:
    """The copy's packages come before the installed ones, in subprocesses too; compiled, beside it."""
    path = os.pathsep.join(str(copy / package) for package in PACKAGES)
    ours = {name: value for name, value in os.environ.items() if not name.startswith("TOOLGATE_")}
    return ours | {"PYTHONPATH": path, "PYTHONPYCACHEPREFIX": str(copy.parent / "compiled")}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
