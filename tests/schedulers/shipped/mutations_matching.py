"""What must be noticed of lists, of rules that fit unseen, of evidence, and of who works for whom."""

from mutation import BUS, SCHEDULERS, Mutant

CONDITIONS = "../bus/ruling/conditions/test_conditions.py"
POLICY = "../schedulers/shipped/test_policy.py"
ORDER = "../schedulers/shipped/test_policy_order.py"
APPROVAL = "../schedulers/shipped/test_approval.py"
ALWAYS = "../schedulers/shipped/test_approval_records.py::test_always_lets_nothing_pass_that_fits_in_part"
RATE_LIMIT = "../schedulers/shipped/test_rate_limit.py"
SHIPPED = f"{SCHEDULERS}/shipped"

MUTANTS = (
    Mutant(
        "one reading",
        "an empty list meets a rule that allows",
        f"{BUS}/ruling/conditions/conditions.py",
        "every(each) if value else False",
        "every(each)",
        CONDITIONS,
    ),
    Mutant(
        "one reading",
        "a path leads into no list",
        f"{BUS}/ruling/conditions/arguments.py",
        "        if isinstance(value, list | tuple) and not is_index(name):\n            return _at_each",
        "        if False:\n            return _at_each",
        CONDITIONS,
    ),
    Mutant(
        "one reading",
        "a text is not read as the list that it holds",
        f"{BUS}/ruling/conditions/conditions.py",
        "if value[:1] in MAY_BEGIN and",
        "if False and",
        CONDITIONS,
    ),
    Mutant(
        "one reading",
        "a rule that allows is met by one element",
        f"{SHIPPED}/policy/rules.py",
        'return "all" if self.action',
        'return "any" if self.action',
        POLICY,
    ),
    Mutant(
        "unknown",
        "a text that is no number is on no side of one",
        f"{BUS}/ruling/conditions/conditions.py",
        "return truths.pop() if len(truths) == 1 else None",
        "return truths.pop() if truths else False",
        CONDITIONS,
    ),
    Mutant(
        "unknown",
        "the first rule that may fit a call is the last that is looked at",
        f"{SHIPPED}/policy/call_ruling.py",
        "        if isinstance(verdict, Deny):\n            break\n        if truth",
        "        if True:\n            break\n        if truth",
        POLICY,
    ),
    Mutant(
        "unknown",
        "a standing approval lets pass what its rule cannot see",
        f"{SHIPPED}/approval/config.py",
        "return self.rule.always and self.is_whole and not self.unseen",
        "return self.rule.always and self.is_whole",
        ALWAYS,
    ),
    Mutant(
        "unknown",
        "many calls have one forgotten by which a rule goes",
        f"{SHIPPED}/policy/order.py",
        "            self._keep_evidence(kept, tool, runs.popleft())",
        "            runs.popleft()",
        ORDER,
    ),
    Mutant(
        "unknown",
        "what was forgotten counts for nothing",
        f"{SHIPPED}/policy/order.py",
        "        if unseen and any(now - one.lost_at",
        "        if False and any(now - one.lost_at",
        ORDER,
    ),
    Mutant(
        "unknown",
        "a call without a label counts for nobody",
        f"{SHIPPED}/policy/order.py",
        "return ((scope, value), (scope, _UNTOLD)) if against else ((scope, value),)",
        "return ((scope, value),)",
        "../schedulers/shipped/test_options.py",
    ),
    Mutant(
        "unknown",
        "a call gets no slot of its ninth pool, and runs",
        f"{SHIPPED}/slots/messages.py",
        "if needs <= MAX_NEEDS:",
        "if needs:",
        "../schedulers/shipped/test_slots_config.py",
    ),
    Mutant(
        "lineage",
        "approval goes by the agent alone that makes the call",
        f"{SHIPPED}/approval/config.py",
        "for one in as_each_agent(call))",
        "for one in (call,))",
        APPROVAL,
    ),
    Mutant(
        "lineage",
        "a limit is for the agent alone that makes the call",
        f"{BUS}/ruling/conditions/matching.py",
        "return self._about(tools, call, (call.agent, *call.lineage), elements)",
        "return self._about(tools, call, (call.agent,), elements)",
        RATE_LIMIT,
    ),
    Mutant(
        "lineage",
        "an agent above has a bucket of its own",
        f"{SHIPPED}/rate_limit.py",
        "named = dict.fromkeys((call.agent, *call.lineage))",
        "named = dict.fromkeys((call.agent,))",
        RATE_LIMIT,
    ),
    Mutant(
        "lineage",
        "what a session did counts against no other of its tree",
        f"{SHIPPED}/policy/order.py",
        'return (("tree", root), ("tree", call.session))',
        'return (("session", call.session),)',
        ORDER,
    ),
    Mutant(
        "lineage",
        "an agent above pays for no call of those that work for it",
        f"{SHIPPED}/cost_aware/accounts.py",
        "return dict.fromkeys((payer.agent, *payer.lineage))",
        "return dict.fromkeys((payer.agent,))",
        "../schedulers/shipped/test_cost_aware_parts.py",
    ),
    Mutant(
        "observe",
        "a policy that observes rules all the same",
        f"{SHIPPED}/policy/scheduler.py",
        'if config.mode == "enforce":',
        "if True:",
        POLICY,
    ),
)
