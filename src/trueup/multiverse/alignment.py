"""A scorecard of annotators: what a regression needs of them and benchmarks do not reward."""

from __future__ import annotations

import pandas as pd

from trueup.diagnostics.answers import check_margin
from trueup.multiverse.alignment_card import Alignment
from trueup.multiverse.alignment_criteria import (
    Reasons,
    change,
    differential,
    focal,
    quality,
    with_strong,
)
from trueup.multiverse.alignment_task import scored_variable, task_of
from trueup.multiverse.caught import caught_warnings
from trueup.multiverse.multiverse import Multiverse
from trueup.results.fit import Fit
from trueup.results.tidy import check_level
from trueup.study.describe import draw_in_words


def alignment(
    source: Fit | Multiverse,
    focus: str | None = None,
    *,
    variable: str | None = None,
    margin: float = 0.05,
    within: str = "model",
    level: float | None = None,
) -> Alignment:
    r"""Score every annotator by what a regression needs and benchmarks do not reward.

    For each annotator, side by side and never summed up:

    - *accuracy* on the coded rows, weighted by the sampling design (correlation for numbers);
    - *change*: how often its label differs from that of another prompt of the same model;
    - *agreement* with the other strong annotators, those within ``margin`` of the best;
    - *differential error*: whether its errors move with the other variables of the formula;
    - *bias* of the focal coefficient when its labels are taken for the truth,
      :math:`(\hat\gamma_N - \hat\theta) / \mathrm{se}(\hat\theta)`, LLM-only minus corrected
      in standard errors of the corrected coefficient;
    - *effective labels*: :math:`n\,V(\text{human only}) / V(\text{corrected})`, the number of
      human labels alone that would estimate the focal coefficient as well as the n human
      labels do with this annotator's help.

    Parameters
    ----------
    source : Fit or Multiverse
        Of a fit, all annotators of its study are scored one by one, with the formula, family
        and correction of the fit (``"auto"`` where the fit was not corrected). Of a multiverse,
        all annotators of the grid, with the first formula, family, subset and covariance that
        have the focal term, and the first correction among those.
    focus : str, optional
        The focal coefficient; by default the first one that is no intercept, or the focal term
        of the multiverse.
    variable : str, optional
        The labelled variable that is scored; needed where the formula uses several. Bias and
        effective labels are those of the whole formula, with all its variables labelled by the
        annotator.
    margin : float
        Annotators whose accuracy is at most this far below the best are strong.
    within : str
        Field of the annotators' column pattern whose levels hold repeated labels of one
        annotator: ``"model"`` compares the prompts of each model.
    level : float, optional
        Of the intervals; by default that of the fit or multiverse.

    Returns
    -------
    Alignment
        Prints as a scorecard; ``.table`` is the data frame, ``.missing`` says why a number is
        missing, ``.plot()`` draws it.

    Raises
    ------
    ArgumentError
        If the source is neither, a name is unknown, the formula uses several labelled variables
        and none is named, or no fitted universe has the focal term.
    StudyError
        If annotators cannot be compared with each other.

    Notes
    -----
    Every p-value is that of one annotator: among forty, two below .05 are to be expected. An
    annotator whose fit fails keeps its other numbers, and ``.missing`` has the reason.

    For a labelled outcome the test of differential error uses the right-hand side of the
    formula, without absorbed effects; instruments take the place of what they instrument. For a
    labelled covariate it uses the outcome and the terms without that label.

    Examples
    --------
    >>> import trueup as tu
    >>> data = tu.simulate.antibiotics(4000, seed=1)
    >>> data.loc[800:, "reaction"] = None
    >>> names = ["random", "under_treated", "under_control"]
    >>> study = tu.Study(data, human={"y": "reaction"}, llm={"y": names})
    >>> fit = tu.logit("y ~ treated", study, llm="random")
    >>> card = tu.alignment(fit)
    >>> card.table[["annotator", "accuracy", "bias_in_se"]].round(2).values.tolist()
    [['under_control', 0.93, 4.54], ['under_treated', 0.93, -6.34], ['random', 0.83, -3.72]]

    References
    ----------
    Angelopoulos, Duchi and Zrnic (2023), PPI++: Efficient prediction-powered inference. Hausman
    (1978), Specification tests in econometrics.
    """
    margin = check_margin(margin)
    task = task_of(source, focus)
    shown = check_level(task.level if level is None else level)
    name = scored_variable(task, variable)
    reasons: Reasons = []
    with caught_warnings() as said:
        right, measure = quality(task, name, shown, reasons)
        table = pd.DataFrame({"annotator": list(task.annotators)}).merge(right, "left")
        best = table[measure].max()
        # Rounding must not decide whether an annotator is just within the margin.
        table["strong"] = table[measure] >= best - margin - 1e-12
        table.insert(6, "change", change(task, name, within, reasons))
        strong = set(table.loc[table["strong"], "annotator"])
        table["strong_agreement"] = with_strong(task, name, strong, measure, reasons)
        table["differential_p"] = differential(task, name, reasons)
        coefficient, few = focal(task, reasons)
        table = table.merge(coefficient, on="annotator")
    table = table.sort_values(measure, ascending=False, kind="stable", ignore_index=True)
    design = task.study.design(name)
    return Alignment(
        table=table,
        missing=pd.DataFrame(reasons, columns=["annotator", "criterion", "reason"]),
        focus=task.focus,
        formula=task.formula,
        family=task.family.name,
        correction=task.correction.name,
        subset=task.subset,
        variable=name,
        measure=measure,
        margin=margin,
        level=shown,
        n_coded=design.n_coded,
        n_rows=task.study.n_rows,
        design=draw_in_words(design),
        warnings=tuple(dict.fromkeys([*said, *few])),
    )
