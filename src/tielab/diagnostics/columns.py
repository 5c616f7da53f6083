"""The names under which the diagnostics log, and what each means. Imports no torch."""

NUM_DECILES = 10
UNUSED = NUM_DECILES
"""Number of the group of rows that never occur in the training text."""
GROUP_LABELS = (*(str(decile + 1) for decile in range(NUM_DECILES)), "unused")
"""Decile 1 holds the rarest tenth of the used rows, decile 10 the most frequent."""

BY_FREQUENCY = {
    "gradient/in_norm": "Norm of the matrix's gradient through the lookup; whole batch, before clipping.",
    "gradient/out_norm": "Norm of the matrix's gradient through the head.",
    "gradient/share_l2": "out_norm / (in_norm + out_norm).",
    "gradient/share_energy": "out_norm^2 / (in_norm^2 + out_norm^2).",
    "gradient/cosine": "Of the two gradients.",
}
"""Quantities that are also logged for each group of rows, as ``PREFIX_by_frequency/QUANTITY/GROUP``."""
OVERALL = {
    "gradient/residual": "Largest entry of in + out - gradient, in the gradient's largest; tied only.",
    "gradient/activation_norm": "Norm of the looked-up vectors' gradient: what is published for in_norm.",
    "gradient/share_l2_activation": "out_norm / (activation_norm + out_norm): the published share.",
}
"""Quantities of the whole matrix or model."""


def _columns() -> dict[str, str]:
    columns = {**BY_FREQUENCY, **OVERALL}
    for name, meaning in BY_FREQUENCY.items():
        prefix, _, quantity = name.partition("/")
        for label in GROUP_LABELS:
            group = f"decile {label} of the" if label.isdigit() else "the unused"
            columns[f"{prefix}_by_frequency/{quantity}/{label}"] = f"{name} over {group} rows. {meaning}"
    return columns


DIAGNOSTIC_COLUMNS = _columns()
"""Columns that a run's metrics.csv has from the first row of the diagnostic that logs them."""
