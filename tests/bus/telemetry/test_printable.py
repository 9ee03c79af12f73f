"""What others wrote, on a terminal: nothing in it steers, in one piece or in many."""

import codecs
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text
from toolgate_bus.commands.markup import escape
from toolgate_bus.commands.table import Table
from toolgate_bus.commands.terminal import Terminal
from toolgate_bus.telemetry.printable import (
    PieceCleaner,
    clean,
    printable,
    spell_unencodable,
    visible,
    visible_json,
)

pytestmark = pytest.mark.pure

TEXT = st.text(st.characters() | st.sampled_from("\x1b[]\r\n\x07\x9b\u202e\ud800"))


def steers(text: str) -> bool:
    return any(
        (ord(c) < 32 and c not in "\n\t")
        or 127 <= ord(c) < 160
        or c in "\u2028\u2029\u202a\u202e\u2066\u2069"
        or "\ud800" <= c <= "\udfff"
        for c in text
    )


@given(TEXT)
def test_nothing_that_steers_gets_through(text: str) -> None:
    assert not steers(clean(text))
    assert not steers(printable(text))
    assert not steers(visible(text))
    assert "\n" not in visible(text)


@given(st.lists(TEXT, max_size=8))
def test_pieces_are_shown_as_the_whole_would_be(pieces: list[str]) -> None:
    cleaner = PieceCleaner()
    shown = [cleaner.feed(piece) for piece in pieces]
    assert "".join(shown) + cleaner.close() == clean("".join(pieces))


def test_a_sequence_split_in_two_is_as_harmless_as_a_whole_one() -> None:
    cleaner = PieceCleaner()
    assert cleaner.feed("red: \x1b") + cleaner.feed("[31m!") == "red: \\u001b[31m!"


def test_only_the_end_of_a_line_waits_for_the_next_piece() -> None:
    cleaner = PieceCleaner()
    assert cleaner.feed("word") == "word"
    assert cleaner.feed("line\r") == "line"
    assert cleaner.feed("\nnext") == "\nnext"


def test_the_spaces_of_other_languages_stay_in_an_answer() -> None:
    assert clean("a\u00a0b\u3000c") == "a\u00a0b\u3000c"


@given(st.dictionaries(TEXT, TEXT, max_size=3))
def test_json_without_steering_says_the_same(content: dict[str, str]) -> None:
    spelled = visible_json(json.dumps(content, ensure_ascii=False))
    assert not steers(spelled)
    assert json.loads(spelled) == content


@given(TEXT)
def test_what_nobody_escaped_is_cleaned_by_the_console(text: str) -> None:
    shown = io.StringIO()
    terminal = Terminal(file=shown, width=10_000)
    table = Table([text], title=escape(text))
    table.add_row(escape(text))
    for one in (Text(text), table):
        terminal.print(one)
    terminal.print(text, markup=False)
    assert not steers(shown.getvalue())


@given(TEXT)
def test_words_of_others_stay_on_their_line_and_are_no_markup(text: str) -> None:
    shown = io.StringIO()
    Terminal(file=shown, width=10_000).print(f"<{escape(f'[red]{text}[/]')}>", soft_wrap=True)
    assert shown.getvalue() == f"<{visible(f'[red]{text}[/]')}>\n"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_letters_that_an_output_has_not_are_spelled_out_as_json_does_it(encoding):
    codecs.register_error("spelled-out-for-a-test", spell_unencodable)
    text = json.dumps({"said": "é → 漢 😀 \ud800"}, ensure_ascii=False)
    written = text.encode(encoding, "spelled-out-for-a-test").decode(encoding)
    assert json.loads(written) == json.loads(text)
