"""A report in which every text tries to become part of the page."""

import numpy as np
import pandas as pd

from trueup.report.content import report_content
from trueup.report.html import ReportTable
from trueup.report.plots import Reference

from .conftest import DIMENSIONS, universes

#: What each payload would do if it ran: mark the page's root element.
_MARK = "document.documentElement.setAttribute('data-pwned','yes')"
EVIL = (
    "<script>alert(1)</script>",
    f"<script>{_MARK}</script>",
    f'"><img src=x onerror="{_MARK}">',
    f"' onfocus={_MARK} autofocus x='",
    f"</script><script>{_MARK}</script>",
    f"</style><svg onload={_MARK}>",
    "{{ 7 * 7 }}{% raw %}",
)


def evil_content(n_models=4):
    """Return content with a payload in every field."""
    models = tuple(EVIL[i] if i < len(EVIL) else f"model-{i}" for i in range(n_models))
    table = universes(models, ("p1", EVIL[1], "p3"), corrections=("naive", "dsl", EVIL[2]))
    table = table.rename(columns={"subset": EVIL[0]})
    table.loc[1, ["status", "error"]] = ["failed", f"FitError: {EVIL[4]}"]
    table["warnings"] = EVIL[5]
    names = list(dict.fromkeys(table["llm"]))
    everywhere = " ".join(EVIL)
    return report_content(
        table,
        [EVIL[0] if d == "subset" else d for d in DIMENSIONS],
        focus=EVIL[3],
        study=everywhere,
        title=everywhere,
        question=[everywhere],
        formulas=[everywhere],
        headline=[everywhere],
        reference=Reference(everywhere, 0.1, 0.0, 0.2),
        accuracy=dict.fromkeys(names, 0.9),
        measure=everywhere,
        disagreement=pd.DataFrame(0.2 * (1 - np.eye(len(names))), names, names),
        tests={everywhere: everywhere},
        tables={everywhere: ReportTable(pd.DataFrame({e: [e] for e in EVIL}), everywhere)},
        warnings=[everywhere],
        plan=everywhere,
        created=everywhere,
        seed=1,
    )
