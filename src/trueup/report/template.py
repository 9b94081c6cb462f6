"""The page: its template, style and script, and the policy that lets nothing else run."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment


def render(values: Mapping[str, object]) -> str:
    """Return the page for these values, everything in them escaped.

    Style and script are the package's own; the content security policy names them by their
    hashes, so that a browser runs no other, whatever the data hold, and asks no server.
    """
    from markupsafe import Markup

    css, script = _text("report.css"), _text("report.js")
    policy = (
        f"default-src 'none'; img-src data:; style-src '{_hash(css)}'; "
        f"script-src '{_hash(script)}'; base-uri 'none'; form-action 'none'"
    )
    environment = _environment()
    inner = environment.get_template("table.html")

    def data_table(table: object, number: int) -> Markup:
        # Markup, because the inner template has escaped everything already.
        return Markup(inner.render(table=table, number=number))

    return environment.get_template("report.html").render(
        values, policy=policy, css=Markup(css), script=Markup(script), data_table=data_table
    )


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("trueup.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@cache
def _text(name: str) -> str:
    return (resources.files("trueup.report") / "templates" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
