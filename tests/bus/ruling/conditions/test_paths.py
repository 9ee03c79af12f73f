"""Paths are resolved by their text, and where a tool may read a text in two ways the answer is not known."""

import pytest
from toolgate_bus.ruling.conditions.paths import canonical_path, is_under

pytestmark = pytest.mark.pure


@pytest.mark.parametrize(
    ("path", "base", "cwd", "answer"),
    [
        ("/srv/a", "/srv", None, True),
        ("/srv", "/srv/", None, True),
        ("//srv/./a//b/", "/srv", None, True),
        ("/etc/../srv/a", "/srv", None, True),
        ("/srv/My files/a b.txt", "/srv", None, True),
        ("/srv/Müller/½.pdf", "/srv", None, True),
        ("/srv/a%20b", "/srv", None, True),
        ("/srv/100%/a", "/srv", None, True),
        ("/srv/.env", "/srv", None, True),
        ("/srv/a..b/..c", "/srv", None, True),
        ("/etc/passwd", "/", None, True),
        ("file:///srv/a", "/srv", None, True),
        ("file://localhost/srv/a", "/srv", None, True),
        ("C:\\Work\\a", "c:/work", None, True),
        ("file:///C:/work/a", "C:\\Work", None, True),
        ("a", "/srv", "/srv", True),
        ("../a", "/srv", "/srv/x", True),
        (".", "/srv", "/srv/", True),
        ("docs/a", "docs", "/srv", True),
        ("/srv/a;b/c", "/srv", None, True),
        ("/srv/Gr%F6sse.txt", "/srv", None, True),
        ("/srvx", "/srv", None, False),
        ("/srv-old/a", "/srv", None, False),
        ("/srv/../etc", "/srv", None, False),
        ("/srv/a/../../etc/x", "/srv", None, False),
        ("file:///srv/../etc", "/srv", None, False),
        ("c:/work/../x", "C:\\work", None, False),
        ("../a", "/srv", "/srv", False),
        ("/", "/srv", None, False),
    ],
)
def test_a_path_that_has_one_reading_is_under_a_folder_or_not(path, base, cwd, answer):
    assert is_under(path, base, cwd) is answer


@pytest.mark.parametrize(
    "path",
    [
        "a",
        "./a",
        "",
        "~/a",
        "~root/a",
        "$HOME/a",
        "/srv/${X}/a",
        "/srv/a\0",
        "/srv/a%00/../../etc",
        "/srv/%2e%2e/etc",
        "/srv/%252e%252e/etc",
        "/srv/..%2fetc",
        "%2fsrv%2fa",
        "/srv/x\\..\\..\\etc",
        "/srv\\a",
        "\\srv\\a",
        "/srv./a",
        "/srv /a",
        " /srv/a",
        "/srv/.. /etc",
        "/srv/..../etc",
        "/SRV/a",
        "/srv/．．/etc",
        "/ｓｒｖ/a",
        "file://server/srv/a",
        "file:srv/a",
        "C:\\srv\\a",
        "C:srv",
        "/srv/％2e％2e/etc",
        "/srv/..;/etc",
        "/srv/a/..;x=1/../etc",
        "/srv/%c0%ae%c0%ae/etc",
        "/srv/%25e0%2580%25ae/etc",
        "/srv/" + "a" * 5000,
    ],
    ids=repr,
)
def test_a_path_that_may_be_read_in_two_ways_is_not_known(path):
    assert is_under(path, "/srv") is None


def test_short_names_of_windows_and_folders_that_are_not_known_are_not_known():
    assert is_under("C:\\PROGRA~1\\x", "C:\\Program Files") is None
    assert is_under("a", "/srv", "work") is None
    assert is_under("a", "/srv", "~/work") is None
    assert is_under("/srv/a", "srv") is None
    assert is_under("~/work/a", "~/work", "/srv") is None


@pytest.mark.parametrize(
    ("path", "spelling"),
    [
        ("./a", "a"),
        ("a/../a", "a"),
        ("a//b/", "a/b"),
        ("../a", "../a"),
        ("a/../../b", "../b"),
        (".", "."),
        ("/../a", "/a"),
        ("//a", "/a"),
        ("/", "/"),
        ("C:\\Work\\A", "c:/work/a"),
        ("file:///srv/a", "/srv/a"),
        ("", None),
        ("~/a", None),
        ("a.", None),
        ("a ", None),
        ("a\\b", None),
        ("a%20b", None),
        ("a\0", None),
    ],
)
def test_a_path_has_one_spelling_or_none(path, spelling):
    assert canonical_path(path) == spelling


def test_a_long_hostile_path_is_read_in_no_time():
    for path in ("./" * 2000, "a." * 2000 + " ", "." * 4000, "%25" * 1300, "/" * 4000, "a\\.." * 1000):
        canonical_path(path)
        is_under(path, "/srv", "/srv")
