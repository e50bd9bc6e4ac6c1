#include "host/debug.h"

#include <algorithm>
#include <cstddef>

#include "host/collectives.h"
#include "host/executor.h"

namespace fuser::host {
namespace {

std::string triple(const int32_t v[3]) { return text("(", v[0], ", ", v[1], ", ", v[2], ")"); }

bool in_shared(const HostLaunch& launch, const HostPosition& at, const char* address,
               int64_t bytes) {
  if (launch.shared_bytes == 0) return false;
  const SharedSpan span = at.fiber ? cluster_shared(at.fiber) : SharedSpan{at.shared, 1};
  const ptrdiff_t offset = address - span.base;
  const auto pitch = static_cast<ptrdiff_t>(shared_pitch(launch));
  if (offset < 0 || offset >= span.blocks * pitch) return false;
  return offset % pitch + bytes <= static_cast<ptrdiff_t>(launch.shared_bytes);
}

// Returns the bytes between the access and the range; 0 if they touch or overlap.
ptrdiff_t distance(const HostRange& range, const char* address, int64_t bytes) {
  if (address >= range.end) return address - range.end;
  if (address + bytes <= range.begin) return range.begin - (address + bytes);
  return 0;
}

// Returns "offset -4 of t0 (4096 bytes)" for the nearest range.
std::string place(std::span<const HostRange> ranges, const char* address, int64_t bytes) {
  const HostRange* nearest = nullptr;
  for (const HostRange& range : ranges) {
    if (!nearest || distance(range, address, bytes) < distance(*nearest, address, bytes))
      nearest = &range;
  }
  if (!nearest) return text("address ", static_cast<const void*>(address), ", no memory is given");
  return text("offset ", address - nearest->begin, " of ", nearest->name, " (",
              nearest->end - nearest->begin, " bytes)");
}

std::string index_message(const IndexStatus& status) {
  return text("index ", status.index, " is out of range for size ", status.size, "; expected ",
              -status.size, " to ", status.size - 1);
}

}  // namespace

Fault kernel_fault(const HostLaunch& launch, const HostPosition& at, const char* rule,
                   const std::string& message) {
  const LaunchState& state = state_of(launch);
  return Fault(FaultKind::Internal, rule,
               text("kernel ", state.entry->name, ", block ", triple(at.block), ", thread ",
                    triple(at.thread), ": ", message, " (order seed ", state.options->seed, ")"));
}

Fault index_fault(const IndexStatus& status, std::span<const std::string> names) {
  const auto number = static_cast<size_t>(status.number);
  // One line, followed by lines about its operands.
  const std::string name = number < names.size() ? names[number] : "execute()";
  const size_t line = std::min(name.find('\n'), name.size());
  return Fault(FaultKind::User, "index-range-1",
               text(name.substr(0, line), ": ", index_message(status), name.substr(line)));
}

void check_access(const HostLaunch* launch, const HostPosition* position, const void* pointer,
                  int64_t bytes, int64_t align, uint32_t store) {
  const auto* address = static_cast<const char*>(pointer);
  const std::span<const HostRange> ranges = state_of(*launch).options->ranges;
  const char* verb = store ? "store" : "load";
  bool readable = in_shared(*launch, *position, address, bytes);
  bool writable = readable;
  for (const HostRange& range : ranges) {
    if (address < range.begin || address + bytes > range.end) continue;
    readable = true;
    writable |= range.writable;
  }
  if (!readable) {
    throw kernel_fault(
        *launch, *position, "debug-bounds",
        text(verb, " of ", bytes, " bytes out of bounds, at ", place(ranges, address, bytes)));
  }
  if (store && !writable) {
    throw kernel_fault(
        *launch, *position, "debug-readonly",
        text("store of ", bytes, " bytes to an input, at ", place(ranges, address, bytes)));
  }
  if (align > 1 && reinterpret_cast<uintptr_t>(address) % static_cast<uintptr_t>(align) != 0) {
    throw kernel_fault(*launch, *position, "debug-align",
                       text(verb, " of ", bytes, " bytes expects alignment to ", align,
                            ", got address ", pointer, ", at ", place(ranges, address, bytes)));
  }
}

void check_index(const HostLaunch* launch, const HostPosition* position, int64_t index,
                 int64_t size, int32_t number) {
  if (index >= -size && index < size) return;
  const std::span<const std::string> names = state_of(*launch).options->checked;
  const IndexStatus status{1, number, index, size};
  if (static_cast<size_t>(number) >= names.size())
    throw kernel_fault(*launch, *position, "index-range-1", index_message(status));
  throw index_fault(status, names);
}

}  // namespace fuser::host
