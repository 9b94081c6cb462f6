"""What follows from the numbers of a sampling design."""

import numpy as np
import pytest

from trueup.study.design import Draw, SampleDesign


@pytest.mark.parametrize("coded", [[0, 1], [3, 4], [0, 4], [2], [1, 2, 3, 4]])
def test_uncoded_rows_are_the_others_in_order(coded):
    values = np.arange(10.0, 15.0)
    design = SampleDesign(5, np.array(coded), Draw.SRS, np.full(len(coded), len(coded) / 5))
    np.testing.assert_array_equal(values[design.uncoded], np.delete(values, coded))


def test_uncoded_rows_that_come_first_are_not_copied():
    values = np.arange(5.0)
    design = SampleDesign(5, np.array([3, 4]), Draw.SRS, np.full(2, 0.4), disjoint=True)
    assert np.shares_memory(values[design.uncoded], values)
