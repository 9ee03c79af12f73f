"""Fields of a result that a policy hides by their paths: in values, and in the JSON that a text holds."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toolgate_bus.config.check import check
from toolgate_bus.errors import ConfigError
from toolgate_bus.protocol.events import AskUser, Continue, Deny, Mask, Replace
from toolgate_bus.ruling.results import mask_parts
from toolgate_schedulers.shipped.policy.scheduler import Policy, PolicyConfig, rule_on
from toolgate_schedulers.testing import question

pytestmark = pytest.mark.pure


def policy(*rules):
    return check(PolicyConfig, {"rules": [{"on": "result", "tools": "*", **one} for one in rules]}, "p.yaml")


def ruled(value, *fields, again=False, cut=False, more=()):
    config = policy({"mask": [{"fields": list(fields)}]}, *more)
    return rule_on(config, question("a", phase="result", result=value, again=again, result_cut=cut))


def left(value, *fields, **more):
    """What is left of a result."""
    verdict = ruled(value, *fields, **more)
    return mask_parts(value, verdict.parts).value if isinstance(verdict, Mask) else verdict


def shown(value, *fields, **more):
    """What is shown of a result, also if nothing is hidden."""
    made = left(value, *fields, **more)
    return value if isinstance(made, Continue) else made


PEOPLE = {
    "user": {"ssn": "123-45-6789", "name": "ann"},
    "rows": [{"email": "ann@ok.example"}, {"n": 1}, [{"email": {"at": "bob@ok.example"}}]],
    "0": {"email": None},
}
OF_PEOPLE = {
    "user": {"ssn": "[withheld: ssn]", "name": "ann"},
    "rows": [{"email": "[withheld: email]"}, {"n": 1}, [{"email": "[withheld: email]"}]],
    "0": {"email": None},
}


def test_a_rule_hides_the_fields_that_it_names():
    assert left(PEOPLE, "$result.user.ssn", "$result.rows.email") == OF_PEOPLE
    assert left([{"ssn": 5}, {"ssn": 6}], "$result.ssn") == [{"ssn": "[withheld: ssn]"}] * 2
    assert left([{"ssn": 5}, {"ssn": 6}], "$result.1.ssn") == [{"ssn": 5}, {"ssn": "[withheld: ssn]"}]
    named = {"mask": {"fields": "$result.ssn", "name": "number"}}
    verdict = rule_on(policy(named), question("a", phase="result", result={"ssn": "1"}))
    assert (verdict.parts[0].path, verdict.parts[0].name, verdict.reason) == (
        "/ssn",
        "number",
        "number (rule 1)",
    )


def test_a_path_that_leads_nowhere_and_a_text_without_json_hide_nothing():
    for value in (PEOPLE, "the ssn is 123-45-6789", "[INFO] ssn: 5", None, 7, [], "", '"ssn" is a word'):
        assert left(value, "$result.ssn", "$result.user.ssn.more") == Continue()


def test_of_a_text_that_holds_json_the_value_alone_is_hidden():
    text = json.dumps(PEOPLE, indent=2)
    made = left(text, "$result.user.ssn", "$result.rows.email")
    whole = made.replace('"email": [withheld: email]', '"email": "[withheld: email]"')  # (it was a map)
    assert json.loads(whole) == OF_PEOPLE
    lines = '{"ssn": "1234"}\n{"ssn": 5}\n'
    assert left(lines, "$result.ssn") == '{"ssn": "[withheld: ssn]"}\n{"ssn": [withheld: ssn]}\n'
    assert left('```json\n{"ssn": "5"}\n```', "$result.ssn") == '```json\n{"ssn": "[withheld: ssn]"}\n```'
    assert left('{"ssn": "1", "ssn": "2"}', "$result.ssn").count("[withheld: ssn]") == 2
    within = {"content": [{"type": "text", "text": '{"ssn": "1234"}'}], "structuredContent": {"ssn": "1234"}}
    assert "1234" not in json.dumps(left(within, "$result.content.text.ssn"))


@pytest.mark.parametrize(
    "before",
    [
        *("null\n", "42\n", '{"a": 1}\ntrue\n', '{"a": 1}\nWARN: slow\n', '{"a": 1}\n[INFO] user\n'),
        *("The record:\n```json\n", '```json\n{"a": 1}\n```\n\n```json\n', '{"ssn": 1} is old\n'),
        *("{'a': 1}\n", '["a",\n 1]\n', "{name} is \n\n\n  ", 'He said\n"hi\nthere\n', '"hi\nthere\n'),
    ],
)
def test_json_is_found_in_the_lines_of_a_text_whatever_stands_in_those_between(before):
    for line in ('{"ssn": "123-45-6789"}\n', "{'ssn': '123-45-6789'}\n"):
        made = left(f"{before}{line}```\nThat is all.", "$result.ssn")
        assert "6789" not in made
        assert made.endswith("\n```\nThat is all.")


@pytest.mark.parametrize(
    "text",
    [
        '# Title\n```json\n{\n  "a": 1,\n}\n```\nMore words\n',
        'The diff:\n-{"a": 1}\n {"b": 2,\n+"c": 3}\nMore words\n',
        "class A\n{\n  int n;\n}\n",
        "{% if x %}\n{{ y }}\n",
        'He said\n"it is\n',
    ],
)
@pytest.mark.parametrize("cut", [False, True])
def test_words_and_code_that_do_not_name_a_field_stay(text, cut):
    assert left(text, "$result.user.ssn", cut=cut) == Continue()
    assert "6789" not in shown(f'{text}{{"user": {{"ssn": "123-45-6789"}}}}', "$result.user.ssn", cut=cut)


def test_lines_that_begin_as_json_and_are_none_are_read_within_the_bound():
    for line in (
        '["a",\n',
        "[1,\n 2,\n",
        "[1,1,1,1\n",
        "[x\n",
        '"\n',
        '{"a"\n',
        "{'a': 1}\n",
        '\\":',
        "[1]\n",
    ):
        text = line * (60_000 // len(line))
        assert left(text, "$result.ssn", "$result.user.n", "$result.rows.0.key") == Continue(), line
    assert left("[\n" * 30_000 + '{"ssn": 6789}', "$result.ssn") == "[withheld: ssn]"


@pytest.mark.parametrize(
    "line",
    [
        *(
            "found {'ssn': '123-45-6789'}",
            "{'at': date(1990, 1, 1), 'ssn': '123-45-6789'}",
            '`{"ssn": 6789}`',
        ),
        *(
            '{"a": 1},{"ssn": "123-45-6789"}',
            '"ssn": "123-45-6789",',
            'data: {\\"ssn\\": 6789}',
            '{"a": 1, "\\u0073sn" 6789',
        ),
        *('{/* of ann */ "ssn": "6789"}', "[undefined, {'ssn': 6789}]", '[{"a": oops}, {"ssn": 6789}]'),
        *('{"n": ' + "7" * 5_000 + ', "ssn": 6789}', "{'rows': [{'\\x73sn': 6789}, "),
        *(
            "['" + "a" * 5_000 + "', {'ssn': 6789}]",
            '{"{\\"ssn\\": 6789}" oops}',
            '{"a": "{\\"ssn\\": 6789}\\x"}',
        ),
    ],
)
@pytest.mark.parametrize("path", ["$result.ssn", "$result.1.ssn", "$result.rows.ssn"])
def test_what_stands_behind_the_name_of_a_field_is_hidden_in_its_line_where_no_json_is_read(line, path):
    made = left(f"Before.\n{line}\nAfter.", path)
    assert "6789" not in made
    assert made.startswith("Before.\n")
    assert made.endswith(("[withheld: ssn]", "[withheld: ssn]\nAfter."))


def test_words_between_values_are_searched_and_values_are_read_by_their_paths():
    text = '[null, x]\n{"ssn": 6789, "n": 2}\nfound {"ssn": 6789}\n{"a": 1}\n'
    mark = "[withheld: ssn]"
    assert (
        left(text, "$result.ssn")
        == f'[null, x]\n{{"ssn": {mark}, "n": 2}}\nfound {{"ssn": {mark}\n{{"a": 1}}\n'
    )


def test_a_value_that_goes_on_in_the_next_line_is_hidden_to_the_end():
    for text in ("x = {'ssn': [\n 6789]}", "x = {\n 'ssn':\n  6789\n}"):
        assert "6789" not in shown(text, "$result.ssn")


def test_json_that_began_behind_words_is_searched_at_any_depth():
    text = 'x = [{\n "user": [\n  {\n   "ssn": 6789\n  }\n ]\n}]\n{"ssn": 6789}'
    assert "6789" not in shown(text, "$result.user.ssn")
    assert left('{"ssn": 5}\n', "$result.user.ssn") == Continue()


@pytest.mark.parametrize(
    "text",
    [
        str([{"name": "ann"}] * 400),
        str({"pad": "a" * 5_000}),
        '["word", ' * 900 + "]",
        '{ "use strict"; a = 1; }\n' * 400,
    ],
)
def test_a_long_text_that_does_not_name_a_field_stays(text):
    assert left(text, "$result.user.ssn") == left(f"Code:\n{text}", "$result.user.ssn") == Continue()


def test_each_reading_of_a_path_counts():
    both = {"user.ssn": 1, "user": {"ssn": 2}}
    hidden = "[withheld: ssn]"
    assert left(both, "$result.user.ssn") == {"user.ssn": hidden, "user": {"ssn": hidden}}
    assert left(both, r"$result.user\.ssn") == {"user.ssn": "[withheld: user.ssn]", "user": {"ssn": 2}}


def test_what_a_field_may_stand_in_and_cannot_be_seen_is_hidden_whole():
    for unseen in (
        "⟦redacted⟧",
        "{'ssn': 5, 'ssn': 6}",
        '"{\\"ssn\\": 5}"',
        '{"ssn": ⟦redacted⟧}',
        '{"ssn": ' + "[" * 100_000 + "]" * 100_000 + "}",
    ):
        made = left({"user": unseen}, "$result.user.ssn")["user"]
        assert made.strip('"').replace("'", '"').removeprefix('{"ssn": ') == "[withheld: ssn]", unseen
    inner = '{"user": "{\\"ssn\\": 5}", "n": 1}'
    assert left(inner, "$result.user.ssn") == '{"user": "[withheld: ssn]", "n": 1}'


def test_a_field_whose_end_was_cut_off_is_hidden_to_the_end():
    whole = json.dumps({"a": 1, "user": {"ssn": 'half a "secret" text', "b": [1, 2]}, "c": "d"})
    secret_from = whole.index("half")
    for end in range(1, len(whole) + 1):
        made = left(whole[:end], "$result.user.ssn", cut=True)
        shown = whole[:end] if isinstance(made, Continue) else made
        assert "half" not in shown, (end, shown)
        assert isinstance(made, Continue) is (end <= secret_from), end


def test_what_a_tool_itself_cut_off_or_wrote_wrong_behind_a_field_is_hidden_with_it():
    mark = "[withheld: ssn]"
    assert left('{"a": 1, "ssn": "123-45', "$result.ssn") == f'{{"a": 1, "ssn": "{mark}'
    assert left('{"a": 1, "ssn": 123-45-6789, "b": 2}', "$result.ssn") == f'{{"a": 1, "ssn": {mark}'
    assert left("{'ssn': '123-45", "$result.ssn", cut=True) == f"{{'ssn': {mark}"


@pytest.mark.parametrize("value", ['say "hello"', {"a": "one thing", "b": ["another"]}])
def test_what_a_text_says_as_json_is_hidden_where_it_stands_in_clear(value):
    text = json.dumps({"secret": value})
    made = json.dumps(left({"text": text, "copy": {"is": value}}, "$result.text.secret"))
    assert "hello" not in made
    assert "one thing" not in made
    assert "another" not in made


def test_a_masked_field_comes_round_to_a_person_and_is_not_masked_again():
    asks = ({"action": "ask"},)
    for value in (PEOPLE, json.dumps(PEOPLE)):
        first = ruled(value, "$result.user.ssn", more=asks)
        assert isinstance(first, Replace)
        assert isinstance(ruled(first.result, "$result.user.ssn", more=asks, again=True), AskUser)


@pytest.mark.parametrize(
    "text",
    [
        *(
            '{"user": {"ssn": 5, "id": 7}}',
            '[{"user": {"ssn": "5"}}, {"user": {"ssn": "6"}}, ',
            "x {'ssn': 5}\nend",
        ),
        *(
            '{"user": {"ssn": 5}}\n{"user": {"ssn": [6]}}\nend',
            '{"user": {"ssn": "5",}}\nend',
            '{"user": {"ssn": "5',
        ),
        *(
            '{"user": {"x": oops, "ssn": 5}}',
            '{"user": {"ssn": 5 6, "n": 1}}',
            'x = [\n"ssn":\n 5',
            "{'a': b'x', 'ssn': 5}(",
        ),
    ],
)
@pytest.mark.parametrize("cut", [False, True])
def test_what_is_hidden_in_a_text_is_not_hidden_again(text, cut):
    made = left(text, "$result.user.ssn", cut=cut)
    assert "withheld: ssn" in made
    assert left(made, "$result.user.ssn", cut=False) == Continue()


@pytest.mark.parametrize(
    "text",
    [
        *(
            'opts = {\n  {"help", 0},\n  {"width", 1}\n}',
            'frozenset(\n    {"text", "ssn"}\n)',
            '<p>\n{"ssn"}\n</p>',
        ),
        *(
            'if name == "ssn":\n    return 1\n',
            "case 'ssn':\n  x = 5",
            "version '3.0': fixed",
            "see 'a.ssn': it",
        ),
        *('[INFO] up\n{"rows": [{"user": {"id": 5}}]}', '{"ssn": 5}\nResult of "all":'),
    ],
)
def test_words_and_code_without_such_a_key_stay(text):
    assert left(text, "$result.user.ssn", "$result.id", "$result.list.0") == Continue()


def test_many_fields_are_hidden_as_whole_rows_and_too_much_work_withholds():
    rows = {"rows": [{"email": f"{n}@ok.example", "n": n} for n in range(2000)]}
    assert left(rows, "$result.rows.email") == {"rows": "[withheld: email]"}
    fields = [f"$result.a.b{n}" for n in range(64)]
    verdict = ruled({"a": [{"b": 1}] * 60_000}, *fields)
    assert isinstance(verdict, Deny)
    assert "cannot be searched" in verdict.reason


def test_rules_on_fields_leave_the_local_table_as_it_is():
    calls = [{"tools": "x", "action": "deny"}]
    field = {"on": "result", "tools": "*", "mask": {"fields": "$result.a"}}
    assert (
        Policy(check(PolicyConfig, {"rules": [*calls, field]}, "p")).local_table
        == Policy(check(PolicyConfig, {"rules": calls}, "p")).local_table
    )


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ({"fields": "$.user.ssn"}, "begins with $result: write $result.user.ssn"),
        ({"fields": "/user/ssn"}, "begins with $result: write $result.user.ssn"),
        ({"fields": "$results.ssn"}, "begins with $result: write $result.ssn"),
        ({"fields": "$.result.ssn"}, "begins with $result: write $result.ssn"),
        ({"fields": "$result.rows[*].email"}, "[*] is not part of a path: write rows.email"),
        ({"fields": "$result.a..b"}, "empty name"),
        ({"fields": []}, "at least 1 item"),
        ({"fields": "$result.a", "kind": "cards"}, "give one of"),
    ],
)
def test_a_wrong_path_is_refused_with_the_right_one(line, said):
    with pytest.raises(ConfigError) as refused:
        policy({"mask": line})
    assert said in str(refused.value)


def test_words_and_answers_have_no_fields():
    with pytest.raises(ConfigError, match="only a rule with on: result sees a result"):
        check(PolicyConfig, {"rules": [{"on": "output", "mask": {"fields": "$result.a"}}]}, "p.yaml")


KEYS = st.sampled_from(["ssn", "user", "user.ssn", "a", "0"])
LEAVES = st.sampled_from(["plain", 'with "quotes"\n', 12345, None, True, "⟦redacted⟧"])
VALUES = st.recursive(
    LEAVES, lambda one: st.lists(one, max_size=3) | st.dictionaries(KEYS, one, max_size=3), max_leaves=12
)
NOWHERE = "hidden-from-all"


FORMS = {
    "value": lambda one: one,
    "json": json.dumps,
    "pretty": lambda one: json.dumps(one, indent=1),
    "python": repr,
    "twice": lambda one: json.dumps(json.dumps(one)),
}
WORDS = st.sampled_from(
    ["", "Result: ", "[INFO] up\n", "```json\n", "{ // all\n", 'said "hi\n', '{"a": 1},', "({'b': D(1),"]
)


@given(VALUES, st.sampled_from(sorted(FORMS)), WORDS)
def test_no_value_at_a_path_is_left_in_any_form(value, form, before):
    def plant(one, rest):
        """Put a secret wherever the path may lead, as a reader walks it."""
        if not rest:
            return NOWHERE
        if isinstance(one, dict):
            step = {key: plant(below, rest[1:]) if key == rest[0] else below for key, below in one.items()}
            return {key: NOWHERE if key == ".".join(rest) else below for key, below in step.items()}
        return [plant(below, rest) for below in one] if isinstance(one, list) else one

    planted = plant(value, ["user", "ssn"])
    given = FORMS[form](planted)
    given = before + given if isinstance(given, str) else given
    made = left(given, "$result.user.ssn")
    shown = given if isinstance(made, Continue) else made
    assert NOWHERE not in json.dumps(shown)
    if (
        form in ("value", "json", "pretty")
        and not before
        and NOWHERE not in json.dumps(given)
        and "⟦" not in str(planted)
    ):
        assert isinstance(made, Continue)


@pytest.mark.parametrize(
    ("before", "shown"),
    [
        ('{"a": undefined', '{"a": [withheld: ssn]'),
        ('{"a": "C:\\Users"', '{"a": "C:[withheld: ssn]'),
        ('{"user": /* of ann */ {}', '{"user": [withheld: ssn]'),
        ('[{"b": 1, a: 2', '[{"b": 1, [withheld: ssn]'),
        ('{"a": 1}\n{"b": yes', '{"a": 1}\n{"b": [withheld: ssn]'),
    ],
)
def test_behind_json_that_is_wrong_a_field_may_stand_anywhere(before, shown):
    assert left(f'{before}, "user": {{"ssn": "123-45-6789"}}}}', "$result.user.ssn") == shown


@pytest.mark.parametrize(
    "text", ["[INFO] user", "{curly} text", "{\"a\": 'x', 'b': 2}", '{"a": 1} and more', '{"a": 1}\n{b']
)
def test_a_text_that_is_no_json_or_ends_with_words_stays(text):
    assert left(text, "$result.user.ssn") == Continue()
