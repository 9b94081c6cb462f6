"""Progress: a bar on a terminal, a few plain lines elsewhere."""

from dataclasses import replace

import pytest

from trueup.multiverse import progress
from trueup.multiverse.progress import Progress


class Stream:
    def __init__(self, terminal):
        self.text = ""
        self.terminal = terminal

    def write(self, text):
        self.text += text

    def flush(self):
        pass

    def isatty(self):
        return self.terminal


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test moves."""
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def stream(monkeypatch, terminal):
    out = Stream(terminal)
    monkeypatch.setattr("sys.stderr", out)
    return out


def test_a_terminal_sees_a_bar_with_done_and_failed(mv, monkeypatch):
    out = stream(monkeypatch, terminal=True)
    outcome = mv.outcomes[0]
    with Progress(2, show=True) as bar:
        bar.add([outcome])
        bar.add([replace(outcome, status="failed")])
    assert "2/2" in out.text
    assert "failed=1" in out.text


@pytest.mark.parametrize("terminal", [True, False])
def test_nothing_is_shown_where_none_is_asked_for(mv, monkeypatch, clock, terminal):
    out = stream(monkeypatch, terminal)
    with Progress(1, show=False) as bar:
        clock[0] += 1000
        bar.add([mv.outcomes[0]])
    assert out.text == ""


def test_a_log_gets_a_line_every_half_minute_and_one_at_the_end(mv, monkeypatch, clock):
    out = stream(monkeypatch, terminal=False)
    outcome = mv.outcomes[0]
    with Progress(1200, show=True) as bar:
        for k in range(100):
            clock[0] += 1
            bar.add([replace(outcome, status="failed"), outcome] if k == 0 else [outcome])
    assert out.text.splitlines() == [
        "universes: 31 done, 1 of them failed, 1,169 left",
        "universes: 61 done, 1 of them failed, 1,139 left",
        "universes: 91 done, 1 of them failed, 1,109 left",
        "universes: 101 done, 1 of them failed, 1,099 left",
    ]


def test_a_short_run_leaves_no_line_and_a_last_line_stands_once(mv, monkeypatch, clock):
    out = stream(monkeypatch, terminal=False)
    with Progress(1, show=True) as bar:
        clock[0] += 29
        bar.add([mv.outcomes[0]])
    assert out.text == ""
    with Progress(1, show=True) as bar:
        clock[0] += 31
        bar.add([mv.outcomes[0]])
        bar.add([])
    assert out.text == "universes: 1 done, 0 of them failed, 0 left\n"
