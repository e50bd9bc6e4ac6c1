"""csrc/ir/library: the rows of extern ops, with a method and a reference for each."""

import pytest

from fuser import FusionDefinition, UserError, _core
from fuser.ops.extern import Extern
from fuser.ops.methods import op_names
from fuser.ops.reference import LIBRARY


def test_every_row_has_its_method_and_reference() -> None:
    rows = _core.library_ops()
    assert len(set(rows)) == len(rows)
    assert sorted(LIBRARY) == sorted(rows)
    assert sorted({*op_names(Extern)} - {"library"}) == sorted(rows)


def test_attributes_are_found_by_name() -> None:
    assert _core.library_attributes("matmul") == []
    assert _core.library_attributes("cumsum") == ["dim"]
    assert _core.library_attributes("sdpfa_fwd") == ["dropout_p", "is_causal", "scale"]
    assert _core.library_attributes("topk") == ["k", "dim", "largest", "sorted"]


def test_names_that_there_are_not() -> None:
    for name in ("conv", "", "MATMUL"):
        with pytest.raises(UserError) as error:
            _core.library_attributes(name)
        assert error.value.rule == "library-1"
    fd = FusionDefinition()
    with pytest.raises(UserError) as error:
        fd.ops.library("conv", [fd.define_tensor([2])])
    assert error.value.rule == "library-1"
