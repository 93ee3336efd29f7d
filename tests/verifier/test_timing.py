import os

from verifier.timing import quietest


def test_the_quietest_core_is_one_that_the_process_may_use():
    cores = os.sched_getaffinity(0)
    try:
        assert quietest(cores) in cores
    finally:
        os.sched_setaffinity(0, cores)
