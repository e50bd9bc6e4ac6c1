// The CPU of this process: its instruction set and caches, found from its features.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace fuser {

// Instruction set of CPU kernels. On x86: x86-64-v1 (Generic), v3 and v4.
enum class Isa : uint8_t { Generic, Neon, Avx2, Avx512 };

const char* to_string(Isa isa);  // "generic", "neon", "avx2", "avx512"
// Returns the instruction set of this name. Raises User "cpu-isa-1" for an unknown name.
Isa isa_named(std::string_view name);
// Returns the bytes of a vector register.
int simd_bytes(Isa isa);

struct Processor {
  std::string name;                // "AMD EPYC"
  Isa isa{};                       // widest instruction set of the CPU that kernels may use
  int cores = 1;                   // CPU cores that this process may use
  int l1_bytes = 0, l2_bytes = 0;  // data caches of one core
  int64_t l3_bytes = 0;            // last-level cache, shared by all cores; l2_bytes without one
};

// Returns the properties of this CPU, found at the first call.
const Processor& processor();
// Returns whether this CPU can run kernels of an instruction set.
bool can_run(Isa isa);

}  // namespace fuser
