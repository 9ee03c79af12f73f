"""Changes for the worse that the tests of the sidecar must notice."""

from mutation import ORCHESTRATOR, Mutant

_SERVE = f"{ORCHESTRATOR}/commands/serve"
_TESTS = "../orchestrator/serve"

MUTANTS = (
    Mutant(
        "serve",
        "AuthZEN permits a call that should run otherwise",
        f"{_SERVE}/authzen.py",
        '"decision": outcome == "continue"',
        '"decision": outcome in ("continue", "modify")',
        f"{_TESTS}/test_serve_authzen.py::test_only_a_call_that_runs_as_it_was_asked_about_is_permitted",
    ),
    Mutant(
        "serve",
        "whom a call's arguments hand work to is not seen",
        f"{_SERVE}/service.py",
        "            asked.available_agents,\n            asked.agent_target,",
        "            None,\n            None,",
        f"{_TESTS}/test_serve_service.py"
        "::test_whom_a_call_hands_work_to_is_ruled_on_said_or_named_by_its_arguments",
    ),
    Mutant(
        "serve",
        "what who leaves several evaluations had been let through stays reserved",
        f"{_SERVE}/routes.py",
        "            service.release(ruling)\n",
        "            pass\n",
        f"{_TESTS}/test_serve_app.py::test_who_leaves_several_evaluations_leaves_nothing_reserved",
    ),
    Mutant(
        "serve",
        "an event that nobody can rule on is let go where nobody is required",
        f"{_SERVE}/hook_handler.py",
        "        return write_fault(client, event, reason, denies=denies)",
        "        return write_fault(client, event, reason, denies=False)",
        f"{_TESTS}/test_serve_hooks.py"
        "::test_arguments_that_rules_cannot_see_as_the_client_does_are_denied_if_anybody_might_object",
    ),
    Mutant(
        "serve",
        "any token opens",
        f"{_SERVE}/access.py",
        "for one in self._digests]) > 0",
        "for one in self._digests]) >= 0",
        f"{_TESTS}/test_serve_access.py::test_each_token_of_the_file_opens_and_nothing_else_does",
    ),
    Mutant(
        "serve",
        "others reach it with a token alone",
        f"{_SERVE}/place.py",
        "if not is_loopback(address.host) and not is_mutual:",
        "if not is_loopback(address.host) and not is_mutual and not has_token:",
        f"{_TESTS}/test_serve_access.py::test_others_reach_it_by_mutual_tls_alone",
    ),
    Mutant(
        "serve",
        "who names no tools is taken to have any",
        f"{_SERVE}/service.py",
        'can if has_tools else can - {"tool"}',
        "can",
        f"{_TESTS}/test_serve_service.py::test_what_its_caller_cannot_do_is_a_denial_and_never_the_call_unchanged",
    ),
    Mutant(
        "serve",
        "who is cancelled while its body is read is told that it is late",
        f"{_SERVE}/patience.py",
        "        if not is_late or task is None",
        "        if task is None",
        f"{_TESTS}/test_serve_patience.py::test_who_is_cancelled_while_it_waits_is_not_taken_to_be_late",
    ),
    Mutant(
        "serve",
        "a caller that has gone is decided for",
        f"{_SERVE}/patience.py",
        '            self.end("gone")\n',
        "            pass\n",
        f"{_TESTS}/test_serve_service.py::test_a_caller_that_has_gone_withdraws_its_question",
    ),
    Mutant(
        "serve",
        "a stopped agent's calls run",
        f"{_SERVE}/service.py",
        "if turn is not None and turn.stop is not None and turn.presence.stopped is None:\n",
        "if turn is not None and turn.stop is None and turn.stop:\n",
        f"{_TESTS}/test_serve_service.py::test_an_operators_stop_ends_what_is_asked_and_denies_what_comes",
    ),
    Mutant(
        "serve",
        "a report counts twice",
        f"{_SERVE}/open_calls.py",
        "        self._closed[id_] = outcome\n",
        "        self._open[id_] = call\n",
        f"{_TESTS}/test_serve_calls.py::test_a_report_counts_once_and_another_one_is_refused",
    ),
    Mutant(
        "serve",
        "what nobody came back for stays reserved",
        f"{_SERVE}/held_calls.py",
        "            self._drop(call.call, task.result())\n",
        "            pass\n",
        f"{_TESTS}/test_serve_service.py::test_who_does_not_come_back_has_withdrawn_its_call",
    ),
    Mutant(
        "serve",
        "a call has several results",
        f"{_SERVE}/result_handler.py",
        "        elif found.digest != digest:\n",
        "        elif False:\n",
        f"{_TESTS}/test_serve_results.py::test_the_same_result_is_ruled_on_once_and_a_call_has_one",
    ),
    Mutant(
        "serve",
        "the same result is asked about again",
        f"{_SERVE}/result_handler.py",
        "        if result.given is not None:\n            return",
        "        if False:\n            return",
        f"{_TESTS}/test_serve_results.py::test_the_same_result_is_ruled_on_once_and_a_call_has_one",
    ),
    Mutant(
        "serve",
        "a held result is released once nobody waits any longer",
        f"{_SERVE}/result_handler.py",
        "            given = withhold(*_WHY[abandoned.why])\n        except",
        "            given = GivenResult(asked.result)\n        except",
        f"{_TESTS}/test_serve_results.py::test_a_held_result_is_pending_for_who_can_wait_and_withheld_for_others",
    ),
)
