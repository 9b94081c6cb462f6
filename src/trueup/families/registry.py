"""Families by name."""

from __future__ import annotations

from collections.abc import Callable

from trueup.errors import ArgumentError
from trueup.families.absorb import AbsorbedOLS
from trueup.families.base import Family
from trueup.families.binary import CLogLog, Logit, Probit
from trueup.families.count import Poisson
from trueup.families.glm import DEFAULT_LINKS, FAMILIES, GLM, LINKS, allowed_links
from trueup.families.iv import IV
from trueup.families.linear import OLS
from trueup.families.mean import Mean

_NAMED: dict[str, Callable[[], Family]] = {
    "ols": OLS,
    "mean": Mean,
    "logit": Logit,
    "probit": Probit,
    "poisson": Poisson,
    "absorb": AbsorbedOLS,
    "iv": IV,
}
#: Family and link that have code of their own.
_OWN: dict[tuple[str, str], Callable[[], Family]] = {
    ("gaussian", "identity"): OLS,
    ("binomial", "logit"): Logit,
    ("binomial", "probit"): Probit,
    ("binomial", "cloglog"): lambda: CLogLog("cloglog"),
    ("binomial", "loglog"): lambda: CLogLog("loglog", mirrored=True),
    ("poisson", "log"): Poisson,
}
_GLM_OF = {"ols": "gaussian", "logit": "binomial", "probit": "binomial"}


def family_for(name: str, link: str | None = None) -> Family:
    """Return the family of a name.

    Parameters
    ----------
    name : str
        ``"ols"``, ``"mean"``, ``"logit"``, ``"probit"``, ``"poisson"``, ``"absorb"``, ``"iv"``,
        or the name of a generalised linear model (see :func:`glm_family`).
    link : str, optional
        Link of a generalised linear model, where it is not the usual one.

    Returns
    -------
    Family

    Raises
    ------
    ArgumentError
        If the family or the link is unknown, or they do not go together.

    Examples
    --------
    >>> family_for("logit").name
    'logit'
    >>> family_for("poisson", link="sqrt").name
    'poisson(sqrt)'
    """
    if not isinstance(name, str):
        raise ArgumentError(f"family={name!r}: give the name of a family, such as 'ols'.")
    key = _key(name)
    if key not in _NAMED and key not in FAMILIES:
        raise ArgumentError(f"family={name!r} is unknown: use one of {', '.join(_choices())}.")
    if key in _NAMED and link is None:
        return _NAMED[key]()
    if key in ("mean", "absorb", "iv"):
        raise ArgumentError(f"link={link!r}: family {key!r} has no link. Leave link= out.")
    return glm_family(_GLM_OF.get(key, key), link)


def glm_family(family: str, link: str | None = None, *, alpha: float = 1.0) -> Family:
    """Return a generalised linear model of statsmodels.

    Parameters
    ----------
    family : str
        ``"gaussian"``, ``"binomial"``, ``"poisson"``, ``"gamma"``, ``"inverse gaussian"`` or
        ``"negative binomial"``.
    link : str, optional
        ``"identity"``, ``"log"``, ``"logit"``, ``"probit"``, ``"cloglog"``, ``"loglog"``,
        ``"cauchy"``, ``"sqrt"``, ``"inverse"`` or ``"inverse squared"``; the family's usual one
        where left out.
    alpha : float, default 1
        Dispersion of the negative binomial, V = mu + alpha mu^2, taken as known.

    Returns
    -------
    Family

    Raises
    ------
    ArgumentError
        If the family or the link is unknown, or they do not go together.

    Examples
    --------
    >>> glm_family("gamma", "log").name
    'gamma(log)'
    """
    key = _key(family)
    if key not in FAMILIES:
        raise ArgumentError(f"family={family!r} is unknown: use one of {', '.join(FAMILIES)}.")
    link_key = DEFAULT_LINKS[key] if link is None else _key(link)
    if link_key not in LINKS:
        choices = ", ".join(allowed_links(key))
        raise ArgumentError(f"link={link!r} is unknown: family {key!r} takes {choices}.")
    if (key, link_key) in _OWN:
        return _OWN[key, link_key]()
    if link_key not in allowed_links(key):
        choices = ", ".join(allowed_links(key))
        raise ArgumentError(f"link={link!r} does not go with family {key!r}: use {choices}.")
    if key == "negative_binomial":
        _check_alpha(alpha)
    return GLM(f"{key}({link_key})", key, link_key, alpha)


def _check_alpha(alpha: float) -> None:
    """Raise unless the dispersion is a positive number."""
    if not 0.0 < alpha < float("inf"):
        raise ArgumentError(
            f"alpha={alpha!r}: the dispersion of the negative binomial must be above 0; "
            "for alpha = 0 use family='poisson'."
        )


def _key(name: str) -> str:
    """Return a name without capitals, blanks and hyphens."""
    return str(name).strip().lower().replace(" ", "_").replace("-", "_")


def _choices() -> list[str]:
    """Return all names of families."""
    return list(dict.fromkeys([*_NAMED, *FAMILIES]))
