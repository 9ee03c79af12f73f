"""Mutations of `toolgate notify`: what is told once, what never leaves."""

from mutation import BUS, Mutant

_NOTIFY = f"{BUS}/commands/notify"
_BESIDE = "../bus/commands"

MUTANTS = (
    Mutant(
        "notify",
        "what was posted is not struck out",
        f"{_NOTIFY}/service.py",
        """            await self._strike(one)
            _tell(one, "delivered", "")""",
        """            _tell(one, "delivered", "")""",
        "test_notify.py::test_told_to_end_it_hands_over_at_once",
    ),
    Mutant(
        "notify",
        "memory is written without what goes into the outbox",
        f"{_NOTIFY}/outbox.py",
        "for one in add]",
        "for one in ()]",
        "test_notify.py::test_a_notify_that_is_killed_between_the_post_and_its_note_posts_again_under_the_same_id",
    ),
    Mutant(
        "notify",
        "whoever lost the lease goes on",
        f"{BUS}/facts/lua/keep_lease.lua",
        "if redis.call('GET', KEYS[1] .. ':led') ~= ARGV[1] then return 0 end",
        "",
        "test_notify.py::test_a_server_that_forgets_everything_takes_nothing_of_what_was_still_to_be_posted",
    ),
    Mutant(
        "notify",
        "an id is made by chance",
        f"{_NOTIFY}/notification.py",
        "*sorted(keys)])",
        '*sorted(keys), __import__("secrets").token_hex()])',
        f"{_BESIDE}/test_notify_messages.py::test_the_same_causes_have_the_same_id_and_each_receiver_its_own",
    ),
    Mutant(
        "notify",
        "every label leaves",
        f"{_NOTIFY}/notification.py",
        "for name in config.labels if name in incident.labels}",
        "for name in incident.labels}",
        f"{_BESIDE}/test_notify_messages.py::test_labels_leave_only_by_name",
    ),
    Mutant(
        "notify",
        "nothing is taken for a token",
        f"{_NOTIFY}/notification.py",
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
    Mutant(
        "notify",
        "what a service did not take counts as taken",
        f"{_NOTIFY}/apprise_service.py",
        "if why := result.result():",
        "if (why := result.result()) and False:",
        "test_notify_apprise.py::test_what_a_service_does_not_take_is_tried_again_also_by_the_next_process",
    ),
    Mutant(
        "notify",
        "a service that is slow gets a message at every try",
        f"{_NOTIFY}/apprise_service.py",
        "if self._sending is None or (self._sending[0] != one.id and self._sending[1].done()):",
        "if True:",
        "test_notify_apprise.py::test_a_service_that_is_slow_gets_a_message_once_and_is_waited_for",
    ),
    Mutant(
        "notify",
        "the libraries of a service log its address",
        f"{_NOTIFY}/apprise_service.py",
        "logging.getLogger(_name).setLevel(logging.CRITICAL + 1)",
        "logging.getLogger(_name)",
        "test_notify_apprise.py::test_a_service_gets_plain_text_and_no_log_has_its_address",
    ),
)
