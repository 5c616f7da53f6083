"""The names under which the diagnostics log, and what each means. Imports no torch."""

NUM_DECILES = 10
UNUSED = NUM_DECILES
"""Number of the group of rows that never occur in the training text."""
GROUP_LABELS = (*(str(decile + 1) for decile in range(NUM_DECILES)), "unused")
"""Decile 1 holds the rarest tenth of the used rows, decile 10 the most frequent."""

MATRICES = {"embedding": "the shared matrix, or E of an untied model", "head": "W of an untied model"}

BY_FREQUENCY = {
    "gradient/in_norm": "Norm of the matrix's gradient through the lookup; whole batch, before clipping.",
    "gradient/out_norm": "Norm of the matrix's gradient through the head.",
    "gradient/share_l2": "out_norm / (in_norm + out_norm).",
    "gradient/share_energy": "out_norm^2 / (in_norm^2 + out_norm^2).",
    "gradient/cosine": "Of the two gradients.",
    "rows/in_inputs": "Rows whose token was among the inputs of the step.",
    "rows/in_targets": "Rows whose token was among the targets of the step.",
    "rows/never_in_inputs": "Rows whose token has not been among the inputs so far.",
    "rows/never_in_targets": "Rows whose token has not been among the targets so far.",
    "rows/untouched": "Rows whose token has been among neither so far.",
    **{f"rows/unchanged_{m}": f"Rows the step left as they were: {what}." for m, what in MATRICES.items()},
    **{
        f"weights/drift_{m}": f"Mean cosine of rows with initial ones: {what}."
        for m, what in MATRICES.items()
    },
    **{f"weights/unmoved_rows_{m}": f"Rows equal to initial ones: {what}." for m, what in MATRICES.items()},
}
"""Quantities that are also logged for each group of rows, as ``PREFIX_by_frequency/QUANTITY/GROUP``."""

OVERALL = {
    "gradient/residual": "Largest entry of in + out - gradient, in the gradient's largest; tied only.",
    "gradient/activation_norm": "Norm of the looked-up vectors' gradient: what is published for in_norm.",
    "gradient/share_l2_activation": "out_norm / (activation_norm + out_norm): the published share.",
    **{
        f"weights/update_{m}": f"|after - before| / |before| of a step: {what}."
        for m, what in MATRICES.items()
    },
    "weights/update_blocks": "|after - before| / |before| of a step: median over the matrices of the blocks.",
    "output/logit_std": "Standard deviation of the logits over the vocabulary, mean over positions.",
    "output/max_logit": "Largest magnitude of a logit.",
    "output/hidden_norm": "Norm of what the head is given, mean over positions.",
    "output/head_row_norm": "Norm of the rows of the head's matrix, mean.",
    "output/entropy": "Of the prediction, in nats, mean over positions.",
    "output/nll": "Nats per token on the windows of the output statistics.",
    "output/calibration_gap": "entropy - nll: below 0 for an over-confident model.",
    "output/ece_15": "Expected calibration error of the most likely token, 15 bins.",
    "output/log_partition_mean": "Mean over positions of the log of the sum of exp(logits).",
    "output/log_partition_variance": "Variance over positions of the same.",
    "output/self_prediction": "Share of positions whose most likely next token is the current one.",
    "output/self_logit": "Logit of the current token, in standard deviations from the mean logit.",
}
"""Quantities of the whole matrix or model."""

OF_GROUPS = {
    "loss/target": "Nats per token of the validation split where the target is of the group.",
    "loss/input": "Nats per token of the validation split where the input is of the group.",
}
"""Quantities that are logged for groups only."""

SHAPE = {
    "stable_rank": "||S||_F^2 / ||S||_2^2",
    "effective_rank": "exp of the entropy of the normalised singular values",
    "participation_ratio": "(sum lambda)^2 / sum lambda^2",
    "mean_share": "||mean row||^2 / mean ||row||^2",
    "mean_pairwise_cosine": "mean cosine of two different rows",
    "isotropy": "min Z / max Z over the eigenvectors (Mu & Viswanath 2018)",
}
VERSIONS = {"": "", "_weighted": ", rows weighted by their counts", "_centred": ", minus the mean row"}


def _geometry() -> dict[str, str]:
    columns = {}
    for matrix, what in MATRICES.items():
        for version, how in VERSIONS.items():
            for quantity, meaning in SHAPE.items():
                columns[f"geometry/{matrix}{version}_{quantity}"] = f"{what}{how}, used rows: {meaning}."
        del columns[f"geometry/{matrix}_centred_mean_share"]
        columns[f"geometry/{matrix}_norm_frequency_correlation"] = f"{what}: Spearman of row norm and count."
    return columns


def _columns() -> dict[str, str]:
    columns = {**BY_FREQUENCY, **OVERALL, **_geometry()}
    for name, meaning in (BY_FREQUENCY | OF_GROUPS).items():
        prefix, _, quantity = name.partition("/")
        for label in GROUP_LABELS:
            group = f"decile {label}" if label.isdigit() else "the unused rows"
            columns[f"{prefix}_by_frequency/{quantity}/{label}"] = f"{meaning} Of {group}."
    return columns


DIAGNOSTIC_COLUMNS = _columns()
"""Columns that a run's metrics.csv has from the first row of the diagnostic that logs them."""
