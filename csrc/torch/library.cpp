#include "torch/library.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_grouped_mm.h>
#include <ATen/ops/_scaled_dot_product_efficient_attention.h>
#include <ATen/ops/_scaled_dot_product_efficient_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/_scaled_grouped_mm.h>
#include <ATen/ops/_scaled_mm.h>
#include <ATen/ops/argsort.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/cummax.h>
#include <ATen/ops/cummin.h>
#include <ATen/ops/cumprod.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/index_put.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/scatter.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "torch/bridge.h"

namespace fuser::bridge {

using namespace driver;
using namespace fusion;
using namespace ir;

namespace {

std::vector<at::Tensor> both(std::tuple<at::Tensor, at::Tensor> results) {
  return {std::move(std::get<0>(results)), std::move(std::get<1>(results))};
}

// ---- attention: dropout_p, is_causal and scale (NaN: 1 / sqrt of the head size) are a[0..2]

double scale_of(const at::Tensor& query, const std::vector<int64_t>& a) {
  const double scale = real_of(a[2]);
  return !std::isnan(scale)
             ? scale
             : 1.0 / std::sqrt(static_cast<double>(std::max<int64_t>(query.size(-1), 1)));
}

void check_attention(const char* op, const at::Tensor& query, const at::Tensor& key,
                     const std::vector<int64_t>& a) {
  FUSER_CHECK(!a[1] || query.size(2) == key.size(2), Unsupported, "sdpfa-causal", op,
              "(): is_causal with ", query.size(2), " queries and ", key.size(2),
              " keys, for which torch's kernels differ between devices\n"
              "  hint: pass a mask");
  if (query.is_cpu()) {
    FUSER_CHECK(real_of(a[0]) == 0.0, Unsupported, "sdpfa-dropout", op,
                "(): torch's attention on the CPU does not support dropout");
  }
}

// Returns whether torch's flash attention on GPUs supports the operands. It has no bias and no
// float32, and requires one head size of at most 256. Memory-efficient attention lacks these
// limits. Raises Unsupported for float64, which neither supports.
bool takes_flash(const char* op, const at::Tensor& query, const at::Tensor& value) {
  const at::ScalarType dtype = query.scalar_type();
  FUSER_CHECK(dtype == at::kHalf || dtype == at::kBFloat16 || dtype == at::kFloat, Unsupported,
              "sdpfa-dtype", op,
              "(): torch's attention on GPUs supports float16, bfloat16 and float32, got ",
              c10::toString(dtype), "\n  hint: cast the operands, or use matmul and softmax");
  return dtype != at::kFloat && query.size(3) <= 256 && value.size(3) == query.size(3);
}

// Returns a tensor as torch's GPU kernels need it: contiguous heads with a multiple of 8 elements.
at::Tensor of_heads(const at::Tensor& t) {
  const int64_t missing = -t.size(-1) & 7;
  if (missing) return at::constant_pad_nd(t, {0, missing});
  return t.stride(-1) == 1 ? t : t.contiguous();
}

// Returns the bias as torch's memory-efficient attention needs it: contiguous rows that start at
// multiples of 8 elements.
at::Tensor of_rows(const at::Tensor& bias, at::IntArrayRef shape) {
  const int64_t keys = shape.back();
  at::Tensor rows =
      bias.size(-1) == keys ? bias : bias.expand({bias.size(0), bias.size(1), bias.size(2), keys});
  if (const int64_t missing = -keys & 7)
    rows = at::constant_pad_nd(rows, {0, missing}).narrow(-1, 0, keys);
  else
    rows = rows.contiguous();
  return rows.expand(shape);
}

// Multiple to which memory-efficient attention pads the queries of a logsumexp.
constexpr int64_t lse_rows = 32;

// Converts the tensors of an attention whose heads flash attention refuses to float32. Torch's
// memory-efficient kernels for half types give wrong gradients of such heads.
std::vector<at::Tensor> widened(std::vector<at::Tensor> t, size_t count) {
  for (size_t i = 0; i < count; ++i) t[i] = t[i].to(at::kFloat);
  return t;
}

// Computes memory-efficient attention on GPUs, with or without a bias.
std::vector<at::Tensor> attend_efficient(const std::vector<at::Tensor>& t,
                                         const std::vector<int64_t>& a) {
  const int64_t queries = t[0].size(2);
  const std::optional<at::Tensor> bias =
      t.size() > 3
          ? std::optional(of_rows(t[3], {t[0].size(0), t[0].size(1), queries, t[1].size(2)}))
          : std::nullopt;
  auto [output, logsumexp, seed, offset] = at::_scaled_dot_product_efficient_attention(
      of_heads(t[0]), of_heads(t[1]), of_heads(t[2]), bias, /*compute_log_sumexp=*/true,
      real_of(a[0]), a[1] != 0, scale_of(t[0], a));
  const auto device = t[0].device();
  seed = seed.view(at::kLong).to(device);
  offset = offset.view(at::kLong).to(device);
  // logsumexp has a multiple of lse_rows queries.
  return {output.narrow(-1, 0, t[2].size(3)), logsumexp.narrow(-1, 0, queries),
          at::stack({seed.reshape({}), offset.reshape({})}), offset.reshape({})};
}

std::vector<at::Tensor> attend_efficient_backward(const std::vector<at::Tensor>& t,
                                                  const std::vector<int64_t>& a) {
  const int64_t missing = -t[5].size(-1) & (lse_rows - 1);
  const at::Tensor logsumexp =
      at::constant_pad_nd(t[5], {0, missing}, std::numeric_limits<double>::infinity());
  auto [q, k, v, bias] = at::_scaled_dot_product_efficient_attention_backward(
      of_heads(t[0]), of_heads(t[1]), of_heads(t[2]), of_heads(t[3]), /*attn_bias=*/at::Tensor(),
      of_heads(t[4]), logsumexp, t[6].select(0, 0), t[7], real_of(a[0]),
      /*grad_input_mask=*/{true, true, true, false}, a[1] != 0, scale_of(t[1], a));
  return {q.narrow(-1, 0, t[1].size(3)), k.narrow(-1, 0, t[2].size(3)),
          v.narrow(-1, 0, t[3].size(3))};
}

std::vector<at::Tensor> attend(const std::vector<at::Tensor>& t, const std::vector<int64_t>& a) {
  check_attention("sdpfa_fwd", t[0], t[1], a);
  const double scale = scale_of(t[0], a);
  const auto bias = t.size() > 3 ? std::optional(t[3]) : std::nullopt;
  if (t[0].is_cpu()) {
    const auto state = t[0].options().dtype(at::kLong);
    auto [output, logsumexp] = at::_scaled_dot_product_flash_attention_for_cpu(
        t[0], t[1], t[2], 0.0, a[1] != 0, bias, scale);
    return {output, logsumexp, at::zeros({2}, state), at::zeros({}, state)};
  }
  const bool flash = takes_flash("sdpfa_fwd", t[0], t[2]);
  if (bias) return attend_efficient(t, a);
  if (!flash) {
    std::vector<at::Tensor> results = attend_efficient(widened(t, t.size()), a);
    results[0] = results[0].to(t[0].scalar_type());
    return results;
  }
  auto r = at::_scaled_dot_product_flash_attention(of_heads(t[0]), of_heads(t[1]), of_heads(t[2]),
                                                   real_of(a[0]), a[1] != 0,
                                                   /*return_debug_mask=*/false, scale);
  return {std::get<0>(r).narrow(-1, 0, t[2].size(3)), std::get<1>(r),
          std::get<6>(r).view(at::kLong), std::get<7>(r).view(at::kLong)};
}

std::vector<at::Tensor> attend_backward(const std::vector<at::Tensor>& t,
                                        const std::vector<int64_t>& a) {
  check_attention("sdpfa_bwd", t[1], t[2], a);
  const double scale = scale_of(t[1], a);
  if (t[0].is_cpu()) {
    auto [q, k, v] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        t[0], t[1], t[2], t[3], t[4], t[5], 0.0, a[1] != 0, std::nullopt, scale);
    return {q, k, v};
  }
  if (!takes_flash("sdpfa_bwd", t[1], t[3])) {
    constexpr size_t operands = 5;  // before logsumexp and the random state
    std::vector<at::Tensor> results = attend_efficient_backward(widened(t, operands), a);
    for (at::Tensor& r : results) r = r.to(t[1].scalar_type());
    return results;
  }
  auto [q, k, v] = at::_scaled_dot_product_flash_attention_backward(
      of_heads(t[0]), of_heads(t[1]), of_heads(t[2]), of_heads(t[3]), of_heads(t[4]), t[5],
      /*cum_seq_q=*/{}, /*cum_seq_k=*/{}, t[1].size(2), t[2].size(2), real_of(a[0]), a[1] != 0,
      t[6].view(at::kUInt64), t[7].view(at::kUInt64), scale);
  const int64_t head = t[1].size(3);
  return {q.narrow(-1, 0, head), k.narrow(-1, 0, head), v.narrow(-1, 0, t[3].size(3))};
}

// Computes grouped products in float32, which torch does not implement on CPUs.
at::Tensor products_of_groups(const at::Tensor& a, const at::Tensor& b, const at::Tensor& offsets) {
  if (a.dim() == 3 && b.dim() == 3) return at::matmul(a, b);
  std::vector<at::Tensor> parts;
  int64_t start = 0;
  for (int64_t g = 0; g < offsets.numel(); ++g) {
    const int64_t end = offsets[g].item<int64_t>();
    FUSER_CHECK(end >= start && end <= (b.dim() == 2 ? b.size(-1 - (a.dim() == 2)) : a.size(0)),
                User, "grouped-mm-4",
                "grouped_mm(): offsets: expected increasing ends of groups, got ", end, " after ",
                start);
    const at::Tensor x = a.dim() == 3 ? a[g] : a.slice(b.dim() == 3 ? 0 : 1, start, end);
    const at::Tensor y = b.dim() == 3 ? b[g] : b.slice(a.dim() == 3 ? 1 : 0, start, end);
    parts.push_back(at::matmul(x, y));
    start = end;
  }
  if (a.dim() == 2 && b.dim() == 2) return at::stack(parts);
  return at::cat(parts, b.dim() == 3 ? 0 : 1);
}

// Computes products of 8-bit floats with float32 scales of rows and columns: mat1, mat2, offsets,
// scale1, scale2.
at::Tensor scaled_groups(const std::vector<at::Tensor>& t, DType dtype) {
  const at::Tensor &a = t[0], &b = t[1], &scale1 = t[3], &scale2 = t[4];
  const bool terms = a.dim() == 2 && b.dim() == 2;  // each result has its own scales
  if (a.is_cpu()) {
    const at::Tensor x = a.to(at::kFloat), y = b.to(at::kFloat);
    const at::Tensor product =
        terms ? at::mul(at::mul(products_of_groups(x, y, t[2]), scale1), scale2)
              : products_of_groups(at::mul(x, scale1), at::mul(y, scale2), t[2]);
    return product.to(to_torch(dtype));
  }
  FUSER_CHECK(
      dtype == DType::BFloat16, Unsupported, "grouped-mm-3",
      "grouped_mm(): torch's grouped product of 8-bit floats on GPUs returns bfloat16, got ",
      row(dtype).torch, "\n  hint: dtype=DataType.BFloat16");
  const at::Tensor rows = scale1.squeeze(-1), columns = scale2.squeeze(-2);
  // The kernel requires a column-major second matrix.
  return at::_scaled_grouped_mm(a.contiguous(), b.transpose(-2, -1).contiguous().transpose(-2, -1),
                                terms ? rows.reshape({-1}) : rows.contiguous(),
                                terms ? columns.reshape({-1}) : columns.contiguous(), t[2],
                                /*bias=*/std::nullopt,
                                /*scale_result=*/std::nullopt, to_torch(dtype));
}

// torch's kernels for 8-bit floats require a column-major second matrix.
at::Tensor scaled_product(const std::vector<at::Tensor>& t, DType dtype) {
  const at::Tensor second = t[1].stride(0) == 1 ? t[1] : t[1].t().contiguous().t();
  const auto bias = t.size() > 4 ? std::optional(t[4]) : std::nullopt;
  return at::_scaled_mm(t[0].contiguous(), second, t[2].contiguous(), t[3].contiguous(), bias,
                        /*scale_result=*/std::nullopt, to_torch(dtype));
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
    case LibraryOp::grouped_mm:
      return {at::_grouped_mm(t[0], t[1], t[2])};
    case LibraryOp::scaled_grouped_mm:
      return {scaled_groups(t, static_cast<DType>(a[0]))};
    case LibraryOp::scaled_mm:
      return {scaled_product(t, static_cast<DType>(a[0]))};
    case LibraryOp::sdpfa_fwd:
      return attend(t, a);
    case LibraryOp::sdpfa_bwd:
      return attend_backward(t, a);
    case LibraryOp::topk:
      return both(at::topk(t[0], a[0], a[1], a[2] != 0, a[3] != 0));
    case LibraryOp::sort:
      return both(at::sort(t[0], /*stable=*/a[2] != 0, a[0], a[1] != 0));
    case LibraryOp::argsort:
      return {at::argsort(t[0], /*stable=*/a[2] != 0, a[0], a[1] != 0)};
    // Without a dtype these ops would widen integers.
    case LibraryOp::cumsum:
      return {at::cumsum(t[0], a[0], dtype)};
    case LibraryOp::cumprod:
      return {at::cumprod(t[0], a[0], dtype)};
    case LibraryOp::cummax:
      return both(at::cummax(t[0], a[0]));
    case LibraryOp::cummin:
      return both(at::cummin(t[0], a[0]));
    case LibraryOp::scatter:
      return {at::scatter(t[0], a[0], t[1], t[2])};
    case LibraryOp::index_put_accumulate:
      return {at::index_put(t[0], {t[1]}, t[2], /*accumulate=*/true)};
  }
  throw Fault(FaultKind::Internal, "internal", "unknown library op of torch");
}

namespace {

// Returns the attributes of a call, with numbers of the run in place of scalar inputs.
std::vector<int64_t> with_given(const LibraryCall& call, std::span<const Number> scalars) {
  std::vector<int64_t> out = call.attributes;
  const std::vector<LibraryAttribute> names = attributes_of(call.op);
  for (const LibraryCall::Given& g : call.given) {
    const Number& number = scalars[g.scalar];
    const bool real = kind_of(g.dtype) == Kind::Float;
    out[g.attribute] = names[g.attribute].kind == LibraryAttribute::Kind::Real
                           ? held(real ? number.real : static_cast<double>(number.integer))
                           : (real ? number.real != 0.0 : number.integer != 0);
  }
  return out;
}

}  // namespace

void run_library(const LibraryCall& call, const Record& record, std::span<const at::Tensor> inputs,
                 std::span<const Number> scalars, int device, std::span<at::Tensor> outputs) {
  // Ignore the caller's autograd and autocast modes: the definition alone determines the result.
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
  std::vector<at::Tensor> results;
  try {
    results = call_library(call.op, args,
                           call.given.empty() ? call.attributes : with_given(call, scalars));
  } catch (const c10::NotImplementedError& missing) {
    throw Fault(FaultKind::Unsupported, "library-torch",
                text(row(call.op).name, "(): the installed torch has no such function for ",
                     args[0].is_cpu() ? "CPU" : "CUDA", " tensors of ",
                     c10::toString(args[0].scalar_type()), ": ", missing.what_without_backtrace()));
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const c10::Error& wrong) {
    // Sizes and types were checked at definition. So for an op with an index operand, only the
    // index can be wrong.
    if (row(call.op).operands.find("iv") == std::string_view::npos) throw;
    throw Fault(FaultKind::User, "library-index",
                text(row(call.op).name, "(): ", wrong.what_without_backtrace()));
  }
  for (size_t i = 0; i < results.size(); ++i) {
    if (call.outputs[i] < 0) continue;
    const OutputSpec& spec = record.outputs[call.outputs[i]];
    FUSER_ASSERT(results[i].sizes() == at::IntArrayRef(spec.sizes), row(call.op).name, " result ",
                 i, " has other sizes than in the definition");
    // Kernels read it row-major.
    outputs[call.outputs[i]] = results[i].contiguous();
  }
}

}  // namespace fuser::bridge
