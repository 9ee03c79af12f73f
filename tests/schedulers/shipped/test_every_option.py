"""No option of a shipped scheduler is without a test: found in the models, not by hand."""

import ast
import types
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin

import pytest
from mutation import path_of
from options_tested import CONFIGS, options_of, shown_by
from pydantic import BaseModel

pytestmark = pytest.mark.pure

ROOT = Path(__file__).parents[3]

SHIPPED = {
    one.name: one.load()
    for one in entry_points(group="toolgate.schedulers")
    if one.value.startswith("toolgate_schedulers.")
}


def options(model: type[BaseModel], where: str = "") -> Iterator[str]:
    """The dot paths of all that a file may say."""
    for name, field in model.model_fields.items():
        path = f"{where}{field.alias or name}"
        yield path
        for inner, at in models_in(field.annotation, path):
            yield from options(inner, f"{at}.")


def models_in(annotation: Any, path: str) -> Iterator[tuple[type[BaseModel], str]]:
    """The models that may stand at a path, and where exactly."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation, path
    elif origin is Annotated:
        yield from models_in(arguments[0], path)
    elif origin in (Union, types.UnionType):
        for one in arguments:
            yield from models_in(one, path)
    elif origin is tuple:
        yield from models_in(arguments[0], f"{path}.*")
    elif origin is dict:
        yield from models_in(arguments[1], f"{path}.*")


def test_the_shipped_schedulers_are_these() -> None:
    assert {name: one.config_model.__name__ for name, one in SHIPPED.items()} == CONFIGS


@pytest.mark.parametrize("scheduler", sorted(SHIPPED))
def test_each_option_has_one_test(scheduler: str) -> None:
    assert sorted(options_of(scheduler)) == sorted(set(options(SHIPPED[scheduler].config_model)))


def test_each_of_these_tests_is_there() -> None:
    for test in {test for _, _, test in shown_by()}:
        file, _, name = test.partition("::")
        written = ast.parse((ROOT / path_of(file)).read_text()).body
        found = [one.name for one in written if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
        assert name in found, test
