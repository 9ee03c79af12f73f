"""What must be noticed of rules and of what they cannot see."""

from mutation import BUS, ORCHESTRATOR, SCHEDULERS, Mutant

TESTS = "../attacks/test_no_denied_call_runs.py"
DISGUISES = f"{TESTS}::test_no_disguise_lets_a_denied_call_run_and_an_honest_long_one_does"
NUMBERS = "../bus/ruling/conditions/test_conditions.py::test_a_number_may_be_written_in_any"
REDACT = "../orchestrator/decision/test_redact.py"

MUTANTS = (
    Mutant(
        "law 2",
        "what a rule cannot see lets a call run",
        f"{SCHEDULERS}/shipped/policy/rules.py",
        'return allows is (self.unknown == "allow") if truth is None else truth',
        "return bool(truth)",
        DISGUISES,
    ),
    Mutant(
        "law 2",
        "a key with dots in it is not a second reading",
        f"{BUS}/ruling/conditions/arguments.py",
        "    if other:",
        "    if False:",
        DISGUISES,
    ),
    Mutant(
        "law 2",
        "a path through a placeholder leads nowhere",
        f"{BUS}/ruling/conditions/arguments.py",
        "UNSEEN if placeholders.hides(value) or value",
        "UNSEEN if value",
        DISGUISES,
    ),
    Mutant(
        "law 2",
        "a path through a text of JSON leads nowhere",
        f"{BUS}/ruling/conditions/arguments.py",
        "[:1] in _BEGINS else MISSING",
        "[:1] in () else MISSING",
        "../bus/ruling/conditions/test_conditions.py",
    ),
    Mutant(
        "law 2",
        "a tool's name is read as it stands only",
        f"{BUS}/ruling/conditions/globs.py",
        "return raw if raw == same else None",
        "return raw",
        DISGUISES,
    ),
    Mutant(
        "law 2",
        "a number may have 64 characters",
        f"{BUS}/ruling/conditions/conditions.py",
        "    try:\n        near = float(text)",
        "    if len(text) > 64:\n        return ()\n    try:\n        near = float(text)",
        f"{NUMBERS}_form_and_at_any_length",
    ),
    Mutant(
        "law 2",
        "a keyword of a schema takes a placeholder for a text",
        f"{BUS}/ruling/conditions/placeholder_schema.py",
        "if placeholders.hides(instance) and (name in _OF_TYPE or name in _OF_ANY):",
        "if False:",
        "../bus/ruling/conditions/test_schema_fragments.py::test_what_a_keyword_cannot_see_is_not_known",
    ),
    Mutant(
        "law 2",
        "equal secrets have different placeholders",
        f"{ORCHESTRATOR}/decision/question/redact.py",
        "token(_KEY, value, canonicalize(value))",
        "token(secrets.token_bytes(32), value, canonicalize(value))",
        f"{REDACT}::test_equal_values_have_equal_placeholders_and_others_none_of_them",
    ),
    Mutant(
        "law 2",
        "a name that was clear once is clear in a call that hides it",
        f"{ORCHESTRATOR}/decision/question/redact.py",
        "is_usual = out.max_chars >= _SHORT_NAME and not (out.known or out.wary)",
        "is_usual = out.max_chars >= _SHORT_NAME",
        f"{REDACT}::test_a_name_that_was_clear_once_is_hidden_where_it_is_a_secret_of_the_call",
    ),
    Mutant(
        "law 2",
        "a name that was clear once is clear for a tool of shorter texts",
        f"{ORCHESTRATOR}/decision/question/redact.py",
        "is_usual = out.max_chars >= _SHORT_NAME and not",
        "is_usual = not",
        f"{REDACT}::test_a_name_that_was_clear_once_is_too_long_for_a_tool_of_shorter_texts",
    ),
    Mutant(
        "law 2",
        "what was not searched leaves",
        f"{ORCHESTRATOR}/decision/question/scanning.py",
        "if len(encoded) * pattern.size > MAX_STEPS or",
        "if",
        f"{REDACT}::test_what_was_not_looked_at_does_not_leave",
    ),
    Mutant(
        "law 2",
        "a dollar is the end of the text only",
        f"{BUS}/ruling/conditions/patterns.py",
        'return encoded[:-1] + b"\\n" if self._ends_lines',
        'return encoded[:-1] + b"\\n" if False',
        "../bus/ruling/test_patterns.py::test_ends_of_lines_and_words_are_where_python_sees_them",
    ),
    Mutant(
        "law 2",
        "the last digit of a whole number is nothing",
        f"{ORCHESTRATOR}/turn/values/jsonable.py",
        "whole = isinstance(one, int) or isinstance(other, int)",
        "whole = False",
        "../orchestrator/turn/test_jsonable.py::test_whole_numbers_are_the_same_if_each_digit_is",
    ),
)
