"""fuser/kernel_names.py: names of ops in kernel names."""

import pytest

from fuser import FusionDefinition
from fuser.kernel_names import recorded_as, word


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        ("softmax", "softmax_fwd"),
        ("layer_norm", "layer_norm_fwd"),
        ("log_softmax", "log_softmax_fwd"),
        ("gelu", "gelu"),
        ("aten.gelu_backward.default", "gelu_bwd"),
        ("aten._softmax.default", "softmax_fwd"),
        ("aten._softmax_backward_data.default", "softmax_bwd"),
        ("aten.native_layer_norm_backward.default", "layer_norm_bwd"),
        ("aten._fused_rms_norm.default", "rms_norm_fwd"),
        ("aten.nll_loss_forward.default", "nll_loss_fwd"),
        ("aten.relu_.default", "relu"),
        ("aten.linalg_vector_norm.default", "linalg_vector_norm"),
    ],
)
def test_words(op: str, expected: str) -> None:
    assert word(op) == expected


def test_the_outermost_composite_counts() -> None:
    builder = FusionDefinition()._builder
    with recorded_as(builder, "aten._softmax.default"):
        with recorded_as(builder, "exp"):
            assert builder.composite == "softmax_fwd"
        assert builder.composite == "softmax_fwd"
    assert builder.composite == ""


def test_an_error_inside_leaves_nothing_behind() -> None:
    builder = FusionDefinition()._builder
    with pytest.raises(ValueError, match="inside"), recorded_as(builder, "softmax"):
        raise ValueError("inside")
    assert builder.composite == ""
