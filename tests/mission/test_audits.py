"""Audits of other loaders: what is wrong with the arguments is said as it is."""

import numpy as np
import pytest

import tokenloom as tl


def test_a_negative_length_is_named_and_not_a_sum_that_is_allowed():
    with pytest.raises(tl.ConfigError) as refused:
        tl.audit(np.array([0, 1]), lengths=[7, -3])
    assert "lengths" in str(refused.value)
    assert "-3" in str(refused.value)
    assert "268,435,456" not in str(refused.value)
