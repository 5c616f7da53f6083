import pytest

from tielab.report.wording import difference_text, magnitude_text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0243, "+0.0243"), (-0.0243, "-0.0243"), (0.0, "+0.0000"), (0.00005, "+0.0001"),
        (3.1e-05, "+0.000031"), (-9.96e-06, "-0.0000100"), (1e-7, "+0.00000010"), (1e-12, "+1e-12"),
    ],
)  # fmt: skip
def test_a_small_difference_is_neither_zero_nor_a_power(value, text):
    assert difference_text(value) == text
    assert magnitude_text(value) == text[1:]
