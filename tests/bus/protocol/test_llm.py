"""Names of requests to an LLM: which globs mean them, and what a replacement of one is."""

import pytest
from toolgate_bus.protocol.llm import add_selector, complete_arguments
from toolgate_bus.ruling.conditions import globs

pytestmark = pytest.mark.pure

ASKED = {"provider": "a", "model": "a-1", "input_tokens": 900, "max_output_tokens": 50, "purpose": "answer"}


@pytest.mark.parametrize("glob", ["*", "l*", "?lm:*", "[l]lm:request", "*:request", "LLM:*"])
def test_a_glob_that_does_not_begin_so_means_no_request(glob):
    assert globs.fits((glob,), "llm:request") is False


@pytest.mark.parametrize("glob", ["llm:*", "llm:request", "llm:r*"])
def test_a_glob_that_begins_so_means_requests_and_no_tool(glob):
    assert globs.fits((glob,), "llm:request") is True
    assert globs.fits(("*", glob), "llm:request") is True
    assert globs.fits((glob,), "request") is False


def test_other_characters_that_mean_the_same_are_read_both_ways():
    written = "ｌｌｍ:request"
    assert globs.fits(("*",), written) is None
    assert globs.either(("*",), written)
    assert globs.either(("llm:*",), written)


def test_a_long_name_of_a_request_is_meant_by_no_other_glob():
    assert globs.fits(("*",), "llm:" + "x" * 2000) is None


def test_a_replacement_keeps_what_it_does_not_name_and_how_long_the_request_is():
    changed = complete_arguments(ASKED, {"model": "a-2", "input_tokens": 1, "purpose": "none"})
    assert changed == {**ASKED, "model": "a-2"}


def test_a_replacement_by_another_provider_has_its_own_model():
    assert complete_arguments(ASKED, {"provider": "b"})["model"] == ""
    assert complete_arguments(ASKED, {"provider": "b", "model": "b-7"})["model"] == "b-7"
    assert complete_arguments(ASKED, {"provider": "a"})["model"] == "a-1"


def test_a_scheduler_whose_rules_name_requests_asks_for_them():
    assert add_selector(("*",), ["bash", "llm:request"]) == ("*", "llm:*")
    assert add_selector(("*",), ["bash"]) == ("*",)
