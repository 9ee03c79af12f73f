"""Changes for the worse to connections and what is kept of what they were given."""

from mutation import BUS, ORCHESTRATOR, SCHEDULERS, Mutant

MUTANTS = (
    Mutant(
        "law 3",
        "an error reply to a verdict ends the blocking read",
        f"{BUS}/transport/redis/link.py",
        "                if tag is READ:\n",
        "                if tag is READ or type(reply) is ServerError:\n",
        "../bus/transport/test_link.py::test_an_error_reply_to_another_command_does_not_end_the_blocking_read",
    ),
    Mutant(
        "law 3",
        "a server that was demoted is believed",
        f"{BUS}/transport/redis/link.py",
        "reply.code in NOT_HERE:\n                    self.refusal",
        "not reply.code:\n                    self.refusal",
        "../bus/transport/test_link.py::test_a_server_that_is_not_the_one_is_left_before_its_reply_is_believed",
    ),
    Mutant(
        "law 3",
        "verdicts that the server refused are lost",
        f"{BUS}/transport/redis/answer_buffer.py",
        "                self._keep([tag], str(reply))\n",
        "",
        "../attacks/test_server_turns.py",
    ),
    Mutant(
        "law 3",
        "a verdict stream of another type stays as it is",
        f"{BUS}/transport/redis/verdicts.py",
        '            await self._empty(broken, "malformed")',
        "            pass",
        "../attacks/test_server_turns.py",
    ),
    Mutant(
        "law 3",
        "a hold that the server forgot is waited for until it runs out",
        f"{ORCHESTRATOR}/gate/client.py",
        "                question.ask_holder_again(",
        "                (lambda *_: None)(",
        "test_holds_lost.py",
    ),
    Mutant(
        "law 3",
        "a hold that was answered a moment ago is asked again",
        f"{BUS}/transport/redis/hold_watch.py",
        "if one in missing & self._suspects and",
        "if one in missing and",
        "../bus/transport/test_hold_watch.py",
    ),
    Mutant(
        "law 3",
        "who is asked again about what it holds decides it twice",
        f"{SCHEDULERS}/worker/worker.py",
        "        if key in self._working:\n",
        "        if key in ():\n",
        "test_holds_lost.py",
    ),
    Mutant(
        "record",
        "what a full server refused is not tried again",
        f"{BUS}/transport/redis/publisher.py",
        "call_later(FACTS_AGAIN_S, self._try_facts)",
        "call_later(FACTS_AGAIN_S, lambda: None)",
        "test_full_server.py",
    ),
    Mutant(
        "record",
        "facts that wait die with their process",
        f"{BUS}/transport/redis/publisher.py",
        "if left and not self._keep(self._orchestrator, left):",
        "if left:",
        "../bus/transport/test_fact_spill.py",
    ),
    Mutant(
        "record",
        "a file of facts that others can write is believed",
        f"{BUS}/transport/redis/fact_spill.py",
        "        check_private(os.fstat(file.fileno()), stat.S_ISREG)\n",
        "",
        "../bus/transport/test_fact_spill.py",
    ),
    Mutant(
        "keys",
        "facts of who dies before its first heartbeat stay for ever",
        f"{BUS}/transport/redis/publisher.py",
        "if self._is_kept:",
        "if True:",
        "../bus/transport/test_fact_faults.py::"
        "test_facts_of_one_who_is_killed_before_its_next_heartbeat_expire",
    ),
    *(
        Mutant("keys", name, f"{BUS}/transport/redis/{file}.py", old, new, "test_keys_expire.py")
        for name, file, old, new in (
            (
                "consumers of dead replicas stay for ever",
                "consumer_group",
                "for name in dead]",
                "for name in ()]",
            ),
            (
                "an inbox outlives all who read it",
                "consumer_group",
                '("PEXPIRE", self._inbox, INBOX_MS)',
                '("PERSIST", self._inbox)',
            ),
            (
                "the set of version 1 outlives everybody",
                "roster_sets",
                '("PEXPIRE", self._keys.roster, OLD_SET_MS)',
                '("PERSIST", self._keys.roster)',
            ),
        )
    ),
    Mutant(
        "law 3",
        "a gate opens once the roster is read, and not before",
        f"{BUS}/transport/redis/orchestrator.py",
        "                except ConfigError as error:\n                    self._fail(error)",
        "                except ConfigError:\n                    pass",
        "../attacks/test_opening.py",
    ),
    Mutant(
        "law 5",
        "a verdict stream is read however long it is",
        f"{BUS}/transport/redis/link.py",
        "        if self.size > self._most_bytes:",
        "        if self.size > 2**40:",
        "../bus/transport/test_link.py::test_a_reply_that_is_too_long_ends_the_connection_before_it_is_there",
    ),
    Mutant(
        "bus",
        "facts that the server refused are gone",
        f"{BUS}/transport/redis/publisher.py",
        "        if not isinstance(reply, ServerError):\n            self._facts.confirm_oldest()",
        "        self._facts.confirm_oldest()\n        if not isinstance(reply, ServerError):",
        "../bus/transport/test_redis_faults.py::test_facts_that_a_full_server_refused_are_written_once_it_is_not",
    ),
)
