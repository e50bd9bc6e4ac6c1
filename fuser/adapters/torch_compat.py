"""Torch's internal APIs, i.e. names with a leading underscore: the only module that names them.

A release of torch may change internal APIs without notice; tests/repository/test_layers.py keeps
them here. Each line states the API, the releases that have it, and its meaning. The first group is
in modules that `import torch` loads. The second group is loaded at the first use of a name: Dynamo,
Inductor and sympy are slow to import, and fuser works without the AOT cache if torch lacks its
APIs.
"""
# ruff: noqa: F401
# mypy: implicit-reexport

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch._C import _dispatch_get_all_op_names as all_op_names  # 2.11-2.14: registered ops
from torch._C import _get_schema as schema_of  # 2.11-2.14: schema of an op by name and overload
from torch._C._autograd import DeviceType  # 2.11-2.14: device of a profiled event
from torch._C._autograd import (
    _get_current_graph_task_keep_graph as keeps_graph,  # 2.11-2.14: backward(retain_graph)
)
from torch._C._autograd import (
    _top_saved_tensors_default_hooks as saved_tensors_hooks,  # 2.11-2.14: active hooks
)
from torch._C._functorch import (
    peek_interpreter_stack as functorch_transform,  # 2.11-2.14: innermost transform, e.g. vmap
)
from torch._decomp import get_decompositions  # 2.11-2.14: torch's decompositions by op
from torch._guards import (
    TracingContext,  # 2.11-2.14: state of a compilation by AOTAutograd
    detect_fake_mode,  # 2.11-2.14: the FakeTensorMode of values
)
from torch._ops import (
    HigherOrderOperator,  # 2.11-2.14: an op on graphs, e.g. cond
    OpOverload,  # 2.11-2.14: one overload of an op, the target of a node
    OpOverloadPacket,  # 2.11-2.14: all overloads of an op
)
from torch._prims_common import (
    clone_preserve_strides,  # 2.11-2.14: copy with equal strides, also of expanded dims
    suggest_memory_format,  # 2.11-2.14: channels-last or contiguous
)
from torch._refs.nn.functional import channel_shuffle  # 2.11-2.14: channel_shuffle by views
from torch._subclasses import (
    FakeTensor,  # 2.11-2.14: a tensor without memory
    FakeTensorMode,  # 2.11-2.14: the mode that creates FakeTensors
)
from torch._subclasses.fake_tensor import unset_fake_temporarily  # 2.11-2.14: context without it
from torch.fx.node import _side_effectful_functions as effectful_functions  # 2.11-2.14: kept ops
from torch.utils import _pytree as pytree  # 2.11-2.14: nested containers and their leaves
from torch.utils._python_dispatch import TorchDispatchMode  # 2.11-2.14: mode that intercepts ops
from torch.utils._python_dispatch import (
    _disable_current_modes as disable_current_modes,  # 2.11-2.14: context without modes
)

# 2.11-2.14: torch._C._dynamo.guards._reinterpret_tensor, a view by sizes, strides and offset from
# the tensor's beginning, without torch's dispatcher
reinterpret_tensor: Any = torch._C._dynamo.guards._reinterpret_tensor  # type: ignore[attr-defined]


def _onednn(name: str) -> Any:
    """2.11-2.14: an op of oneDNN, or None in builds of torch without oneDNN."""
    packet = getattr(torch.ops.mkldnn, name, None)
    return None if packet is None else packet.default


linear_pointwise = _onednn("_linear_pointwise")
convolution_pointwise = _onednn("_convolution_pointwise")
reorder_linear_weight = _onednn("_reorder_linear_weight")
reorder_convolution_weight = _onednn("_reorder_convolution_weight")


def forward_ad_level() -> int:
    """2.11-2.14: torch.autograd.forward_ad._current_level, negative outside of dual levels."""
    return torch.autograd.forward_ad._current_level


def replace_in_c(name: str, function: Callable[..., Any]) -> None:
    """2.11-2.14: replaces torch._C.<name>, e.g. a switch of the TorchScript fuser."""
    setattr(torch._C, name, function)


# Module and attribute of each name of the second group.
LAZY = {
    # 2.11-2.14: a launch of a Triton kernel that returns copies, and one that writes
    "triton_kernel_wrapper_functional": (
        "torch._higher_order_ops.triton_kernel_wrap:triton_kernel_wrapper_functional"
    ),
    "triton_kernel_wrapper_mutation": (
        "torch._higher_order_ops.triton_kernel_wrap:triton_kernel_wrapper_mutation"
    ),
    # 2.11-2.14: key of a kernel of an op, and sets of keys
    "DispatchKey": "torch._C:DispatchKey",
    "DispatchKeySet": "torch._C:DispatchKeySet",
    # 2.11-2.14: contexts without the kernels of autograd, of autocast, of given keys
    "AutoDispatchBelowAutograd": "torch._C:_AutoDispatchBelowAutograd",
    "DisableAutocast": "torch._C:_DisableAutocast",
    "ExcludeDispatchKeyGuard": "torch._C:_ExcludeDispatchKeyGuard",
    # 2.11-2.14: the state of compiled autograd, Dynamo's options and the reset of its caches
    "compiled_autograd": "torch._dynamo.compiled_autograd",
    "dynamo_config": "torch._dynamo.config",
    "reset_dynamo": "torch._dynamo:reset",
    # 2.11-2.14: properties of a graph for torch's backend "cudagraphs"
    "dynamo_cudagraphs": "torch._dynamo.backends.cudagraphs",
    # 2.11-2.14: a Dynamo backend from AOTAutograd
    "aot_autograd": "torch._dynamo.backends.common:aot_autograd",
    # 2.11-2.14: Dynamo's lock around compilation
    "compile_lock": "torch._dynamo.convert_frame:compile_lock",
    # 2.11-2.14: Dynamo's guards of global state
    "GuardBuilder": "torch._dynamo.guards:GuardBuilder",
    "GlobalStateSource": "torch._dynamo.source:GlobalStateSource",
    # 2.11-2.14: AOTAutograd's options, its cache, and its form of a compiler for the cache
    "functorch_config": "torch._functorch.config",
    "autograd_cache": "torch._functorch._aot_autograd.autograd_cache",
    "SerializableAOTDispatchCompiler": (
        "torch._functorch._aot_autograd.schemas:SerializableAOTDispatchCompiler"
    ),
    # 2.11-2.14: the joint graph of a function, and a function compiled with its gradients
    "aot_export_joint_simple": "torch._functorch.aot_autograd:aot_export_joint_simple",
    "aot_function": "torch._functorch.aot_autograd:aot_function",
    # 2.11-2.14: the min-cut partitioner
    "min_cut_rematerialization_partition": (
        "torch._functorch.partitioners:min_cut_rematerialization_partition"
    ),
    # 2.11-2.14: a graph of FakeTensors, compiled by Inductor
    "compile_by_inductor": "torch._inductor.standalone_compile:standalone_compile",
    # 2.11-2.14: the key of Inductor's cache, and Inductor's options
    "codecache": "torch._inductor.codecache",
    "inductor_config": "torch._inductor.config",
    # 2.11-2.14: CUDA graph trees, and properties of a graph for them
    "cudagraph_trees": "torch._inductor.cudagraph_trees",
    "cudagraph_utils": "torch._inductor.cudagraph_utils",
    "inductor_utils": "torch._inductor.utils",
    # 2.11-2.14: a compiled graph in the AOT cache
    "OutputCode": "torch._inductor.output_code:OutputCode",
    # 2.11-2.14: pickles of graphs
    "GraphPickler": "torch.fx._graph_pickler:GraphPickler",
    "PicklerOptions": "torch.fx._graph_pickler:Options",
    # 2.11-2.14: sympy expressions as calls of Python operators
    "sympy_interp": "torch.utils._sympy.interp:sympy_interp",
    "PythonReferenceAnalysis": "torch.utils._sympy.reference:PythonReferenceAnalysis",
}

if TYPE_CHECKING:
    from torch._C import DispatchKey, DispatchKeySet
    from torch._C import _AutoDispatchBelowAutograd as AutoDispatchBelowAutograd
    from torch._C import _DisableAutocast as DisableAutocast
    from torch._C import _ExcludeDispatchKeyGuard as ExcludeDispatchKeyGuard
    from torch._dynamo import compiled_autograd
    from torch._dynamo import config as dynamo_config
    from torch._dynamo import reset as reset_dynamo
    from torch._dynamo.backends import cudagraphs as dynamo_cudagraphs
    from torch._dynamo.backends.common import aot_autograd
    from torch._dynamo.convert_frame import compile_lock
    from torch._dynamo.guards import GuardBuilder
    from torch._dynamo.source import GlobalStateSource
    from torch._functorch import config as functorch_config
    from torch._functorch._aot_autograd import autograd_cache
    from torch._functorch._aot_autograd.schemas import SerializableAOTDispatchCompiler
    from torch._functorch.aot_autograd import aot_export_joint_simple, aot_function
    from torch._functorch.partitioners import min_cut_rematerialization_partition
    from torch._higher_order_ops.triton_kernel_wrap import (
        triton_kernel_wrapper_functional,
        triton_kernel_wrapper_mutation,
    )
    from torch._inductor import codecache, cudagraph_trees, cudagraph_utils
    from torch._inductor import config as inductor_config
    from torch._inductor import utils as inductor_utils
    from torch._inductor.output_code import OutputCode
    from torch._inductor.standalone_compile import standalone_compile as compile_by_inductor
    from torch.fx._graph_pickler import GraphPickler
    from torch.fx._graph_pickler import Options as PicklerOptions
    from torch.utils._sympy.interp import sympy_interp
    from torch.utils._sympy.reference import PythonReferenceAnalysis
else:

    def __getattr__(name: str) -> Any:
        """Loads a name of the second group. Raises ImportError if the installed torch lacks it."""
        if name not in LAZY:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            found = pkgutil.resolve_name(LAZY[name])
        except AttributeError:
            raise ImportError(f"torch {torch.__version__} has no {LAZY[name]}") from None
        return globals().setdefault(name, found)
