"""A hook that takes its time, so that somebody can be killed in the middle."""

import time


def pause(record):
    time.sleep(0.01)
    return record
