"""What a policy finds to hide: each kind, in texts, in numbers, in keys, and in JSON within a text."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toolgate_bus.errors import ConfigError
from toolgate_bus.protocol.events import Mask, MaskedPart
from toolgate_bus.ruling.results import mask_parts
from toolgate_schedulers.shipped.policy import secrets_detector
from toolgate_schedulers.shipped.policy.kinds import API_KEYS, MARKS, PATTERNS, find_cards
from toolgate_schedulers.shipped.policy.masks import (
    CUT_OFF,
    MAX_PARTS,
    MAX_PATHS,
    Finder,
    MaskSource,
    SearchBudget,
    TooMuchWork,
    bound,
    find_parts,
)

pytestmark = pytest.mark.pure


def masked(value, *kinds, is_cut=False, pattern=""):
    """What is left of a result."""
    sources = [MaskSource(MARKS[kind], kind) for kind in kinds]
    if pattern:
        sources.append(MaskSource("own", None, pattern))
    parts = find_parts(value, Finder(sources), SearchBudget(), is_cut=is_cut)
    if not parts:
        return value
    Mask(parts=tuple(bound(parts)))  # it can be sent
    return mask_parts(value, bound(parts)).value


KEYS = (
    "AKIAIOSFODNN7EXAMPLE",
    "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "ghp_" + "a1B2" * 9,
    "github_pat_" + "11ABCDE_" * 5,
    "glpat-" + "x1_y" * 6,
    "sk-" + "aB3" * 16,
    "sk-proj-" + "aB3_" * 10,
    "sk-ant-api03-" + "aB3-" * 10,
    "sk_live_" + "4eC39HqLyjWDarjtT1zdp7dc",
    "xoxb-" + "1234567890-abcdef",
    "https://hooks.slack.com/services/T00000000/B00000000/XXXXXXXXXXXXXXXXXXXXXXXX",
    "AIza" + "SyA1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6q",
    "ya29." + "a0AfH6SMBx-y_z" * 3,
    "GOCSPX-" + "aB3_" * 7,
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
    "Bearer abcdef0123456789abcdef",
    "Basic dXNlcjpwYXNzd29yZA==",
    "Authorization: Bearer abcdef0123456789abcdef",
    'Authorization: "Basic dXNlcjpwYXNzd29yZDEy"',
    "npm_" + "a1B2" * 9,
    "pypi-" + "AgEIcHlwaS5vcmc" * 5,
    "hf_" + "aBcD" * 9,
    "SG." + "a1-_" * 5 + "." + "b2-_" * 10,
    "AccountKey=" + "a1B2" * 21 + "==",
    "123456789:AA" + "a1B2-" * 6 + "abc",
    "postgres://ann:hunter22-and-more@db.example/app",
    "https://api.telegram.org/bot123456789:AA" + "a1B2-" * 6 + "abc",
)


def secret_of(key):
    return max(re.split(r"[\s=:/@\"]+", key), key=len)


@pytest.mark.parametrize("key", KEYS)
def test_keys_and_tokens_are_found_in_a_text_and_nothing_of_them_is_left(key):
    left = masked(f'"first": 1, {key}\nlast words', "api keys")
    assert secret_of(key) not in left
    assert left.startswith('"first": 1, ')
    assert left.endswith("last words")
    assert "[withheld: api key]" in left


@pytest.mark.parametrize(
    "before", ["\x1b[01;31m\x1b[K", "\x1b[0m", "^[[32m", "key%3D", "a%2520", "x_", "é-", r"\n"]
)
def test_a_key_is_found_behind_colours_of_a_terminal_codes_of_a_link_and_underscores(before):
    for key in KEYS:
        left = masked(f"a {before}{key} b", "api keys")
        assert re.fullmatch(r"a .*\[withheld: api key\].* b", left), left
        assert secret_of(key) not in left


SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"


@pytest.mark.parametrize(
    "colour",
    [
        *("\x1b[1;32m", "\x1b[38;5;12m\x1b[K", "\x1b(B\x1b[m", "\x1b]8;;https://a\x1b\\", "\x1b]0;a\x07"),
        *(r"\u001b[32m", r"\\u001b[32m", r"\033[32m", r"\x1b[32m", r"\e[32m", "^[[32m", "%1B[32m", "=1B[32m"),
    ],
)
def test_colours_of_a_terminal_between_a_name_and_its_secret_and_within_it_hide_nothing(colour):
    for text in (
        *(f"AWS_SECRET_ACCESS_KEY={colour}{SECRET}", f"Authorization{colour}: {colour}token {SECRET}"),
        *(f"aws_secret_access_key = {SECRET[:4]}{colour}{SECRET[4:]}", f"AK{colour}{KEYS[0][2:]}"),
    ):
        left = masked(f"a {colour}{text}{colour} b", "api keys")
        assert re.fullmatch(r"a .*\[withheld: api key\](.*) b", left)[1] == colour, left
        assert text[-20:] not in left
    assert masked({"SecretAccessKey": f"{colour}{SECRET}"}, "api keys") == {
        "SecretAccessKey": "[withheld: api key]"
    }
    key = f'{{{colour}"kty"{colour}:{colour}"oct"{colour},{colour}"k"{colour}:{colour}"{SECRET}"{colour}}}'
    if "\\" not in colour:
        assert masked(key, "private keys") == key.replace(SECRET, "[withheld: private key]")


def test_a_colour_or_a_move_of_the_cursor_parts_a_key_from_what_is_before_it():
    for key in ("sk-" + "aB3" * 16, "SK" + "0a" * 16):
        text = f"token\x1b[m\x1b[32m{key}\x1b[m\x1b[31m{key}\x1b[m"
        assert masked(text, "api keys") == "token\x1b[m[withheld: api key]\x1b[m[withheld: api key]\x1b[m"
    assert SECRET not in masked(f"AWS_SECRET_ACCESS_KEY\x1b[20G{SECRET}", "api keys")


@pytest.mark.parametrize("start", ["\x1b", "\x1b[", "\x1b]", "\x1b[1;", "\x1b[1 ", "\x1b]8;;x", r"\e["])
def test_a_long_text_of_sequences_that_do_not_end_is_searched_within_the_bound(start):
    for text in (start * (65_536 // len(start)), start + "1" * 65_536, start + " " * 65_536):
        assert masked(text, "api keys", "private keys") == text


@pytest.mark.parametrize(
    "text",
    [
        "the task-management-framework-of-2024 is a risk-averse one",
        "see https://docs.example.com/a/b?c=d#e and mail ann@ok.example",
        "commit 3f786850e387550fdab836ed7e6dc881de23001b of 2026-11-29T08:00:00Z",
        "the bearer of this letter",
        "AKIA is how they begin",
        "id 123e4567-e89b-12d3-a456-426614174000, 12:34:56, 10.0.0.1:8080",
        "risk-of-many-long-words-in-a-row, disk_live_0123456789abcdef, my_task-list-of-many-long-words",
        "self.shelf_" + "a1B2" * 9 + " robot123456789:AA" + "a" * 33,
        "def call(aws_access_key_id, aws_secret_access_key, aws_session_token, more_and_more_names):",
        "if (sessionToken == expectedSessionToken) new Client(sessionToken, credentialsProviderChain)",
        "The AWS access key administration of internationalization, and its session token\n" + "=" * 60,
        "| AWS key | owner |\n|---|---|\n| session token | ann |",
        '{"p": 1.5, "q": "what is asked", "t": "2026-11-29T08:00:00Z", "dp": "16px", "qi": null}',
        '{"r": "0x' + "a1b2" * 16 + '", "s": "0x' + "c3d4" * 16 + '"}',
    ],
)
def test_what_only_looks_a_little_like_a_key_stays(text):
    assert masked(text, "api keys", "private keys", "cards") == text


PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA\nq1w2e3r4\n-----END RSA PRIVATE KEY-----"


def test_a_private_key_is_hidden_from_its_first_line_to_its_last():
    assert masked(f"a\n{PEM}\nb\n{PEM}", "private keys") == (
        "a\n[withheld: private key]\nb\n[withheld: private key]"
    )
    assert masked("-----BEGIN PUBLIC KEY-----\nMIIB", "private keys") == "-----BEGIN PUBLIC KEY-----\nMIIB"


def test_private_keys_of_other_programs_are_hidden():
    ssh2 = (
        PEM.replace("RSA", "SSH2 ENCRYPTED")
        .replace("-----BEGIN", "---- BEGIN")
        .replace("KEY-----", "KEY ----")
    )
    ssh2 = ssh2.replace("-----END", "---- END")
    assert masked(f"a\n{ssh2}\nb", "private keys") == "a\n[withheld: private key]\nb"
    assert masked({"lines": ssh2.split("\n")}, "private keys") == {"lines": "[withheld: private key]"}
    secret = "jpsQnnGQmL-YBIffH1136cspYG6-0iY7X1fCE9-E9LI"
    jwk = {"kty": "EC", "crv": "P-256", "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU", "d": secret}
    assert masked(jwk, "private keys") == {**jwk, "d": "[withheld: private key]"}
    assert secret not in masked(json.dumps({"keys": [jwk]}), "private keys")
    assert secret not in masked(json.dumps(json.dumps(jwk)), "private keys")
    assert masked("a: b, d: short, id: " + secret, "private keys") == "a: b, d: short, id: " + secret


SECRETS_OF_RSA = ("d", "p", "q", "dp", "dq", "qi")
RSA_KEY = {"kty": "RSA", "kid": "of-2026", "e": "AQAB", "n": "0vU1tS" * 57}
RSA_KEY |= {name: f"{name}-" + "aB3_" * 43 for name in SECRETS_OF_RSA}
MULTI = {**RSA_KEY, "oth": [{name: f"{name}-" + "zY7-" * 29 for name in ("r", "d", "t")}]}


@pytest.mark.parametrize("key", [RSA_KEY, MULTI])
def test_of_an_rsa_key_each_member_is_hidden_from_which_the_key_follows(key):
    left = masked({"keys": [key]}, "private keys")["keys"][0]
    assert {name for name in key if left[name] != key[name]} - {"oth"} == set(SECRETS_OF_RSA)
    texts = (json.dumps(key), json.dumps({"keys": [key]}, indent=1), json.dumps(json.dumps(key)), str(key))
    assert left["n"] == key["n"]
    for text in (json.dumps(left), *(masked(one, "private keys") for one in texts)):
        assert not re.search("(aB3_|zY7-){4}", text)


@pytest.mark.parametrize("beside", [{"kid": "team}1"}, {"kid": "{team"}, {"ext": {"a": {"b": {}}}}])
def test_a_key_in_a_text_is_hidden_whatever_stands_beside_its_members(beside):
    for key in ("c2VjcmV0", "c2VjcmV0LXNlY3JldC1z+ZWNyZXQ/SECRET==", "c2VjcmV0LXNl\n Y3JldC1z"):
        text = json.dumps({"kty": "oct", **beside, "k": key})
        left = json.loads(masked(text, "private keys"))
        assert left == {"kty": "oct", **beside, "k": "[withheld: private key]"}
    words = '{"kty": "RSA", "d": "private exponent"}, {"t": "token", "q": "page", "k": "v"}'
    assert masked(words, "private keys") == words


@pytest.mark.parametrize(
    "value",
    [
        {"q": "how_to_build_a_very_long_slug_with_underscores_and_more"},
        {"k": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"},
        {name: RSA_KEY[name] for name in ("kty", "kid", "e", "n")},
    ],
)
def test_what_has_names_like_those_of_a_private_key_stays(value):
    for one in (value, json.dumps(value), f"d: {[*value.values()][-1]}"):
        assert masked(one, "private keys") == one


@pytest.mark.parametrize(
    ("dash", "blank"),
    [
        *(("-", "%20"), ("-", "+"), ("&#45;", " "), ("%2D", "+"), ("-", "\u00a0")),
        *(("%2d", " "), ("&#x2D;", " "), ("-", "&nbsp;"), ("-", "%2520"), ("-", "=20")),
    ],
)
def test_a_private_key_is_found_as_links_and_html_write_it(dash, blank):
    written = PEM.replace("-", dash).replace(" ", blank)
    assert masked(f"a\n{written}\nb", "private keys").strip(dash) == "a\n[withheld: private key]\nb"
    assert masked([*written.split("\n")], "private keys") == "[withheld: private key]"
    assert masked([*written.split("\n")[:-1]], "private keys") == "[withheld: private key]"


def test_a_private_key_whose_end_is_not_there_hides_the_rest_and_the_lines_beside():
    assert masked(f"a\n{PEM[:60]}", "private keys") == "a\n[withheld: private key]"
    lines = {"path": "id_rsa", "lines": PEM.split("\n")}
    assert masked(lines, "private keys") == {"path": "id_rsa", "lines": "[withheld: private key]"}


def test_a_private_key_in_values_of_their_own_is_hidden_to_its_last_line():
    blocks = [{"type": "text", "text": line} for line in ("a", *PEM.split("\n"))]
    assert masked({"isError": False, "content": blocks}, "private keys") == {
        "isError": False,
        "content": "[withheld: private key]",
    }
    apart = {"first": {"a": {"line": PEM[:40]}}, "last": [{"line": PEM[40:]}], "c": "clear"}
    assert masked([apart, "other"], "private keys") == ["[withheld: private key]", "other"]
    found = [{"line": "if '-----BEGIN PRIVATE KEY-----' in text:"}, {"line": "clear"}]
    assert masked(found, "private keys") == ["[withheld: private key]", {"line": "clear"}]


@pytest.mark.parametrize(
    "rows",
    [
        [{"line": number, "text": text} for number, text in enumerate(("a", *PEM.split("\n")[:-1], "b"))],
        [{"type": "text", "resource": {"text": text}} for text in ("a", *PEM.split("\n")[:-1], "b")],
        [[number, text, []] for number, text in enumerate(("a", *PEM.split("\n")[:-1], "b"))],
        [{"text": text, "tags": [["c"]]} for text in ("a", *PEM.split("\n")[:-1], "b")],
    ],
)
def test_what_is_behind_a_private_key_without_end_in_its_list_is_hidden(rows):
    result = {"files": [{"rows": rows, "c": "clear"}, {"rows": [["other"]]}]}
    parts = find_parts(result, Finder([MaskSource("key", "private keys")]), SearchBudget())
    whole = {"/".join(part.path.split("/")[:5]) for part in parts if part.start is None}
    assert whole == {f"/files/0/rows/{number}" for number in range(1, 5)}


def test_a_list_goes_on_behind_a_private_key_that_ends():
    rows = [{"text": "a"}, {"text": PEM}, {"first": PEM[:40], "last": PEM[40:]}, {"text": "b"}]
    mark = "[withheld: private key]"
    assert masked(rows, "private keys") == [rows[0], {"text": mark}, mark, rows[3]]


@pytest.mark.parametrize(
    "number",
    [
        *("4111111111111111", "4111 1111 1111 1111", "4111-1111-1111-1111", "5500 0000 0000 0004"),
        *("378282246310005", "3782 822463 10005", "30569309025904", "6011000990139424", "4222222222222"),
        "4111\u00a01111\u00a01111\u00a01111",
        *("4111 - 1111 - 1111 - 1111", "4111 – 1111 – 1111 – 1111"),
        *(
            between.join(("4111", "1111", "1111", "1111"))
            for between in (
                *("\u2009", "\u2003", "\u3000", "\u200b", "\u200d", "\u2060", "\ufeff"),
                *("·", "•", " · ", "&nbsp;", "&#160;", "%20", "+", "=20"),
                *("&#32;", "&#xa0;", "&#x20;", "&thinsp;", "%C2%A0", "%c2%a0", "%2520"),
            )
        ),
    ],
)
def test_a_card_is_found_by_its_check_digit_with_separators_and_as_a_number(number):
    assert masked(f"pay with {number} 12/28, 123", "cards") == "pay with [withheld: card] 12/28, 123"
    assert masked(f"12 {number}.", "cards") == "12 [withheld: card]."
    wrong = number[:-1] + str((int(number[-1]) + 1) % 10)
    assert masked(f"pay with {wrong}", "cards") == f"pay with {wrong}"
    if number.isdigit():
        assert masked({"pan": int(number)}, "cards") == {"pan": "[withheld: card]"}
        assert masked([float(number)], "cards") == ["[withheld: card]"]
        assert masked(f"1{number}", "cards") == f"1{number}"  # a part of a longer number is no card


def test_a_card_in_a_link_is_found_behind_a_code_of_digits():
    assert masked("?of=%224111%201111%201111%201111%22&n=1", "cards") == "?of=%22[withheld: card]%22&n=1"
    assert masked("?of=%204111111111111111", "cards") == "?of=%20[withheld: card]"
    assert masked("rate 5%2223000048400011", "cards") == "rate 5%[withheld: card]"


def test_numbers_in_columns_and_lists_are_no_card():
    for between in (",", ", ", "  ", "\t", "\n", "|", " | "):
        text = between.join(["4111", "1111", "1111", "1111"])
        assert masked(text, "cards") == text


def test_a_card_in_digits_of_another_script_is_found():
    assert masked("pay with ４１１１ １１１１ １１１１ １１１１!", "cards") == "pay with [withheld: card]!"
    assert masked("٤١١١١١١١١١١١١١١١", "cards") == "[withheld: card]"
    assert masked("４" * 5000, "cards") == "４" * 5000


@pytest.mark.parametrize("before", range(30_000, 70_000, 131))
def test_what_stands_before_a_card_leaves_nothing_of_it(before):
    left = masked(f"{before} 4111 1111 1111 1111 and {before}-4 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1", "cards")
    assert "1111" not in left
    assert not re.search("1 1 1", left)


def checked(digits):
    """Digits with the right check digit behind them."""
    doubled = [int(one) * (1 + (place % 2 == 0)) for place, one in enumerate(reversed(digits))]
    return digits + str(-sum(one // 10 + one % 10 for one in doubled) % 10)


@given(
    st.sampled_from(["4", "51", "2221", "34", "6011"]),
    st.text("0123456789", min_size=11, max_size=11),
    st.sampled_from(["", " ", "-"]),
)
def test_every_number_with_a_right_check_digit_is_found_and_no_other(issuer, digits, separator):
    number = checked((issuer + digits)[:15])
    text = separator.join(number[at : at + 4] for at in range(0, 16, 4))
    assert [one for one in find_cards(text) if one is not None] == [(0, len(text))]
    other = number[:-1] + str((int(number[-1]) + 5) % 10)
    assert not any(find_cards(other))


def test_mail_addresses_are_found():
    text = "ask Ann.O'Hara+x@mail.ok.example, or jürgen@bücher.example."
    assert masked(text, "mail addresses") == "ask [withheld: mail address], or [withheld: mail address]."


def _as_entity(letter):
    return f"&#{ord(letter)};"


@pytest.mark.parametrize(
    "address",
    [
        *("ann$@ok.example", "ann!b@ok.example", "ann#1~x@ok.example", "jürgen@bücher.example"),
        *("अजय@डाटा.भारत", "a\u0301nn@ok.example", "ann@ok。example", "ann＠ok.example", "ann%40ok.example"),
        *("ann&#64;ok.example", "ann&#x40;ok.example", "ann&commat;ok.example"),
        *("ann&#064;ok.example", "ann&#x0040;ok.example", "ann%2540ok.example", "ann﹫ok.example"),
        *("ann@ok%2Eexample", "ann%40mail%2eok%2Eexample", "ann&#64;ok&#46;example"),
        *(
            "ann&#64;ok&#x2e;example",
            "ann&commat;ok&period;example",
            "".join(map(_as_entity, "ann@ok.example")),
            *("ann&#00000000000000000064;ok.example", "ann&#64ok.example", "ann%25252525252540ok.example"),
        ),
        *("a{b}@ok.example", "ann{}+{x}y@ok.example"),
    ],
)
def test_a_mail_address_in_any_letters_is_hidden_whole(address):
    assert masked(f"https://news.example/?to={address}&x=1", "mail addresses") == (
        "https://news.example/?to=[withheld: mail address]&x=1"
    )
    assert masked("foo@1.2.3, a@b", "mail addresses") == "foo@1.2.3, a@b"
    assert masked(f"<{address}>, (a@b)", "mail addresses") == "<[withheld: mail address]>, (a@b)"


def test_a_mail_address_in_quoted_printable_is_hidden_and_numbers_are_none():
    assert masked("to ann=40ok.example, x", "mail addresses") == "to [withheld: mail address], x"
    for address in ("ann=40ok=2Eexample", "ann@o=\r\nk.example", "ann=\n1@ok.exam=\nple-corp.example"):
        assert masked(f"From: Ann <{address}>", "mail addresses") == "From: Ann <[withheld: mail address]>"
    mail = "Content-Transfer-Encoding: quoted-printable\n\nFrom: {}"
    assert masked(mail.format("wang=40163.example"), "mail addresses") == mail.format(
        "[withheld: mail address]"
    )
    text = "?id=4012.html&n=40.5 {name}@ok.example {x: @ok.example}"
    assert masked(text, "mail addresses") == text


def test_a_pattern_of_ones_own_has_its_name_in_the_mark():
    assert masked("of ACME-12345678!", pattern="ACME-[0-9]{8}") == "of [withheld: own]!"


KEY = KEYS[0]


def test_a_result_is_searched_in_every_text_number_and_key():
    result = {"a": [KEY, {"b": f"x {KEY}"}], "n": [12345678, 1.5, True, None], "c": "clear"}
    assert masked(result, "api keys", pattern="^12345678$") == {
        "a": ["[withheld: api key]", {"b": "x [withheld: api key]"}],
        "n": ["[withheld: own]", 1.5, True, None],
        "c": "clear",
    }


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *(("aws_secret_access_key", SECRET), ("SecretAccessKey", SECRET), ("AWSSessionToken", SECRET)),
        *(
            ("SessionToken", SECRET),
            ("Authorization", "Basic dXNlcjpwYXNz"),
            ("authorization", f"token {SECRET}"),
        ),
        *(("aws-secret-access-key", SECRET), ("AWS Secret Access Key", SECRET)),
        ("X-Amz-Security-Token", f"IQoJb3JpZ2luX2VjEAAa%2F{SECRET}"),
    ],
)
def test_a_key_that_only_its_name_tells_is_hidden_in_maps_as_in_texts(name, text):
    left = masked({"Credentials": {name: text, "Expiration": "2026-11-30"}}, "api keys")
    assert left == {"Credentials": {name: "[withheld: api key]", "Expiration": "2026-11-30"}}
    assert masked({name: ["a", [text], 1]}, "api keys") == {name: ["a", ["[withheld: api key]"], 1]}
    assert text not in masked(json.dumps({name: text}), "api keys")
    assert masked({"Name": name, "Value": text}, "api keys") == {"Name": name, "Value": "[withheld: api key]"}
    assert masked([["a", "b"], [name, text]], "api keys") == [["a", "b"], [name, "[withheld: api key]"]]
    for written in (
        *(f"{name} = {text}", f'{name} => "{text}"', f"{name} := {text}", f"| {name} | {text} |"),
        *(f"{name}: >-\n  {text}", f"{name}%3D{text}", f'{{"name":"{name}","value":"{text}"}}'),
        f"- name: {name}\n  value: {text}\n",
    ):
        assert text not in masked(written, "api keys"), written
    assert masked({"token_count": "12", "key": "a b", "authorization": "none"}, "api keys") == {
        "token_count": "12",
        "key": "a b",
        "authorization": "none",
    }


def test_a_key_of_aws_is_found_in_xml_and_behind_a_blank_by_its_length():
    text = f"<Credentials><SecretAccessKey>{SECRET}</SecretAccessKey></Credentials>"
    left = masked(text, "api keys")
    assert SECRET not in left
    assert left.endswith("</SecretAccessKey></Credentials>")
    for written in ("SecretAccessKey\t{}", "aws configure set aws_secret_access_key {}", "AWS secret key,{}"):
        assert SECRET not in masked(written.format(SECRET), "api keys")


@pytest.mark.parametrize(
    "text",
    [
        "User name,Access key ID,Secret access key\nann,AKIAIOSFODNN7EXAMPLE,{}",
        "| user | SecretAccessKey |\n|---|---|\n| ann | {} |",
        "<tr><td>AWS_SECRET_ACCESS_KEY</td><td>{}</td></tr>",
        "<Name>AWS_SECRET_ACCESS_KEY</Name>\n  <Value>{}</Value>",
        '<entry key="AWS_SECRET_ACCESS_KEY"><![CDATA[{}]]></entry>',
        '{{"Value": "{}", "Name": "AWS_SECRET_ACCESS_KEY"}}',
    ],
)
def test_a_secret_of_aws_is_found_wherever_its_text_has_the_name(text):
    assert SECRET not in masked(text.format(SECRET), "api keys")
    for other in ("9f86d081884c7d659a2feaa0c55ad015a3bf4f1b", SECRET[1:], SECRET + "a", SECRET.lower()):
        left = masked(text.format(f"x,{other}"), "api keys")
        assert f"x,{other}" in left


@pytest.mark.parametrize(
    "result",
    [
        {"aws_secret_access_key": {"sensitive": True, "type": "string", "value": SECRET}},
        {"ParameterKey": "AwsSecretAccessKey", "ParameterValue": SECRET},
        {"value": {"S": SECRET}, "key": "AWS_SECRET_ACCESS_KEY"},
        ["AWS_SECRET_ACCESS_KEY", "=", SECRET],
        {"columns": ["user", "Secret access key"], "rows": [["ann", SECRET]]},
        [{"n": 1, "line": "User name,Secret access key"}, {"n": 2, "line": f"ann,{SECRET}"}],
    ],
)
def test_a_secret_of_aws_is_found_wherever_its_result_has_the_name(result):
    text = json.dumps(result)
    assert masked(result, "api keys") == json.loads(text.replace(SECRET, "[withheld: api key]"))
    for other in ("9f86d081884c7d659a2feaa0c55ad015a3bf4f1b", SECRET[1:], SECRET + "a", SECRET.lower()):
        value = [json.loads(text.replace(SECRET, f"x,{other}")), {SECRET: "a key of a map is a name"}]
        assert masked(value, "api keys") == value
    assert masked(["AWS", "access", SECRET], "api keys") == ["AWS", "access", SECRET]


def test_a_header_in_json_is_found_where_its_value_is_a_list():
    text = json.dumps({"Authorization": ["Basic dXNlcjpwYXNz"]}, indent=2)
    assert "dXNl" not in masked(text, "api keys")


def test_of_a_password_in_a_link_nothing_is_left():
    assert masked("see https://ann:p@ss@ok.example/x", "api keys") == "see [withheld: api key]ok.example/x"
    assert (
        masked(r"see https:\/\/ann:pass@ok.example\/x", "api keys") == r"see [withheld: api key]ok.example\/x"
    )


def test_a_key_that_is_hidden_hides_the_map_that_has_it():
    assert masked({"by key": {KEY: {"owner": "ann"}}, "c": 1}, "api keys") == {
        "by key": "[withheld: api key]",
        "c": 1,
    }


def test_a_key_that_is_hidden_is_hidden_in_copies_and_keys_of_what_is_shown_are_not():
    result = [{KEY: 1, "customer_name": "x"}, {"customer_name": "y"}]
    parts = find_parts(result, Finder([MaskSource("key", "api keys")]), SearchBudget())
    masked_ = mask_parts(result, parts)
    assert masked_.value == ["[withheld: key]", {"customer_name": "y"}]
    assert KEY in masked_.hidden
    assert "customer_name" not in masked_.hidden


def test_json_in_a_text_is_searched_as_text_and_by_its_values_where_it_has_escapes():
    plain = json.dumps({"key": KEY, "c": "clear"})
    assert json.loads(masked(plain, "api keys")) == {"key": "[withheld: api key]", "c": "clear"}
    escaped = plain.replace("AKIA", "\\u0041KIA")
    left = {"key": "[withheld: api key]", "c": "clear"}
    assert json.loads(masked(escaped, "api keys")) == left
    assert json.loads(json.loads(masked(json.dumps(escaped), "api keys"))) == left
    assert masked(f"HTTP/1.1 200 OK\n\n{escaped}\n{escaped}", "api keys").count("[withheld: api key]") == 2
    clear = json.dumps({"c": "cl\near"})
    assert masked(clear, "api keys") == clear


@pytest.mark.parametrize(
    "written",
    [
        r"ann\u0040ok.example",
        r"\u0061nn\x40ok.example",
        r"a\156n\@ok.example",
        r"ann\U00000040ok\u002eexample",
    ],
)
def test_a_part_with_escapes_is_hidden_where_it_is_written_and_what_is_around_it_stays(written):
    text = rf"a\tb {written}, C:\new\table \d800"
    assert masked(text, "mail addresses") == r"a\tb [withheld: mail address], C:\new\table \d800"
    assert masked(text.replace("\\", "\\\\"), "mail addresses").count("[withheld: mail address]") == 1


@given(st.data())
def test_nothing_of_a_key_is_left_under_several_levels_of_escapes_mixed_in_one_text(data):
    key = written = data.draw(st.sampled_from(["ghp_" + "Zq9" * 12, "ann.zq9@ok.example"]))
    for _ in range(data.draw(st.integers(1, 4))):
        which = data.draw(st.sets(st.integers(0, len(written) - 1), max_size=8))
        written = "".join(
            f"\\u{ord(one):04x}" if at in which else "\\\\" if one == "\\" else one
            for at, one in enumerate(written)
        )
    around = data.draw(st.sampled_from(["", "a ", "\\n ", "{", "é: "]))
    assert masked(f"{around}{written} {around}", "api keys", "mail addresses") == (
        f"{around}[withheld: {'api key' if key[0] == 'g' else 'mail address'}] {around}"
    )


def test_of_a_result_that_was_cut_off_the_last_word_is_hidden():
    assert masked("a b AKIAIOSFODNN7", "api keys", is_cut=True) == f"a b [withheld: {CUT_OFF}]"
    assert masked("card 4111 1111 11", "cards", is_cut=True) == f"card [withheld: {CUT_OFF}]"
    for number in (
        *("4111 - 1111 - 11", "4111–1111 - ", "4111\u00a01111\u00a01", "４１１１ １１"),
        *("4111\u20091111\u2009", "4111\u30001", "4111 1111 ", "4111%201111%2"),
    ):
        assert masked(f"card {number}", "cards", is_cut=True) == f"card [withheld: {CUT_OFF}]"
    assert masked("in 2024 the", "cards", is_cut=True) == f"in 2024 [withheld: {CUT_OFF}]"
    assert masked("a b \n", "api keys", is_cut=True) == "a b \n"


@given(st.data())
def test_no_byte_of_a_key_is_left_whatever_the_result(data):
    """The oracle: the key and its parts stand nowhere in what is left, in whatever spelling."""
    key = data.draw(st.sampled_from(["ghp_" + "Zq9" * 12, "AKIAZQ9ZQ9ZQ9ZQ9ZQ9Z".replace("9", "7")]))
    words = st.sampled_from([key, f"a {key}.", f"{key} {key}", "clear", "", 12, None, True])
    texts = words | st.builds(lambda one: json.dumps({"t": one}), words)
    result = data.draw(
        st.recursive(
            texts,
            lambda inner: (
                st.lists(inner, max_size=4)
                | st.dictionaries(st.sampled_from(["a", "b", f"of {key}", "a/b~c"]), inner, max_size=3)
            ),
            max_leaves=20,
        )
    )
    left = json.dumps(masked(result, "api keys"), ensure_ascii=False)
    assert key not in left
    assert key[4:12] not in left


def test_more_parts_than_a_verdict_may_have_hide_whole_values():
    many = {f"k{number}": f"{KEY} {number} " * 3 for number in range(MAX_PARTS + 1)}
    parts = bound(find_parts(many, Finder([MaskSource("key", "api keys")]), SearchBudget()))
    assert parts == [MaskedPart("", None, None, "key")]
    few = [f"{KEY} {number} " * 300 for number in range(3)]
    parts = bound(find_parts(few, Finder([MaskSource("key", "api keys")]), SearchBudget()))
    assert [part.path for part in parts] == ["/0", "/1", "/2"]
    deep = {"x" * 900: {"y" * 900: KEY}}
    assert masked(deep, "api keys") == {"x" * 900: "[withheld: api key]"}
    long = {"x" * 900: {f"{number:0900}": KEY for number in range(MAX_PATHS // 900)}}
    assert len(json.dumps(masked(long, "api keys"))) < 1000


def test_a_result_that_cannot_be_searched_within_the_bound_is_told():
    finder = Finder([MaskSource("key", "api keys")])
    with pytest.raises(TooMuchWork):
        find_parts(["x"] * 1000, finder, SearchBudget(1000))
    with pytest.raises(TooMuchWork):
        find_parts("x" * 10_000, finder, SearchBudget(1000))
    cards = Finder([MaskSource("card", "cards")])
    assert find_parts("4 " * 2000, cards, SearchBudget()) == []
    with pytest.raises(TooMuchWork):
        find_parts("4 " * 90_000, cards, SearchBudget())


def test_each_kind_says_what_it_looks_for():
    assert {*PATTERNS, "cards", "secrets"} == set(MARKS)
    assert len(set(API_KEYS)) == len(API_KEYS)


class Detector:
    def analyze_string(self, text):
        return {word for word in text.split() if word.startswith("hunter")}


def test_secrets_are_found_in_lines_of_any_length_where_their_detector_is_installed(monkeypatch):
    monkeypatch.setattr(secrets_detector, "load_detectors", lambda: [Detector()])
    finder = Finder([MaskSource("secret", "secrets")], secrets_detector.find_secrets)
    text = "a hunter2\nb " + "x " * 1000 + "hunter22 end"
    parts = find_parts(text, finder, SearchBudget())
    left = mask_parts(text, bound(parts)).value
    assert left == "a [withheld: secret]\nb " + "x " * 1000 + "[withheld: secret] end"
    with pytest.raises(TooMuchWork):
        find_parts("x" * 192 * 1024, finder, SearchBudget())
    lines = f"{'x' * 99}\n" * 600  # searched once, though others of the text read otherwise than they stand
    parts = find_parts(f"{lines}%68unter2", finder, SearchBudget())
    assert mask_parts(f"{lines}%68unter2", parts).value == f"{lines}[withheld: secret]"


def test_a_detector_that_is_not_installed_is_named_with_the_command(monkeypatch):
    secrets_detector.load_detectors.cache_clear()
    monkeypatch.setitem(__import__("sys").modules, "detect_secrets", None)
    with pytest.raises(ConfigError, match=r"needs detect-secrets.*install.*detectors"):
        secrets_detector.load_detectors()


def test_the_detector_finds_what_it_is_made_for():
    pytest.importorskip("detect_secrets")
    secrets_detector.load_detectors.cache_clear()
    finder = Finder([MaskSource("secret", "secrets")], secrets_detector.find_secrets)
    text = f'aws = "{KEY}"\npassword = "correct-horse-battery"\nnothing here'
    left = mask_parts(text, bound(find_parts(text, finder, SearchBudget()))).value
    assert KEY not in left
    assert "correct-horse" not in left
    assert left.endswith("nothing here")
