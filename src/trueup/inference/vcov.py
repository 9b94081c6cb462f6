"""What kind of covariance is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from trueup.errors import ArgumentError

HC = Literal["HC0", "HC1", "HC2", "HC3"]
Reference = Literal["effective", "residual", "normal"]


@dataclass(frozen=True, slots=True)
class Vcov:
    """Small-sample options of the covariance.

    Parameters
    ----------
    hc : {"HC0", "HC1", "HC2", "HC3"}
        Leverage adjustment of the human scores: none, n/(n-p), 1/sqrt(1-h), 1/(1-h).
    leave_one_out : bool
        Whether each coded row is left out of the tuning that is applied to it when the
        rectifier's variance is computed.
    reference : {"effective", "residual", "normal"}
        Reference distribution: t with the effective degrees of freedom (Satterthwaite from
        the coded rows' contributions), t with n - p, or normal.
    """

    hc: HC = "HC3"
    leave_one_out: bool = True
    reference: Reference = "effective"

    def __post_init__(self) -> None:
        """Check the options."""
        for name, choices in (("hc", HC), ("reference", Reference)):
            if getattr(self, name) not in get_args(choices):
                raise ArgumentError(
                    f"{name}={getattr(self, name)!r} is unknown: use one of "
                    f"{', '.join(map(repr, get_args(choices)))}."
                )


_NAMED: dict[str, Vcov] = {
    "HC0": Vcov("HC0", leave_one_out=False, reference="normal"),
    "HC1": Vcov("HC1", leave_one_out=False, reference="residual"),
    "HC2": Vcov("HC2", leave_one_out=True, reference="effective"),
    "HC3": Vcov("HC3", leave_one_out=True, reference="effective"),
}


def as_vcov(vcov: str | Vcov) -> Vcov:
    """Return the covariance options for a name or an object.

    Raises
    ------
    ArgumentError
        If the name is unknown.
    """
    if isinstance(vcov, Vcov):
        return vcov
    if not isinstance(vcov, str) or vcov not in _NAMED:
        raise ArgumentError(
            f"vcov={vcov!r} is unknown: use one of {', '.join(_NAMED)}, or tu.Vcov(...)."
        )
    return _NAMED[vcov]
