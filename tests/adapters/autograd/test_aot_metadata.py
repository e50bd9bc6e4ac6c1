"""fuser/adapters/autograd/aot_metadata.py: AOTAutograd's metadata of a graph."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
import torch
from torch._functorch._aot_autograd.schemas import ViewAndMutationMeta

from fuser.adapters import compile_graph
from fuser.adapters.autograd import aot_metadata
from fuser.adapters.autograd.aot_metadata import Facts

# Metadata fields that functions without wrappers may have, and fields of functions that _is_plain()
# rejects anyway.
NEED_NO_WRAPPERS = {
    *("input_info", "output_info", "keep_input_mutations", "static_input_indices"),
    *("traced_tangents", "traced_tangents_descs", "traced_tangent_metas"),
    *("subclass_inp_meta", "subclass_fw_graph_out_meta", "subclass_tangent_meta"),
    *("grad_enabled_mutation", "deterministic", "bw_donated_idxs", "saved_tensor_is_graph_input"),
    *("graphsafe_rng_state_index", "graphsafe_rng_device", "mutated_inp_stream_indices"),
    *("compile_id_str", "tangent_source_stack_traces", "is_train"),
}


def test_all_that_the_metadata_says_is_known() -> None:
    """Every field of the metadata is classified: a field that a new torch adds or renames may
    require a new wrapper."""
    said = {f.name for f in fields(ViewAndMutationMeta)}
    assert said - {*aot_metadata._WRAPPED} - NEED_NO_WRAPPERS == set()


def test_facts_of_both_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    found: dict[str, Facts] = {}

    def noted(name: str) -> Facts:
        found[name] = aot_metadata.facts_now(name)
        return found[name]

    monkeypatch.setattr(compile_graph, "facts_now", noted)
    torch._dynamo.reset()
    weight, x = torch.nn.Parameter(torch.ones(4, 4)), torch.ones(2, 4)

    def f(x: torch.Tensor, y: torch.Tensor) -> Any:
        return (x @ weight).exp() * y, x + 1

    with torch._functorch.config.patch(enable_autograd_cache=False):
        torch.compile(f, backend="fuser")(x, weight.sum())[0].sum().backward()
    forward, backward = found["forward"], found["backward"]
    assert forward.plain
    assert (forward.kept, forward.outputs, forward.wanted) == (2, 2, (0,))
    assert len(forward.static) == 1
    assert len(forward.inner) == 1
    assert backward.donated
    assert aot_metadata.facts_now("forward") == Facts()
