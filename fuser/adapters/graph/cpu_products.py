"""Matrix products of CPU tensors by the faster of torch's libraries.

Torch computes float32 products with MKL. On processors of other vendors MKL does not use AVX-512.
There oneDNN, which torch contains too, takes less than half of the time. The pass replaces large
products, in forward and backward graphs.
"""

from __future__ import annotations

import platform
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import fx

from fuser.adapters.graph.gemm_padding import PRODUCTS
from fuser.adapters.graph.views import has_numbers
from fuser.adapters.nodes import computed, tensor_of
from fuser.adapters.torch_compat import linear_pointwise

# Minimum multiplications of a product; oneDNN takes longer to call.
_LARGE = 1 << 22


def choose_library(graph: fx.Graph) -> None:
    """Replaces large float32 products of CPU tensors by oneDNN's."""
    for node in list(graph.nodes):
        if node.target in PRODUCTS and _is_faster(node):
            _replace(graph, node)


def _is_faster(node: fx.Node) -> bool:
    operands = [n for n in node.args if isinstance(n, fx.Node)]
    if not all(map(has_numbers, operands)) or node.kwargs:
        return False
    a, b = (tensor_of(node.args[i]) for i in PRODUCTS[node.target])  # type: ignore[arg-type]
    if a.ndim != 2 or a.device.type != "cpu" or a.dtype != torch.float32:
        return False
    bias = tensor_of(operands[0]) if len(operands) == 3 else None
    if bias is not None and (bias.ndim != 1 or bias.shape[0] != b.shape[1]):
        return False
    large = prod((*a.shape, b.shape[1])) >= _LARGE
    return bool(large and torch.backends.mkldnn.enabled and prefers_onednn())


@cache
def prefers_onednn() -> bool:
    """True if MKL has no AVX-512 kernels for this processor, and oneDNN has."""
    libraries: Any = torch.backends
    return (
        libraries.mkl.is_available()
        and libraries.mkldnn.is_available()
        and torch.backends.cpu.get_cpu_capability() == "AVX512"
        and _vendor() not in ("GenuineIntel", "")
    )


def _vendor() -> str:
    """The vendor of the processor as it names itself; empty if unknown."""
    if platform.machine() != "x86_64":
        return ""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return ""
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("vendor_id"))
    return next(named, "")


def _replace(graph: fx.Graph, node: fx.Node) -> None:
    """Replaces the product by oneDNN's, which reads the second matrix transposed."""
    at_a, at_b = PRODUCTS[node.target]
    bias = node.args[0] if at_a == 1 else None
    with graph.inserting_before(node):
        weight: Any = graph.call_function(torch.ops.aten.permute.default, (node.args[at_b], [1, 0]))
        weight.meta["val"] = computed(weight)
        args: Any = (node.args[at_a], weight, bias, "none", [], "")
        product = graph.call_function(linear_pointwise, args)
    product.meta = dict(node.meta)
    node.replace_all_uses_with(product)
    graph.erase_node(node)
