"""Plans: a multiverse that can be written down, and registered, before the data are seen."""

from trueup.plan.columns import check_columns
from trueup.plan.file import Plan, plan_study, read_data, read_plan
from trueup.plan.guard import CONTRASTS, TRANSFORMS, check_formula
from trueup.plan.results import REPORT, commonest_failures, results_plan, write_results

__all__ = [
    "CONTRASTS",
    "REPORT",
    "TRANSFORMS",
    "Plan",
    "check_columns",
    "check_formula",
    "commonest_failures",
    "plan_study",
    "read_data",
    "read_plan",
    "results_plan",
    "write_results",
]
