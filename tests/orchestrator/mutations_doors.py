"""Mutations of what all doors have in common: one parser, names, bounds that are nobody's alone, secrets."""

from mutation import BUS, ORCHESTRATOR, Mutant

_PARSED = "../orchestrator/serve/test_one_parser.py::test_the_parser_says_why"
_SERVED = "../orchestrator/serve/test_serve_service.py"
_NAMED = "../orchestrator/decision/test_reserved_tools.py::test_a_tool_of_a_reserved_name_is_denied_in_words"
_SETTINGS = "../orchestrator/coding_agents/test_hook_settings.py"
_TOLD = "../bus/commands/test_notify_messages.py"
_VALUES, _SERVE = f"{BUS}/protocol/json_values.py", f"{ORCHESTRATOR}/commands/serve"

_CHANGES = (
    (
        "a text is nested as deep as it likes",
        _VALUES,
        "> MAX_DEPTH and is_deeper",
        "< 0 and is_deeper",
        _PARSED,
    ),
    ("a number has any number of digits", _VALUES, "if len(text) <= MAX_DIGITS:", "if True:", _PARSED),
    (
        "a number is beyond all others",
        _VALUES,
        "if math.isinf(found := float(text)):",
        "if (found := float(text)) is None:",
        _PARSED,
    ),
    (
        "large letters make another name",
        f"{BUS}/protocol/names.py",
        ".casefold() in _RESERVED_WORDS",
        " in _RESERVED_WORDS",
        _NAMED,
    ),
    (
        "blanks make another name",
        f"{BUS}/protocol/names.py",
        '"".join(filter(str.isalnum, word))',
        "word",
        _NAMED,
    ),
    (
        "names of tools make series without end",
        f"{BUS}/telemetry/metrics.py",
        "    if labels in series or len(series) < MAX_SERIES:\n",
        "    if True:\n",
        f"{_SERVED}::test_made_up_names_of_tools_and_agents_lock_nobody_out",
    ),
    (
        "one caller fills a sidecar",
        f"{_SERVE}/service.py",
        "if self._waiting[caller] >= MAX_WAITING:",
        "if False:",
        f"{_SERVED}::test_who_has_as_many_requests_as_one_may_is_refused_alone",
    ),
    (
        "one caller pushes out the calls of another",
        f"{ORCHESTRATOR}/decision/tree_shares.py",
        "own = max(self._of.values(), key=len)",
        "own = next(iter(self._of.values()))",
        "../orchestrator/serve/test_serve_calls.py::test_who_has_the_most_makes_room_and_the_calls_of_others_stay",
    ),
    (
        "settings are open while they are written",
        "bus/toolgate_bus/commands/new_files.py",
        "0o666 if mode is None else 0o600",
        "0o666",
        f"{_SETTINGS}::test_a_file_is_closed_to_others_before_anything_is_in_it",
    ),
    (
        "a project's variables lead a hook to another bus",
        "orchestrator/toolgate_hook.py",
        "    if options.config:  # it alone says where the bus is\n",
        "    if False:\n",
        "test_hook_lives.py::test_the_sidecar_of_a_configuration_gets_no_folder_from_the_environment",
    ),
    (
        "a variable overrules a file",
        f"{ORCHESTRATOR}/commands/serve/cli.py",
        'redis = own.get("redis", redis)',
        'redis = redis or own.get("redis")',
        "test_serve.py::test_a_file_alone_says_where_the_bus_is_and_no_variable_does",
    ),
    (
        "a password that ends the address early is shown",
        f"{BUS}/server/settings.py",
        '    if is_cut or "#" in behind:\n',
        "    if False:\n",
        "../bus/server/test_settings.py::test_no_part_of_a_password_is_shown_however_it_is_written",
    ),
    (
        "a name that an agent chose is a link",
        f"{BUS}/commands/notify/notification.py",
        "{unlink(describe(each))}",
        "{describe(each)}",
        f"{_TOLD}::test_no_name_that_an_agent_chose_becomes_a_link_or_calls_anybody",
    ),
    (
        "a guard is opened where threads are greenlets",
        f"{ORCHESTRATOR}/guard/gate_thread.py",
        "        if _has_greenlets():\n",
        "        if False:\n",
        "../orchestrator/guard/test_guard_values.py::test_each_call_is_told_that_greenlets_are_no_threads",
    ),
)
MUTANTS = tuple(Mutant("doors", *change) for change in _CHANGES)
