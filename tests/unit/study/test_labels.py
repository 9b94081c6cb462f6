import pytest

from trueup.errors import StudyError
from trueup.study.labels import Pattern, parse_annotators
from trueup.study.tables import Table


def table(*columns):
    return Table({c: [1, 0] for c in columns})


def parse(columns, human, llm, reserved=()):
    return parse_annotators(table(*columns), human, llm, reserved)


def test_a_pattern_yields_annotators_named_by_column_with_metadata():
    found = parse(
        ["coder", "x", "gpt-4o__p1", "gpt-4o__p2", "bert__p1"],
        {"y": "coder"},
        {"y": "{model}__{prompt}"},
    )
    assert [a.name for a in found] == ["gpt-4o__p1", "gpt-4o__p2", "bert__p1"]
    assert found[2].metadata == {"model": "bert", "prompt": "p1"}
    assert found[2].columns == {"y": "bert__p1"}


def test_patterns_pass_over_human_and_reserved_columns():
    found = parse(
        ["human__a", "pi__1", "gpt__a"],
        {"y": "human__a"},
        {"y": "{model}__{prompt}"},
        reserved=["pi__1"],
    )
    assert [a.name for a in found] == ["gpt__a"]


def test_annotators_are_matched_across_variables_by_their_metadata():
    found = parse(
        ["c1", "c2", "gpt__p1__pos", "p1__gpt__tox", "bert__p2__pos", "p2__bert__tox"],
        {"positive": "c1", "toxic": "c2"},
        {"positive": "{model}__{prompt}__pos", "toxic": "{prompt}__{model}__tox"},
    )
    assert [a.name for a in found] == ["gpt__p1", "bert__p2"]
    assert found[0].columns == {"positive": "gpt__p1__pos", "toxic": "p1__gpt__tox"}
    assert found[0].metadata == {"model": "gpt", "prompt": "p1"}


def test_a_pattern_and_a_mapping_meet_by_name():
    found = parse(
        ["c1", "c2", "gpt_pos", "g"],
        {"positive": "c1", "toxic": "c2"},
        {"positive": "{model}_pos", "toxic": {"gpt": "g"}},
    )
    assert [(a.name, a.columns["toxic"]) for a in found] == [("gpt", "g")]


def test_lists_mappings_and_single_columns():
    columns = ["coder", "a", "b"]
    human = {"y": "coder"}
    assert [a.name for a in parse(columns, human, {"y": ["b", "a"]})] == ["b", "a"]
    assert [a.name for a in parse(columns, human, {"y": "a"})] == ["a"]
    (named,) = parse(columns, human, {"y": {"GPT": "a"}})
    assert (named.name, named.columns, named.metadata) == ("GPT", {"y": "a"}, {})


@pytest.mark.parametrize(
    ("pattern", "column", "fields"),
    [
        ("{model}__{prompt}", "a__b", {"model": "a", "prompt": "b"}),
        ("{model}__{prompt}", "a__b__c", None),
        ("{model}__{prompt}", "a_b", None),
        ("{model}__{prompt}__tox", "a__b__tox", {"model": "a", "prompt": "b"}),
        ("{model}__{prompt}__tox", "a__b__pos", None),
        ("llm_{model}", "llm_a_b", {"model": "a_b"}),
        ("llm_{model}", "xllm_a", None),
        ("{m}.{p}", "a.b", {"m": "a", "p": "b"}),
        ("{m}.{p}", "axb", None),
    ],
)
def test_pattern_matching(pattern, column, fields):
    assert Pattern(pattern).match(column) == fields


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("{model}", "would match every column"),
        ("{a}{b}_x", "ambiguous"),
        ("{a}_{a}", "used once"),
        ("{a b}_x", "plain name in braces"),
        ("{a:d}_x", "plain name in braces"),
        ("{a_x", "cannot be read"),
    ],
)
def test_unreadable_patterns(pattern, words):
    with pytest.raises(StudyError, match=words):
        Pattern(pattern)


@pytest.mark.parametrize(
    ("columns", "human", "llm", "words"),
    [
        (["c", "gpt_p1"], {"y": "c"}, {"y": "{m}__{p}"}, "'{m}__{p}'.*matches no column.*'gpt_p1'"),
        (["c", "g"], {"y": "c"}, {"z": "g"}, "'y' is in human= but not in llm="),
        (["c", "g"], {"y": "c"}, {"y": "g", "z": "g"}, "'z' is in llm= but not in human="),
        (["coder", "g"], {"y": "codr"}, {"y": "g"}, "no column 'codr'.*Did you mean 'coder'"),
        (["c", "gpt"], {"y": "c"}, {"y": ["gtp"]}, "no column 'gtp'.*Did you mean 'gpt'"),
        (["c", "g"], {"y": "c"}, {"y": ["c"]}, "'c' is used twice"),
        (["c", "g"], {"y": "c"}, {"y": ["g", "g"]}, "'g' is used twice"),
        (["c", "g"], {"y": "c"}, {"y": []}, "names no column"),
        (["c", "g"], {"y": "c"}, {"y": 3}, "give a column pattern"),
        (["c", "g"], {"y": "c"}, {"y": [3]}, "must be text, not 3"),
        (["c", "g"], "c", {"y": "g"}, "human='c' must map"),
        (["c", "g"], {"y": "c"}, "g", "llm='g' must map"),
        (["c", "g"], {"y": 1}, {"y": "g"}, "must both be text"),
        (
            ["c1", "c2", "a_p", "b_p", "a_t"],
            {"p": "c1", "t": "c2"},
            {"p": "{m}_p", "t": "{m}_t"},
            "Annotator 'b' has no labels for 't'",
        ),
        (
            ["c1", "c2", "a", "b"],
            {"p": "c1", "t": "c2"},
            {"p": ["a"], "t": ["b"]},
            "Annotator 'a' has no labels for 't'",
        ),
        (
            ["c1", "c2", "a__b", "a__b__t"],
            {"p": "c1", "t": "c2"},
            {"p": "{m}__{q}", "t": ["a__b"]},
            "'a__b' is used twice",
        ),
    ],
)
def test_bad_descriptions_are_refused(columns, human, llm, words):
    with pytest.raises(StudyError, match=words):
        parse(columns, human, llm)
