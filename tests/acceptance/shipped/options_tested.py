"""Which acceptance test shows what each option of each shipped scheduler does.

`test_every_option.py` checks that no option is missing here and that the tests exist.
`python tests/mutants.py options` then drops each option from every file that is read, as if it had never
been written there, and sees its test go red: it is the option that the test shows, and not only its name.

An option is a dot path; `*` is any place of a list, or any key of a mapping.
"""

from typing import Final

__all__ = ["CONFIGS", "TESTED", "options_of", "shown_by"]

ABOUT: Final = (
    "name when when.*.equals when.*.in when.*.glob when.*.matches when.*.gt when.*.gte when.*.lt when.*.lte "
    "when.*.exists schema agents labels sessions agent_targets"
)
"""What rules of policy and approval have in common with routes."""

PRECONDITION: Final = (
    "tool success within_s same scope when when.*.equals when.*.in when.*.glob when.*.matches when.*.gt "
    "when.*.gte when.*.lt when.*.lte when.*.exists"
)
"""What a rule on order says of the calls before."""


def _in(where: str, options: str) -> str:
    return " ".join(f"{where}.{option}" for option in options.split())


TESTED: Final[dict[str, dict[str, str]]] = {
    "approval": {
        "test_rules_about_calls.py::test_an_approval_rule_is_about_the_calls_that_all_its_conditions_fit": (
            f"rules rules.*.tools {_in('rules.*', ABOUT)} rules.*.prompt rules.*.via"
        ),
        "test_approval_options.py::test_the_first_rule_that_fits_says_whether_a_person_is_needed": (
            "rules.*.action rules.*.unknown"
        ),
        "test_approval_options.py::test_via_ask_user_the_app_asks_the_person_about_it": (
            "rules.*.options rules.*.expires_s"
        ),
        "test_approval_options.py::test_where_always_may_not_be_it_is_refused_and_the_call_still_waits": (
            "rules.*.always"
        ),
        "../ha/test_durability.py::test_a_person_is_asked_and_counts_only_where_the_replicas_have_it": (
            "durability durability.replicas durability.timeout_ms"
        ),
    },
    "cost-aware": {
        "test_cost_aware_options.py::test_each_level_of_budget_holds_for_whom_it_is_meant": (
            "tools tools.*.cost budgets budgets.*.name budgets.*.level budgets.*.limit"
        ),
        "test_cost_aware_options.py::"
        "test_over_budget_the_cheaper_equivalent_runs_and_then_the_llm_is_told_why_nothing_does": (
            "default default.cost alternatives alternatives.*.tools alternatives.*.tools.*.arguments "
            "alternatives.*.tools.*.arguments.*.value alternatives.*.tools.*.arguments.*.*.value "
            "budgets.*.window budgets.*.time_zone currency"
        ),
        "test_cost_aware_options.py::test_the_weights_choose_between_cheap_and_fast_and_deny_nothing": (
            "tools.*.latency_s cost_weight latency_weight"
        ),
        "test_cost_aware_options.py::"
        "test_over_budget_a_cheaper_agent_is_asked_and_never_one_that_is_not_there": (
            "agents agents.*.cost agents.*.latency_s alternatives.*.agents"
        ),
        "test_cost_aware_options.py::test_what_is_not_to_be_learned_changes_no_choice": (
            "default.latency_s learn"
        ),
        "../ha/test_durability.py::"
        "test_a_call_is_denied_in_words_where_replicas_are_missing_or_the_server_takes_no_writes": (
            "durability durability.replicas durability.timeout_ms"
        ),
        "test_ledger_lost.py::"
        "test_a_scheduler_that_begins_after_the_loss_knows_of_it_and_one_may_go_on_all_the_same": (
            "on_ledger_lost"
        ),
        "test_cost_aware_options.py::"
        "test_what_tools_and_llms_cost_is_learned_charged_and_survives_a_restart": "charge_llm",
        "test_cost_aware_admission.py::test_a_call_that_others_stop_reserves_nothing": "admission",
        "test_cost_aware_llm.py::test_every_option_of_requests_to_an_llm_holds": (
            "llm llm.prices llm.prices.*.input llm.prices.*.output llm.prices.*.cache_read "
            "llm.prices.*.cache_write llm.prices.*.cache_in_input llm.default llm.default.input "
            "llm.default.output llm.default.cache_read llm.default.cache_write llm.default.cache_in_input "
            "llm.equivalents llm.max_output_tokens"
        ),
    },
    "heuristic": {
        "test_cost_aware_options.py::test_the_heuristic_chooses_by_its_strategy": (
            "strategy seed override_enabled"
        ),
        "test_cost_aware_options.py::test_the_heuristic_chooses_agents": "groups.*.agents",
        "test_cost_aware_options.py::test_the_heuristics_groups_map_arguments": (
            "groups groups.*.tools groups.*.tools.*.arguments groups.*.tools.*.arguments.*.value "
            "groups.*.tools.*.arguments.*.*.value"
        ),
    },
    "loop-guard": {
        "test_limits.py::"
        "test_same_calls_and_those_of_a_turn_a_session_and_a_tree_are_limited_but_exempt_ones_are_not": (
            "same_call same_call.times calls_per_turn calls_per_session calls_per_tree exempt"
        ),
        "test_limits.py::test_calls_that_take_turns_and_sessions_that_last_too_long_are_denied": (
            "same_call.within seconds_per_session"
        ),
        "test_runaway_trees.py::"
        "test_a_tree_of_agents_that_delegate_for_ever_ends_and_the_roots_llm_is_told_why": (
            "max_depth max_width max_agents"
        ),
    },
    "policy": {
        "test_policy_options.py::test_every_option_of_a_rule_holds": (
            f"rules {_in('rules.*', ABOUT)} rules.*.tools rules.*.action rules.*.unknown rules.*.mode "
            "rules.*.reason rules.*.prompt rules.*.options rules.*.timeout_s default"
        ),
        "test_policy_order.py::test_a_call_is_ruled_on_by_what_came_before_it_in_its_session_tree_or_label": (
            f"{_in('rules.*', 'after unless_after at_most')} {_in('rules.*.after', PRECONDITION)} "
            f"{_in('rules.*.unless_after', PRECONDITION)} {_in('rules.*.at_most', 'n within_s scope')}"
        ),
        "test_policy_order.py::"
        "test_a_call_waits_for_one_that_is_under_way_and_is_denied_when_that_fails": "rules.*.wait_s",
    },
    "provenance": {
        "test_provenance.py::test_every_option_of_a_sink_holds": (
            "sinks sinks.*.name sinks.*.tools sinks.*.to sinks.*.match sinks.*.words sinks.*.links "
            "sinks.*.trusted sinks.*.action trusted action timeout_s annotations"
        ),
    },
    "rate-limit": {
        "test_limits.py::test_calls_are_counted_together_by_session_tree_agent_tool_label_or_in_the_fleet": (
            "limits limits.*.per limits.*.tools"
        ),
        "test_limits.py::test_agents_labels_rate_burst_and_name_do_as_they_say": (
            "limits.*.name limits.*.agents limits.*.labels limits.*.rate limits.*.rate.calls "
            "limits.*.rate.seconds limits.*.burst"
        ),
        "test_limits.py::test_with_admission_a_call_that_others_deny_uses_up_nothing": "admission",
    },
    "router": {
        "test_rules_about_calls.py::test_a_route_is_about_the_calls_that_all_its_conditions_fit": (
            _in("routes.*", ABOUT.removeprefix("name "))
        ),
        "test_router_options.py::test_every_option_of_a_route_holds_in_every_replica": (
            "routes routes.*.name routes.*.from routes.*.to routes.*.arguments routes.*.arguments.*.value "
            "routes.*.agent routes.*.targets routes.*.targets.*.to routes.*.targets.*.weight "
            "routes.*.targets.*.arguments routes.*.targets.*.arguments.*.value routes.*.targets.*.agent "
            "routes.*.sticky routes.*.reason"
        ),
        "test_router_options.py::test_a_target_that_fails_too_often_is_left_alone_and_tried_again": (
            "routes.*.fallback routes.*.fallback.after routes.*.fallback.within_s routes.*.fallback.share "
            "routes.*.fallback.for_s routes.*.fallback.to routes.*.fallback.arguments "
            "routes.*.fallback.arguments.*.value routes.*.fallback.agent"
        ),
    },
    "slots": {
        "test_rules_about_calls.py::test_a_pool_is_about_the_calls_that_all_its_conditions_fit": (
            f"pools {_in('pools.*', ABOUT.removeprefix('name '))}"
        ),
        "test_slots_options.py::"
        "test_so_many_at_a_time_by_key_readers_together_and_who_waits_too_long_is_told": (
            "pools.*.name pools.*.tools pools.*.limit pools.*.key pools.*.shared pools.*.shared.tools "
            "pools.*.wait_s"
        ),
        "test_slots_options.py::test_turns_go_by_shares_within_a_class_and_the_old_ones_rise": (
            "pools.*.share pools.*.share.by pools.*.share.weights pools.*.share.default pools.*.priority "
            "pools.*.priority.by pools.*.priority.classes pools.*.priority.default pools.*.priority.ageing_s"
        ),
        "test_slots_options.py::"
        "test_a_limit_follows_what_the_tool_says_between_its_bounds_and_climbs_again": (
            "pools.*.adaptive pools.*.adaptive.min pools.*.adaptive.signals pools.*.adaptive.climb_s "
            "pools.*.adaptive.pause_s"
        ),
    },
}
"""By scheduler: test to the options that it shows."""

CONFIGS: Final = {
    "approval": "ApprovalConfig",
    "cost-aware": "CostAwareConfig",
    "heuristic": "HeuristicConfig",
    "loop-guard": "LoopGuardConfig",
    "policy": "PolicyConfig",
    "provenance": "ProvenanceConfig",
    "rate-limit": "RateLimitConfig",
    "router": "RouterConfig",
    "slots": "SlotsConfig",
}
"""The name of each scheduler's configuration model."""


def options_of(scheduler: str) -> list[str]:
    """The options that have a test."""
    return [option for options in TESTED[scheduler].values() for option in options.split()]


def shown_by() -> list[tuple[str, str, str]]:
    """Scheduler, option, test: each once."""
    return [
        (scheduler, option, test)
        for scheduler, tests in TESTED.items()
        for test, options in tests.items()
        for option in options.split()
    ]
