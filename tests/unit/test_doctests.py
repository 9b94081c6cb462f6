"""Every example in a docstring runs and shows what it says."""

import doctest
import importlib
import pkgutil
import warnings

import pytest

import trueup

MODULES = sorted(
    m.name
    for m in pkgutil.walk_packages(trueup.__path__, "trueup.")
    if not m.name.startswith("trueup._data")
)


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    module = importlib.import_module(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", trueup.errors.TrueupWarning)
        failed, _ = doctest.testmod(
            module, optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
        )
    assert failed == 0
