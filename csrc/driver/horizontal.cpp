#include "driver/horizontal.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/options.h"

namespace fuser::driver {

using namespace codegen;
using namespace fusion;

namespace {

// Memory of an input (true) or of an output (false), and sets of it that kernels access.
using Memory = std::pair<bool, int>;
struct Touched {
  std::set<Memory> read, written;

  static Memory memory(const BufferUse& b) {
    return b.input >= 0 ? Memory{true, b.input} : Memory{false, b.output};
  }
  bool waits(const Group& group) const {
    return std::any_of(group.problem.buffers.begin(), group.problem.buffers.end(),
                       [&](const BufferUse& b) {
                         const Memory m = memory(b);
                         return written.count(m) || (b.written && read.count(m));
                       });
  }
  void add(const Group& group) {
    for (const BufferUse& b : group.problem.buffers) {
      if (b.read) read.insert(memory(b));
      if (b.written) written.insert(memory(b));
    }
  }
};

}  // namespace

std::vector<std::vector<size_t>> launches_of(const std::vector<RunningKernel>& kernels, bool join) {
  if (kernels.size() == 1) return {{0}};
  std::vector<std::vector<size_t>> out;
  Touched touched;                  // memory accessed by kernels that are mutually independent
  std::map<Digest, size_t> newest;  // latest launch of these kernels, by the kernel's digest
  for (size_t i = 0; i < kernels.size(); ++i) {
    const RunningKernel& k = kernels[i];
    if (k.behind_other || touched.waits(*k.group)) {
      touched = {};
      newest.clear();
    }
    touched.add(*k.group);
    // Index checks in debug builds name the tensors of one kernel.
    const bool named = options().host_debug && !k.variant->ir.checked.empty();
    const auto most =
        static_cast<size_t>(join && !named ? horizontal_layout(k.variant->ir).most : 1);
    const auto [it, fresh] = newest.try_emplace(k.variant->text.digest, out.size());
    if (fresh || out[it->second].size() >= most) {
      it->second = out.size();
      out.emplace_back();
    }
    out[it->second].push_back(i);
  }
  return out;
}

KernelText text_of_launch(const std::vector<RunningKernel>& kernels,
                          const std::vector<size_t>& launch) {
  const Variant& v = *kernels[launch[0]].variant;
  return launch.size() > 1 ? print_horizontal(v.ir) : v.text;
}

std::vector<LoadedKernelRef> load_launches(const std::vector<RunningKernel>& kernels,
                                           const std::vector<std::vector<size_t>>& launches,
                                           int device, std::mutex& mutex) {
  std::vector<LoadedKernelRef> out(launches.size());
  const auto held = [&](size_t launch) -> LoadedKernelRef& {
    const Variant& v = *kernels[launches[launch][0]].variant;
    return launches[launch].size() > 1 ? v.loaded_horizontal : v.loaded;
  };
  std::vector<size_t> missing;
  {
    const std::lock_guard lock(mutex);
    for (size_t i = 0; i < launches.size(); ++i) {
      if (held(i) && held(i)->target == target_of(device, held(i)->source))
        out[i] = held(i);
      else
        missing.push_back(i);
    }
  }
  if (missing.empty()) return out;
  std::vector<KernelText> texts;
  for (size_t i : missing) texts.push_back(text_of_launch(kernels, launches[i]));
  const std::vector<LoadedKernelRef> loaded = load_kernels(device, texts);
  const std::lock_guard lock(mutex);
  for (size_t k = 0; k < missing.size(); ++k) held(missing[k]) = out[missing[k]] = loaded[k];
  return out;
}

LaunchRecord join_launches(const std::vector<LaunchRecord>& parts, LoadedKernelRef kernel) {
  const HorizontalLayout layout = horizontal_layout(parts[0].variant->ir);
  LaunchRecord out;
  out.kernel = std::move(kernel);
  out.variant = parts[0].variant;
  out.shape = parts[0].shape;
  out.bytes.resize(static_cast<size_t>(layout.part_offset + layout.most * layout.part_bytes));
  out.offsets.push_back(0);
  std::vector<int32_t> first(static_cast<size_t>(layout.most) + 1, INT32_MAX);
  int64_t blocks = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    const LaunchRecord& part = parts[i];
    FUSER_ASSERT(
        part.scratch.empty() && part.bytes.size() <= static_cast<size_t>(layout.part_bytes),
        "kernel ", part.variant->text.name, " cannot be launched horizontally");
    first[i] = static_cast<int32_t>(blocks);
    blocks += part.shape.grid[0];
    FUSER_CHECK(blocks <= INT32_MAX, Unsupported, "grid-1", "kernel ", part.variant->text.name,
                " needs ", blocks, " blocks; a grid has at most ", INT32_MAX);
    out.shape.shared_bytes = std::max(out.shape.shared_bytes, part.shape.shared_bytes);
    const int at = layout.part_offset + static_cast<int>(i) * layout.part_bytes;
    std::copy(part.bytes.begin(), part.bytes.end(), out.bytes.begin() + at);
    for (Patch patch : part.patches) {
      patch.offset = static_cast<uint16_t>(patch.offset + at);
      out.patches.push_back(patch);
    }
  }
  std::memcpy(out.bytes.data(), first.data(), first.size() * sizeof(int32_t));
  out.shape.grid[0] = static_cast<uint32_t>(blocks);
  return out;
}

}  // namespace fuser::driver
