"""The families of cases by name, in the order in which they run."""

from __future__ import annotations

from benchmarks.case import Row
from benchmarks.families import (
    channels,
    data_movement,
    elementwise_chains,
    losses,
    norms,
    pointwise,
    softmax,
    sums,
    transposes,
)

TABLES: dict[str, tuple[Row, ...]] = {
    "pointwise": pointwise.TABLE,
    "chains": elementwise_chains.TABLE,
    "sums": sums.TABLE,
    "softmax": softmax.FORWARD,
    "softmax_backward": softmax.BACKWARD,
    "cross_entropy": losses.TABLE,
    "layer_norm": norms.LAYER_NORM,
    "rms_norm": norms.RMS_NORM,
    "norm_backward": norms.BACKWARD,
    "channels": channels.TABLE,
    "transposes": transposes.TABLE,
    "moves": data_movement.TABLE,
}
