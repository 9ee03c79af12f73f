"""Texts that hold a list or map, as JSON or as Python writes it, and those that readers disagree about."""

import json
import warnings

import pytest
from toolgate_bus.ruling.conditions.arguments import MISSING, UNSEEN
from toolgate_bus.ruling.conditions.json_texts import read_json_text

pytestmark = pytest.mark.pure

LITERALS = (
    (r"['a', 1, None, True]", ["a", 1, None, True]),
    (r"['\d', '\\d', '\x41', '\n']", [r"\d", r"\d", "A", "\n"]),
    (r"{'a': ('b', 'c'), 1: {'x'}}", {"a": ["b", "c"], "1": ["x"]}),
    (r"['C:\files', '\400']", UNSEEN),
    (r"[r'\d']", UNSEEN),
    (r"[b'\x41']", UNSEEN),
    (r"[b'a']", [UNSEEN]),
    (r"{'a': 1, 'a': 2}", UNSEEN),
    (r"[{'a': 1, 'a': 2}]", UNSEEN),
    (r"{'1': 1, 1: 2}", UNSEEN),
    (r"['a', 1if x else 2]", MISSING),
    (r"['a', 0x1for x in y]", MISSING),
    (r"['1if', '2or']", ["1if", "2or"]),
    (r"['a'.b]", MISSING),
    (r"{['a']}", MISSING),
    (r"['a', {{}: 1}]", MISSING),
    ('{"a": 1, "a": 2}', UNSEEN),
    ('{"a": NaN}', UNSEEN),
    ("[" * 200 + '"a"' + "]" * 200, UNSEEN),
    (f'["{chr(92)}ud800"]', ["\ud800"]),
    (json.dumps(["\U0001f600"]), ["\U0001f600"]),
    ("no list", MISSING),
)


@pytest.mark.parametrize(("text", "value"), LITERALS)
def test_a_text_is_read_alike_under_any_filter_of_warnings_and_changes_none(text, value, monkeypatch):
    """Filters are the process's: another thread may be changing them, or want each warning as an error."""
    for action in ("error", "always"):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter(action)
            before = warnings.filters
            with monkeypatch.context() as patch:
                patch.setattr(warnings, "catch_warnings", None)
                found = read_json_text(text)
            assert warnings.filters is before
        assert found == value
        assert not told
