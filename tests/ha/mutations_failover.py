"""What would make a failover lose, or wait, and the tests that must notice."""

from mutation import BUS, SCHEDULERS, Mutant

SENTINELS = f"{BUS}/transport/redis/client/sentinels.py"
CLIENT = f"{BUS}/transport/redis/client/cluster_client.py"
HANDOVER = f"{BUS}/transport/redis/client/handover.py"
HANDED = (
    "../bus/transport/test_handover.py::test_what_one_end_says_alone_or_both_say_otherwise_is_no_handover"
)
WORDS = "../ha/test_cluster.py::test_each_command_goes_to_its_keys_and_a_wrong_name_is_refused_in_words"
DURABLE = "../ha/test_durability.py"
APPROVAL = f"{SCHEDULERS}/shipped/approval/scheduler.py"
LOST_QUESTIONS = "test_questions_lost.py"
MUTANTS = (
    Mutant(
        "failover",
        "what was lost on its way to a scheduler waits for a peer",
        f"{BUS}/transport/redis/answering/shard_connection.py",
        "            self._read_lost()\n",
        "",
        "../bus/transport/test_redis_faults.py"
        "::test_what_was_lost_on_its_way_to_a_replica_is_decided_as_soon_as_that_is_back",
    ),
    Mutant(
        "failover",
        "what is being decided is given again with each connection",
        f"{BUS}/transport/redis/answering/shard_connection.py",
        "reader.inbox, reader.newest)",
        "reader.inbox, 0)",
        "../bus/transport/test_redis_faults.py"
        "::test_what_is_being_decided_when_connections_are_lost_is_not_given_again",
    ),
    Mutant(
        "failover",
        "a question that was lost on its way is not asked again",
        f"{BUS}/transport/redis/asking/publisher.py",
        "self._unconfirmed += owed",
        "pass",
        f"{LOST_QUESTIONS}::test_a_question_is_answered_though_its_connection_is_lost",
    ),
    Mutant(
        "failover",
        "a question may be asked twice where there is one server",
        f"{BUS}/transport/redis/client/topology.py",
        "    moves = False\n",
        "",
        "../bus/transport/test_redis_bus.py::test_a_question_without_a_reply_is_not_asked_again_of_one_server",
    ),
    Mutant(
        "failover",
        "sentinels that are listened to are asked all the time",
        SENTINELS,
        "HEARD_SECONDS if are_heard else WORD_SECONDS",
        "WORD_SECONDS",
        "../bus/transport/test_sentinels.py"
        "::test_sentinels_are_asked_again_and_again_unless_all_of_them_are_listened_to",
    ),
    Mutant(
        "failover",
        "one sentinel names the primary",
        SENTINELS,
        "if votes > sentinels // 2:",
        "if votes > 0:",
        "../bus/transport/test_sentinels.py::test_the_primary_is_who_more_than_half_of_all_sentinels_name",
    ),
    Mutant(
        "failover",
        "a primary that hands over is not believed",
        SENTINELS,
        "self._handover.find_successor() or await",
        "await",
        "../ha/test_sentinel.py"
        "::test_a_primary_that_has_handed_over_is_followed_before_a_sentinel_knows_of_it",
    ),
    Mutant(
        "failover",
        "a replica that calls itself primary is followed",
        HANDOVER,
        "return names_successor(move, old) and new is not None",
        "return new is not None",
        HANDED,
    ),
    Mutant(
        "failover",
        "who follows anybody has handed over",
        HANDOVER,
        "old.follows == move.new and old.is_taken",
        "old.follows is not None and old.is_taken",
        HANDED,
    ),
    Mutant(
        "failover",
        "a replica that may still be refused has handed over",
        HANDOVER,
        "old.follows == move.new and old.is_taken",
        "old.follows == move.new",
        HANDED,
    ),
    Mutant(
        "failover",
        "a replica of the primary that hands over is primary",
        HANDOVER,
        "new is not None and new.is_primary",
        "new is not None",
        HANDED,
    ),
    Mutant(
        "failover",
        "one sentinel's word has servers asked",
        HANDOVER,
        "if move.old == primary:",
        "if move:",
        "../ha/test_handover.py::test_nobody_is_asked_whom_one_sentinel_alone_calls_the_primary",
    ),
    Mutant(
        "failover",
        "connections to a primary that leaves stay",
        SENTINELS,
        "transport.abort()\n        self._prune()",
        "pass\n        self._prune()",
        "../ha/test_sentinel.py::test_a_primary_is_left_before_it_is_demoted",
    ),
    Mutant(
        "failover",
        "what was confirmed is believed to outlive the server",
        f"{BUS}/transport/redis/asking/publisher.py",
        "        self._write_kept(now)",
        "        pass",
        "../ha/test_sentinel.py::test_what_a_new_primary_had_not_taken_yet_stands_in_the_record_all_the_same",
    ),
    Mutant(
        "failover",
        "a fact in a hurry stops the next try of those that were refused",
        f"{BUS}/transport/redis/asking/publisher.py",
        "        if self._facts_refused:\n            return  # they wait until",
        "        self._stop_timer()\n        if self._facts_refused:\n            return  # they wait until",
        "../bus/transport/test_redis_faults.py"
        "::test_facts_that_a_full_server_refused_are_written_once_it_is_not",
    ),
    Mutant(
        "failover",
        "a pipeline goes to one node of a cluster",
        f"{BUS}/transport/redis/client/cluster_routes.py",
        "slot = near if key is None else slot_of(key)",
        "slot = near",
        "../bus/transport/test_cluster_routes.py"
        "::test_a_pipeline_is_split_by_slot_and_what_has_no_key_stays_with_what_it_is_about",
    ),
    Mutant(
        "failover",
        "who is sent elsewhere by a node of a cluster does not go",
        CLIENT,
        "if _is_redirect(said[0]):",
        "if said is None:",
        WORDS,
    ),
    Mutant(
        "failover",
        "a part of the keys of a slot that moves is taken for all",
        CLIENT,
        "if slot is not None and _is_redirect(replies[1])",
        "if False",
        WORDS,
    ),
    Mutant(
        "failover",
        "a script runs while its keys are here and there",
        CLIENT,
        "AskError) and not is_script(unit[0])",
        "AskError)",
        "../ha/test_cluster.py::test_no_money_is_lost_or_paid_twice_while_the_slot_of_the_ledger_moves",
    ),
    Mutant(
        "failover",
        "a node that sends a link elsewhere is not believed",
        f"{BUS}/transport/redis/client/link.py",
        '"MOVED", "ASK"',
        '"ASK"',
        "../bus/transport/test_link.py::test_a_server_that_is_not_the_one_is_left_before_its_reply_is_believed",
    ),
    Mutant(
        "failover",
        "another service's move is believed",
        SENTINELS,
        "len(words) == 5 and words[0] == service",
        "len(words) == 5",
        "../bus/transport/test_sentinels.py::test_a_move_is_read_off_what_sentinels_publish",
    ),
    Mutant(
        "durability",
        "a reservation counts whatever replicas have",
        f"{BUS}/transport/redis/storage/durable_writes.py",
        "if isinstance(waited, int) and waited >= durability.replicas:",
        "if isinstance(waited, int):",
        f"{DURABLE}::test_what_too_few_replicas_have_is_denied_in_time_and_given_back",
    ),
    Mutant(
        "durability",
        "what too few replicas have stays reserved",
        f"{BUS}/ledger/money/redis.py",
        "            await self.release(decision)\n        except TransportError as error:  # the keeper",
        "            pass\n        except TransportError as error:  # the keeper",
        f"{DURABLE}::test_what_too_few_replicas_have_is_denied_in_time_and_given_back",
    ),
    Mutant(
        "durability",
        "what a server refuses for want of replicas is counted nowhere",
        f"{BUS}/transport/redis/storage/durable_writes.py",
        "if isinstance(refused, TooFewReplicas):",
        "if refused is None:",
        f"{DURABLE}::test_a_call_is_denied_in_words_where_replicas_are_missing_or_the_server_takes_no_writes",
    ),
    Mutant(
        "durability",
        "the roster is not told of the replicas that a scheduler waits for",
        "schedulers/toolgate_schedulers/worker/replica.py",
        "server_replicas=scheduler.server_replicas",
        "server_replicas=0",
        "../doctor/test_doctor_replicas.py",
    ),
    Mutant(
        "durability",
        "a replica that hangs is taken for one that follows",
        f"{BUS}/fleet/replication.py",
        "_lag_of(one) <= most",
        "_lag_of(one) >= 0 <= most",
        "../doctor/test_doctor_replicas.py::test_a_replica_that_hangs_or_still_copies_does_not_follow",
    ),
    Mutant(
        "durability",
        "a repetition waits for nothing",
        f"{BUS}/transport/redis/storage/durable_writes.py",
        '("SET", mark, "", "PX", MARK_MS)',
        '("GET", mark)',
        f"{DURABLE}::test_who_asks_for_a_decision_again_waits_for_the_replicas_too",
    ),
    Mutant(
        "failover",
        "after a second loss at once what was confirmed is not written again",
        f"{BUS}/transport/redis/asking/publisher.py",
        "call_later(early, self._write_kept_late)",
        "call_later(3600, self._write_kept_late)",
        "../bus/transport/test_fact_faults.py"
        "::test_facts_that_two_failovers_in_a_row_forget_are_written_again",
    ),
    Mutant(
        "failover",
        "what uvloop says of a closed transport ends whole commands",
        f"{BUS}/transport/redis/client/driver.py",
        "except RuntimeError as error:",
        "except ZeroDivisionError as error:",
        "../bus/transport/test_redis_connections.py::test_a_command_whose_connection_is_closed_under_it_is_told_so",
    ),
    Mutant(
        "failover",
        "an answer that was given once is never given again",
        APPROVAL,
        " and id_ not in await self._read_held(decision):",
        ":",
        "../schedulers/shipped/test_approval.py"
        "::test_a_call_that_is_asked_about_again_is_answered_again_though_its_answer_was_given_before",
    ),
    Mutant(
        "failover",
        "an answer of which nobody was told is given to nobody",
        APPROVAL,
        "self._due.setdefault(said.approval,",
        "{}.setdefault(said.approval,",
        "../schedulers/shipped/test_approval.py"
        "::test_an_answer_of_which_nobody_was_told_is_given_all_the_same",
    ),
    Mutant(
        "failover",
        "a fact that was refused comes behind one that was written a moment later",
        f"{BUS}/transport/redis/asking/publisher.py",
        "if (self._facts.is_begun or self._kept_timer is not None) and not self._is_last:",
        "if self._kept_timer is not None and not self._is_last:",
        "../bus/transport/test_redis_faults.py"
        "::test_a_fact_that_was_refused_does_not_come_behind_one_that_was_written_a_moment_later",
    ),
    Mutant(
        "failover",
        "what is written after a second failover comes before what that forgot",
        f"{BUS}/transport/redis/asking/publisher.py",
        "if (self._facts.is_begun or self._kept_timer is not None) and not self._is_last:",
        "if self._facts.is_begun and not self._is_last:",
        "../bus/transport/test_fact_faults.py"
        "::test_what_a_second_failover_forgets_does_not_come_behind_what_is_written_after_it",
    ),
    Mutant(
        "failover",
        "nobody looks whether what is held is answered already",
        APPROVAL,
        "if self._look_at <= now < self._look_until:",
        "if False:",
        "../schedulers/shipped/test_approval.py"
        "::test_what_is_held_and_answered_is_given_after_the_bus_was_away",
    ),
    Mutant(
        "failover",
        "a call that is held, and that the desk has forgotten, is not kept again",
        APPROVAL,
        "for id_ in await self._desk.find_forgotten(held):",
        "for id_ in ():",
        "../schedulers/shipped/test_approval.py"
        "::test_a_call_that_a_failover_let_be_held_but_not_kept_is_at_the_desk_again",
    ),
    Mutant(
        "failover",
        "what is written once more is taken for known where its first fact is",
        f"{BUS}/facts/record.py",
        "has_all(first, first + more)",
        "has_all(first, first)",
        "../bus/facts/test_columnar.py::test_what_a_reader_has_all_of_is_left_out_unread",
    ),
    Mutant(
        "failover",
        "a question whose connection is lost before it is written is refused",
        f"{BUS}/transport/redis/asking/publisher.py",
        "if self._on_unconfirmed is not None:\n                        self._unconfirmed",
        "if self._on_unconfirmed is None:\n                        self._unconfirmed",
        LOST_QUESTIONS,
    ),
    Mutant(
        "operators",
        "who began since the last heartbeat is no live session",
        f"{BUS}/transport/redis/storage/agent_directory.py",
        "                if is_last:\n                    raise\n",
        "                raise\n",
        "test_agents_addressed.py",
    ),
    Mutant(
        "failover",
        "books are kept on before calls that wait are ruled on",
        f"{BUS}/facts/service.py",
        "if self._gives_way:",
        "if False:",
        "../bus/facts/test_give_way.py::test_books_are_kept_on_behind_rulings",
    ),
)
