"""Fonts that have the letters of a figure's names, whatever their script."""

from __future__ import annotations

import unicodedata
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache, wraps
from typing import ParamSpec, TypeVar

import pandas as pd

from trueup.errors import TrueupWarning

#: Fonts that have a box for every letter.
LAST_RESORT = ("Last Resort", "LastResort")

#: Weights of a font that is neither light nor bold.
REGULAR = (400, "normal", "regular", "book")

P = ParamSpec("P")
R = TypeVar("R")


def readable(draw: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function that draws, so that names in its arguments find a font.

    Where the usual font lacks letters, an installed one that has them stands in for these; where
    none has, a warning says so once, in place of matplotlib's for every letter.
    """

    @wraps(draw)
    def drawn(*args: P.args, **options: P.kwargs) -> R:
        letters = {c for text in _texts([*args, *options.values()]) for c in text if ord(c) > 127}
        missing = {c for c in letters if c.isprintable()} - _letters_of_usual_font()
        if not missing:
            return draw(*args, **options)
        from matplotlib import rc_context, rcParams

        families, left = _fonts_with(missing)
        if left:
            _warn(left)
        with rc_context({"font.family": [*rcParams["font.family"], *families]}):
            return draw(*args, **options)

    return drawn


def _texts(things: Iterable[object]) -> Iterator[str]:
    for thing in things:
        if isinstance(thing, str):
            yield thing
        elif isinstance(thing, pd.DataFrame):
            yield from map(str, [*thing.columns, *thing.index])
            for name in thing.columns:
                if not pd.api.types.is_numeric_dtype(thing[name]):
                    yield from set(map(str, thing[name]))
        elif isinstance(thing, Mapping):
            yield from _texts([*thing.keys(), *thing.values()])
        elif isinstance(thing, list | tuple):
            yield from _texts(thing)
        elif is_dataclass(thing):
            yield from _texts([getattr(thing, f.name) for f in fields(thing)])


def _letters_of_usual_font() -> set[str]:
    from matplotlib.font_manager import FontProperties, findfont

    return _letters(findfont(FontProperties()))


@cache
def _letters(path: str) -> set[str]:
    from matplotlib.font_manager import get_font

    return {chr(code) for code in get_font(path).get_charmap()}


def _fonts_with(missing: set[str]) -> tuple[list[str], set[str]]:
    """Return installed families, best first, and the letters that none of them has."""
    from matplotlib.font_manager import fontManager

    regular = {
        f.name: f.fname
        for f in fontManager.ttflist
        if f.style == "normal"
        and f.weight in REGULAR
        and not f.name.lstrip(".").startswith(LAST_RESORT)
    }
    families: list[str] = []
    left = set(missing)
    while left:
        name = max(sorted(regular), key=lambda n: len(left & _letters(regular[n])))
        found = left & _letters(regular[name])
        if not found:
            break
        families.append(name)
        left -= found
    return families, left


@cache
def _warn_of_script(script: str, example: str) -> None:
    warnings.warn(
        f"No installed font has the letter {example!r} ({script}), so names with such letters are "
        "drawn as boxes. Install a font that has them, such as Noto Sans (packages fonts-noto and "
        "fonts-noto-cjk on Debian and Ubuntu, or fonts.google.com/noto), and start Python again.",
        TrueupWarning,
        stacklevel=5,
    )
    # Said above for the whole script; matplotlib would repeat it letter by letter at each drawing.
    warnings.filterwarnings("ignore", message=r"Glyph \d+ .* missing from", category=UserWarning)


def _warn(letters: set[str]) -> None:
    scripts: dict[str, str] = {}
    for letter in sorted(letters):
        scripts.setdefault(unicodedata.name(letter, "UNKNOWN").split()[0], letter)
    for script, example in scripts.items():
        _warn_of_script(script, example)
