"""What every journal does; each implementation's test class inherits it and gives `journal`."""

import pytest

from mkevolve_core import events as ev
from mkevolve_core.domain import Outcome, RunPhase, Timing, Verdict
from mkevolve_core.errors import JournalError

AWKWARD = "NUL \x00, ANSI \x1b[31m, C:\\u00e, lone \ud800, line\u2028break\r\n" + "x" * 5_000_000


class JournalContract:
    def test_what_is_appended_is_read_back(self, journal):
        written = [journal.append(ev.IterationStarted(n), next_by=n + 0.5) for n in range(1, 4)]
        assert list(journal.read()) == written

    def test_seq_has_no_gaps(self, journal):
        for n in range(1, 6):
            assert journal.append(ev.Progressed("x")).seq == n

    def test_read_after_skips_what_is_known(self, journal):
        for n in range(1, 6):
            journal.append(ev.IterationStarted(n))
        assert [entry.seq for entry in journal.read(after=3)] == [4, 5]

    def test_an_empty_journal_has_no_entries(self, journal):
        assert list(journal.read()) == []

    def test_awkward_text_survives(self, journal):
        journal.append(ev.Progressed(AWKWARD))
        journal.append(ev.StateChanged(RunPhase.PAUSED))
        first, second = journal.read()
        assert first.event.doing == AWKWARD
        assert second.event.phase is RunPhase.PAUSED

    @pytest.mark.parametrize("value", [float("nan"), float("inf")])
    def test_a_number_that_is_not_finite_is_refused_and_leaves_nothing(self, journal, value):
        verdict = Verdict(Outcome.CORRECT, measured=Timing(value, 1.0, 1.0, 3))
        with pytest.raises(JournalError, match="VerdictReached"):
            journal.append(ev.VerdictReached("1#1", verdict))
        assert journal.append(ev.IterationStarted(1)).seq == 1
        assert len(list(journal.read())) == 1
