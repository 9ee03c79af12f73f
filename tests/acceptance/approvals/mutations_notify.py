"""Mutations of `toolgate notify`: what is told once, what never leaves."""

from mutation import BUS, Mutant

_NOTIFY = f"{BUS}/commands/notify"
_BESIDE = "../bus/commands"

MUTANTS = (
    Mutant(
        "notify",
        "what was posted is not struck out",
        f"{_NOTIFY}/sender.py",
        """            await self._queue.strike(one)
            self._tell(one, "delivered", "")""",
        """            self._tell(one, "delivered", "")""",
        "test_notify.py::test_told_to_end_it_hands_over_at_once",
    ),
    Mutant(
        "notify",
        "memory is written without what goes into the outbox",
        f"{_NOTIFY}/outbox.py",
        "for one in add for word",
        "for one in () for word",
        "test_notify.py::test_a_notify_that_is_killed_between_the_post_and_its_note_posts_again_under_the_same_id",
    ),
    Mutant(
        "notify",
        "whoever lost the lease goes on",
        f"{_NOTIFY}/lua/keep_notify.lua",
        "if redis.call('GET', KEYS[1] .. ':led') ~= ARGV[1] then return 0 end",
        "",
        "test_notify.py::test_a_server_that_forgets_everything_takes_nothing_of_what_was_still_to_be_posted",
    ),
    Mutant(
        "notify",
        "an id is made by chance",
        f"{_NOTIFY}/grouping.py",
        "*sorted(keys)])",
        "*sorted(keys), str(id(keys))])",
        f"{_BESIDE}/test_notify_messages.py::test_the_same_causes_have_the_same_id_and_each_receiver_its_own",
    ),
    Mutant(
        "notify",
        "every label leaves",
        f"{_NOTIFY}/grouping.py",
        "label_values(incident.labels, config.labels)",
        "dict(incident.labels)",
        f"{_BESIDE}/test_notify_messages.py::test_labels_leave_only_by_name",
    ),
    Mutant(
        "notify",
        "nothing is taken for a token",
        f"{_NOTIFY}/grouping.py",
        "(*WELL_KNOWN, *config.redact)",
        "()",
        f"{_BESIDE}/test_notify_messages.py::test_what_looks_like_a_token_leaves_in_no_field_and_no_label",
    ),
    Mutant(
        "notify",
        "a threshold is told at every look",
        f"{_NOTIFY}/judges.py",
        "                known[mark] = passed\n",
        "",
        f"{_BESIDE}/test_notify_judges.py::test_a_threshold_is_told_once_in_each_window_and_of_several_the_highest",
    ),
)
