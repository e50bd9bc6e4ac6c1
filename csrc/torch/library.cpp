#include "torch/library.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/argsort.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/cummax.h>
#include <ATen/ops/cummin.h>
#include <ATen/ops/cumprod.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/index_put.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/scatter.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/topk.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "base/error.h"

namespace fuser {
namespace {

std::vector<at::Tensor> both(std::tuple<at::Tensor, at::Tensor> results) {
  return {std::move(std::get<0>(results)), std::move(std::get<1>(results))};
}

}  // namespace

std::vector<at::Tensor> call_library(LibraryOp op, const std::vector<at::Tensor>& t,
                                     const std::vector<int64_t>& a) {
  const at::ScalarType dtype = t[0].scalar_type();
  switch (op) {
    case LibraryOp::matmul:
      return {at::matmul(t[0], t[1])};
    case LibraryOp::linear:
      return {at::linear(t[0], t[1], t.size() > 2 ? std::optional(t[2]) : std::nullopt)};
    case LibraryOp::baddbmm:
      return {at::baddbmm(t[0], t[1], t[2])};
    case LibraryOp::topk:
      return both(at::topk(t[0], a[0], a[1], a[2] != 0, a[3] != 0));
    case LibraryOp::sort:
      return both(at::sort(t[0], /*stable=*/a[2] != 0, a[0], a[1] != 0));
    case LibraryOp::argsort:
      return {at::argsort(t[0], /*stable=*/a[2] != 0, a[0], a[1] != 0)};
    // Without a dtype they would widen integers.
    case LibraryOp::cumsum:
      return {at::cumsum(t[0], a[0], dtype)};
    case LibraryOp::cumprod:
      return {at::cumprod(t[0], a[0], dtype)};
    case LibraryOp::cummax:
      return {std::get<0>(at::cummax(t[0], a[0]))};
    case LibraryOp::cummin:
      return {std::get<0>(at::cummin(t[0], a[0]))};
    case LibraryOp::scatter:
      return {at::scatter(t[0], a[0], t[1], t[2])};
    case LibraryOp::index_put_accumulate:
      return {at::index_put(t[0], {t[1]}, t[2], /*accumulate=*/true)};
  }
  throw Fault(FaultKind::Internal, "internal", "torch is not known to have this library op");
}

void run_library(const LibraryCall& call, const Record& record,
                 const std::vector<at::Tensor>& inputs, int device,
                 std::vector<at::Tensor>& outputs) {
  // What is computed is the definition, whatever the caller's modes are.
  const at::NoGradGuard no_grad;
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  std::vector<at::Tensor> args;
  for (const LibraryCall::Source& source : call.args) {
    at::Tensor t = source.input >= 0 ? inputs[source.input] : outputs[source.output];
    // A scalar may have been given on the CPU.
    if (device != cpu_device && t.is_cpu())
      t = t.to(c10::Device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(device)));
    args.push_back(source.dims.empty() ? std::move(t) : t.permute(source.dims));
  }
  std::vector<at::Tensor> results = call_library(call.op, args, call.attributes);
  for (size_t i = 0; i < results.size(); ++i) {
    if (call.outputs[i] < 0) continue;
    const OutputSpec& spec = record.outputs[call.outputs[i]];
    FUSER_ASSERT(results[i].sizes() == at::IntArrayRef(spec.sizes), row(call.op).name, " result ",
                 i, " has other sizes than its definition says");
    // Kernels read it row-major.
    outputs[call.outputs[i]] = results[i].contiguous();
  }
}

}  // namespace fuser
