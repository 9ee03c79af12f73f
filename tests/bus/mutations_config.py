"""Changes for the worse of how the files of people are read."""

from mutation import BUS, Mutant

DOCUMENT = f"{BUS}/config/document.py"
READING = "../bus/config/test_one_reading.py"
MUTANTS = (
    Mutant(
        "law 7",
        "files are read by YAML 1.1 again: `NO` is false",
        DOCUMENT,
        "(_AmplifierLoader if as_amplifier else _Loader)(",
        "_AmplifierLoader(",
        f"{READING}::test_what_is_no_value_of_the_core_schema_is_the_text_that_it_is",
    ),
    Mutant(
        "law 7",
        "an odd number is compared with as the number that it is",
        f"{BUS}/config/check.py",
        "if isinstance(where, str) or not where.has_odd:",
        "if True:",
        f"{READING}::test_a_number_that_may_be_a_text_is_refused_where_values_are_compared",
    ),
    Mutant(
        "law 7",
        "a number and a text may be one key twice",
        DOCUMENT,
        "if key.value in seen:",
        "if (key.tag, key.value) in seen:",
        f"{READING}::test_what_readers_take_for_different_things_is_refused_by_its_line",
    ),
    Mutant(
        "law 7",
        "tags are read",
        DOCUMENT,
        'if getattr(event, "tag", None) not in (None, _TEXT):',
        "if False:",
        f"{READING}::test_what_readers_take_for_different_things_is_refused_by_its_line",
    ),
    Mutant(
        "law 7",
        "what a person corrects may have a key twice",
        f"{BUS}/protocol/json_values.py",
        "    if len(found) < len(pairs):\n",
        "    if False:\n",
        "../schedulers/commands/test_approvals_people.py::test_what_no_json_is_is_refused",
    ),
)
