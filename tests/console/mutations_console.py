"""Changes for the worse in what the console shows of money and of rules, and the tests that notice them."""

from mutation import SCHEDULERS, Mutant

_CONSOLE = f"{SCHEDULERS}/commands/console"
_MONEY = "../console/test_console_spending.py"

MUTANTS = (
    Mutant(
        "law 5",
        "models that a stranger invents are kept without end",
        f"{_CONSOLE}/spending.py",
        "if name not in self.models and len(self.models) >= MAX_MODELS:",
        "if False:",
        f"{_MONEY}::test_what_is_remembered_is_bounded_whatever_comes",
    ),
    Mutant(
        "money",
        "a model that is known late is paid twice",
        f"{_CONSOLE}/spending.py",
        "left = sums.models.pop(was, part.amount) - part.amount",
        "left = sums.models.pop(was, part.amount)",
        f"{_MONEY}::test_a_fact_that_comes_after_the_entry_names_its_model",
    ),
    Mutant(
        "money",
        "what a request was charged afterwards counts as a tool's",
        f"{_CONSOLE}/spending.py",
        "for_llm = tool == LLM_REQUEST or id_.startswith(CHARGE) or ",
        "for_llm = tool == LLM_REQUEST or ",
        f"{_MONEY}::test_a_fact_that_comes_after_the_entry_names_its_model",
    ),
    Mutant(
        "law 5",
        "a time that is no number ends the page of revisions",
        f"{_CONSOLE}/revisions.py",
        "change.at if math.isfinite(change.at) and 0 <= change.at < _LATEST else 0.0",
        "change.at",
        "../console/test_console_revisions.py::test_whatever_stands_on_the_bus_is_text_and_bounded",
    ),
    Mutant(
        "rollouts",
        "one record that cannot be read hides all schedulers",
        f"{_CONSOLE}/revisions.py",
        "        except ToolgateError as error:\n            replicas",
        "        except ZeroDivisionError as error:\n            replicas",
        "../console/test_console_revisions.py::test_whatever_stands_on_the_bus_is_text_and_bounded",
    ),
    Mutant(
        "slots",
        "who has a slot is shown as who waits for it",
        f"{_CONSOLE}/queues.py",
        "for each in one.waiting[:MAX_CALLS]",
        "for each in one.held[:MAX_CALLS]",
        "../console/test_console_queue.py::test_a_queue_is_told_call_by_call",
    ),
    Mutant(
        "rollouts",
        "rules that are tried count beside those that they replace",
        f"{_CONSOLE}/rule_trial.py",
        "effect = replay_decision(case.ruled, [given], without=(self._scheduler,))",
        "effect = replay_decision(case.ruled, [given])",
        "../console/test_console_rules.py::test_a_denial_of_another_scheduler_stands_and_its_own_falls_away",
    ),
    Mutant(
        "law 5",
        "a trial of rules goes on as long as it likes",
        f"{_CONSOLE}/rule_trial.py",
        "if time.monotonic() > until:",
        "if False:",
        "../console/test_console_rules.py::test_a_trial_is_bounded_in_time_and_begins_with_the_newest",
    ),
)
