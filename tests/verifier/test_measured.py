"""Which clock counts, and what is no time."""

import math

import pytest

from verifier.measured import DISAGREE, read_timing


def samples(events, walls=None, overhead=0.01):
    return {
        "event_ms": events,
        "wall_ms": walls or [event + 0.01 for event in events],
        "overhead_ms": overhead,
    }


def test_median_and_quantiles_come_from_the_events():
    measured = read_timing([(1, samples([float(n) for n in range(1, 12)]))])
    timing = measured.timing
    assert (timing.low_ms, timing.median_ms, timing.high_ms, timing.samples) == (3.0, 6.0, 9.0, 11)
    assert measured.flags == ()


def test_work_beside_the_timed_stream_is_scored_by_the_wall_clock():
    measured = read_timing([(1, samples([0.01] * 9, [1.02] * 9, overhead=0.02))])
    assert measured.timing.median_ms == pytest.approx(1.0)
    assert measured.flags == (DISAGREE,)


def test_the_wall_clocks_own_overhead_is_no_disagreement():
    assert read_timing([(1, samples([0.01] * 9, [0.07] * 9, overhead=0.03))]).flags == ()


def test_configurations_are_weighted_by_how_often_they_occur():
    measured = read_timing([(3, samples([1.0] * 5)), (1, samples([5.0] * 5))])
    assert measured.timing.median_ms == pytest.approx(2.0)


@pytest.mark.parametrize("bad", [[], [0.0], [-1.0], [math.nan], [math.inf], ["x"], [None]])
def test_what_is_no_time_is_refused(bad):
    with pytest.raises((ValueError, TypeError)):
        read_timing([(1, samples(bad, bad))])
