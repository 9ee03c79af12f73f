"""The front doors: every `__all__` is sorted, true, and each name in it says what it is."""

import importlib
import inspect
import pkgutil

import pytest
import toolgate_bus
import toolgate_orchestrator
import toolgate_schedulers

pytestmark = pytest.mark.pure

PACKAGES = (toolgate_bus, toolgate_orchestrator, toolgate_schedulers)
ELSEWHERE = ("toolgate_orchestrator.contrib.",)
"""Modules that need a framework, in environments of their own."""
MODULES = sorted(
    [package.__name__ for package in PACKAGES]
    + [
        found.name
        for package in PACKAGES
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
        if not found.name.startswith(ELSEWHERE)
    ]
)


def constants_classes_rest(name):
    """The order in which ruff (RUF022) sorts `__all__`."""
    return (0 if name.isupper() and len(name) > 1 else 1 if name[0].isupper() else 2, name)


def offered(module):
    """What a module offers, by name."""
    loaded = importlib.import_module(module)
    return {name: getattr(loaded, name) for name in names_of(loaded)}


def names_of(module):
    """What a front door names in its `__all__`; of any other module what it defines without an underscore."""
    if hasattr(module, "__all__"):
        return module.__all__
    own = (name for name, each in vars(module).items() if getattr(each, "__module__", "") == module.__name__)
    return sorted((name for name in own if not name.startswith("_")), key=constants_classes_rest)


def silent(names):
    """Those of some functions and classes of ours that have no docstring."""
    return [
        name
        for name, each in names.items()
        if (inspect.isroutine(each) or inspect.isclass(each) or isinstance(each, property))
        and not inspect.getdoc(each)
        and str(getattr(each, "__module__", "toolgate")).startswith("toolgate")
    ]


def test_a_module_says_what_it_is():
    assert [name for name in MODULES if len(importlib.import_module(name).__doc__ or "") <= 20] == []


def test_what_a_module_offers_is_sorted_and_named_once():
    offers = {module: names_of(importlib.import_module(module)) for module in MODULES}
    wanted = {module: sorted(set(names), key=constants_classes_rest) for module, names in offers.items()}
    assert {module: list(names) for module, names in offers.items()} == wanted


def test_everything_a_module_offers_is_there_and_says_what_it_is():
    unsaid = {module: silent(offered(module)) for module in MODULES}
    assert {module: names for module, names in unsaid.items() if names} == {}


def test_everything_an_offered_class_can_do_is_said():
    ours = {
        f"{module}.{name}": each
        for module in MODULES
        for name, each in offered(module).items()
        if inspect.isclass(each) and each.__module__.startswith("toolgate_")
    }
    unsaid = {
        name: silent({key: each for key, each in vars(one).items() if not key.startswith("_")})
        for name, one in ours.items()
    }
    assert {name: methods for name, methods in unsaid.items() if methods} == {}


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_no_name_of_a_front_door_hides_a_module(package):
    modules = {found.name for found in pkgutil.iter_modules(package.__path__)}
    assert modules.isdisjoint(package.__all__)
