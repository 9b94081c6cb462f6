"""The shipped data: columns, counts, sampling probabilities, and that the cards tell the truth."""

import gzip
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from trueup import datasets
from trueup.errors import ArgumentError
from trueup.simulate import antibiotics

DATASETS = Path(__file__).parents[2] / "datasets"
ANNOTATORS = [
    "vader__lexicon",
    "textblob__lexicon",
    "afinn__lexicon",
    "minilm__plain",
    "minilm__question",
    "minilm__feeling",
    "minilm__verdict",
    "minilm__tone",
]
FLAGS = ["exclaim", "question", "negation", "capitals", "contrast", "first_person", "digits"]
SOURCES = {"tweets": 4200, "movies": 10605, "products": 3708, "editorials": 5190}


@pytest.fixture(scope="module")
def sentiment():
    return datasets.load("sentiment")


@pytest.fixture(scope="module")
def reports():
    return datasets.load("antibiotics")


def card_rows(name):
    """First cell -> the other cells of every row of the card's tables of numbers."""
    rows = {}
    for line in datasets.card(name).splitlines():
        cells = [cell.strip().strip("`") for cell in line.strip("| ").split(" | ")]
        if len(cells) > 2 and re.fullmatch(r"-?\d\.\d{3}", cells[1]):
            rows.setdefault(cells[0], []).append([float(cell) for cell in cells[1:]])
    return rows


def test_names():
    assert datasets.names() == ["antibiotics", "sentiment"]


@pytest.mark.parametrize("ask", [datasets.load, datasets.card])
@pytest.mark.parametrize("name", ["tweets", "", "../sentiment"])
def test_unknown_name_lists_the_known(ask, name):
    with pytest.raises(ArgumentError, match="'antibiotics', 'sentiment'"):
        ask(name)


@pytest.mark.parametrize("name", datasets.names())
def test_loads_a_fresh_table_each_time(name):
    first = datasets.load(name)
    first.iloc[:, 0] = first.iloc[0, 0]
    assert not first.equals(datasets.load(name))


@pytest.mark.parametrize("name", datasets.names())
def test_file_is_small_and_carries_no_time_of_writing(name):
    content = (DATASETS / name / f"{name}.csv.gz").read_bytes()
    assert len(content) < 2_000_000
    assert content[4:8] == bytes(4)


@pytest.mark.parametrize("name", datasets.names())
def test_card_describes_every_column_and_the_licence(name):
    card = datasets.card(name)
    assert card.startswith(f"# {name}\n")
    assert "MIT licence" in card
    assert "stand in for LLMs" in card
    for column in datasets.load(name).columns:
        # score_vader and the like stand in one row of the card.
        assert f"`{column}`" in card


def test_licence_of_the_texts_comes_along():
    assert "Copyright (c) 2016 C.J. Hutto" in (DATASETS / "sentiment/LICENSE.txt").read_text()


class TestAntibiotics:
    def test_is_the_documented_draw(self, reports):
        pd.testing.assert_frame_equal(reports.drop(columns="coder"), antibiotics(seed=2024))

    def test_coded_sample(self, reports):
        coded = reports["coder"].notna()
        assert coded.sum() == 500
        assert (reports.loc[coded, "coder"] == reports.loc[coded, "reaction"]).all()

    def test_build_script_writes_these_bytes(self, tmp_path, monkeypatch):
        import runpy

        script = runpy.run_path(str(DATASETS / "antibiotics/build.py"))
        monkeypatch.setitem(script["main"].__globals__, "HERE", tmp_path)
        script["main"]()
        # The text, not the compressed bytes, which may differ between versions of zlib.
        made = gzip.decompress((tmp_path / "antibiotics.csv.gz").read_bytes())
        shipped = (DATASETS / "antibiotics/antibiotics.csv.gz").read_bytes()
        assert made == gzip.decompress(shipped)

    @pytest.mark.parametrize("name", ["random", "under_treated", "under_control"])
    def test_card_gives_the_accuracy_and_estimate(self, reports, name):
        accuracy, _, estimate, _ = card_rows("antibiotics")[name][0]
        share = reports.groupby("treated")[name].mean()
        odds = np.log(share / (1 - share))
        assert (reports[name] == reports["reaction"]).mean() == pytest.approx(accuracy, abs=5.1e-4)
        assert odds[1] - odds[0] == pytest.approx(estimate, abs=5.1e-4)


class TestSentiment:
    def test_sources_have_their_documented_sizes(self, sentiment):
        assert sentiment["source"].value_counts().to_dict() == SOURCES

    def test_no_text(self, sentiment):
        texts = sentiment.select_dtypes(exclude="number")
        assert texts.columns.tolist() == ["source", "stratum"]
        assert texts.nunique().to_dict() == {"source": 4, "stratum": 8}

    def test_nothing_is_missing(self, sentiment):
        assert not sentiment.isna().any(axis=None)

    def test_annotators_are_all_columns_of_the_pattern(self, sentiment):
        assert [c for c in sentiment if "__" in c] == ANNOTATORS

    def test_zero_one_columns(self, sentiment):
        columns = ["positive", *ANNOTATORS, *FLAGS, "coded_srs", "coded_stratified"]
        assert sentiment[columns].isin([0, 1]).all(axis=None)
        assert (sentiment[columns].nunique() == 2).all()

    def test_human_label_follows_the_ratings(self, sentiment):
        assert (sentiment["positive"] == (sentiment["rating"] > 0)).all()
        assert sentiment["rating"].between(-4, 4).all()
        assert sentiment["raters"].between(15, 99).all()
        # The sum of whole-number ratings is a whole number.
        total = sentiment["rating"] * sentiment["raters"]
        assert (total - total.round()).abs().max() < 0.006

    def test_labels_follow_the_scores(self, sentiment):
        for column in ANNOTATORS[:4]:
            score = sentiment[f"score_{column.split('__')[0]}"]
            decided = score != 0
            assert (sentiment[column] == (score > 0))[decided].all()

    def test_words_can_be_logged(self, sentiment):
        assert sentiment["words"].min() >= 1

    def test_documents(self, sentiment):
        per_source = sentiment.groupby("source")["document"].nunique()
        assert per_source["tweets"] == SOURCES["tweets"]
        assert per_source["movies"] == SOURCES["movies"]
        assert per_source["products"] < 310
        assert per_source["editorials"] <= 500
        assert (sentiment.groupby("document")["source"].nunique() == 1).all()

    def test_coded_samples_have_500_rows(self, sentiment):
        assert sentiment["coded_srs"].sum() == 500
        assert sentiment["coded_stratified"].sum() == 500

    def test_strata_are_source_and_disagreement(self, sentiment):
        votes = sentiment[ANNOTATORS].sum(axis=1)
        split = np.where(votes.between(3, 5), "_split", "_agreed")
        assert (sentiment["stratum"] == sentiment["source"] + split).all()

    def test_inclusion_probability_is_coded_over_all_in_each_stratum(self, sentiment):
        groups = sentiment.groupby("stratum")
        share = groups["coded_stratified"].transform("mean")
        np.testing.assert_allclose(sentiment["pi_stratified"], share, rtol=1e-12)
        coded = sentiment[sentiment["coded_stratified"] == 1]
        assert (1 / coded["pi_stratified"]).sum() == pytest.approx(len(sentiment), rel=1e-12)
        sizes = groups["coded_stratified"].sum()
        assert all(n == (63 if s.endswith("_split") else 62) for s, n in sizes.items())

    @pytest.mark.parametrize("name", ANNOTATORS)
    def test_card_gives_the_accuracy(self, sentiment, name):
        right = sentiment[name] == sentiment["positive"]
        by_source = [right[sentiment["source"] == source].mean() for source in SOURCES]
        expected = [right.mean(), *by_source, sentiment[name].mean()]
        np.testing.assert_allclose(card_rows("sentiment")[name][0], expected, atol=5.1e-4)

    @pytest.mark.parametrize("name", ["positive", "vader__lexicon", "minilm__verdict"])
    def test_card_gives_the_coefficients(self, sentiment, name):
        from statsmodels.formula.api import logit

        formula = f"{name} ~ exclaim + negation + np.log(words) + C(source)"
        params = logit(formula, sentiment).fit(disp=0).params
        terms = ["exclaim", "negation", "np.log(words)"]
        terms += [f"C(source)[T.{source}]" for source in ("movies", "products", "tweets")]
        rows = card_rows("sentiment")
        given = rows["all human"][0] if name == "positive" else rows[name][1]
        np.testing.assert_allclose(given, params[terms], atol=5.1e-4)

    def test_annotators_disagree_about_the_sign(self):
        effects = [rows[1] for name, rows in card_rows("sentiment").items() if name in ANNOTATORS]
        for of_source in list(zip(*effects, strict=True))[3:]:
            assert min(of_source) < 0 < max(of_source)
