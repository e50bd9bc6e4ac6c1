#include "base/processor.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <fstream>
#include <thread>

#include "base/error.h"

namespace fuser {
namespace {

constexpr std::array<const char*, 4> names = {"generic", "neon", "avx2", "avx512"};

// Cache sizes of a common server, for systems that report no size.
constexpr int default_l1 = 32 << 10, default_l2 = 1 << 20;

Isa widest_isa() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("bmi2");
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512cd");
  return avx2 ? (avx512 ? Isa::Avx512 : Isa::Avx2) : Isa::Generic;
#elif defined(__aarch64__)
  return Isa::Neon;  // part of the architecture
#else
  return Isa::Generic;
#endif
}

int available_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Returns the bytes of the data cache of one level, from Linux; 0 without a report.
int64_t cache_bytes(int level) {
  for (int index = 0; index < 8; ++index) {
    const std::string folder = text("/sys/devices/system/cpu/cpu0/cache/index", index, "/");
    if (first_line(folder + "level") != std::to_string(level)) continue;
    if (first_line(folder + "type") == "Instruction") continue;
    const std::string size = first_line(folder + "size");  // "1024K"
    int64_t bytes = 0;
    for (char c : size)
      if (std::isdigit(static_cast<unsigned char>(c))) bytes = 10 * bytes + (c - '0');
    return size.ends_with('M') ? bytes << 20 : bytes << 10;
  }
  return 0;
}

// Returns the name that the CPU gives itself, without repeated spaces.
std::string model_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (!line.starts_with("model name") || colon == line.npos) continue;
    std::string name = line.substr(colon + 2);
    const auto both_spaces = [](char a, char b) { return a == ' ' && b == ' '; };
    name.erase(std::unique(name.begin(), name.end(), both_spaces), name.end());
    while (name.ends_with(' ')) name.pop_back();
    return name;
  }
  return "CPU";
}

Processor detect() {
  Processor found;
  found.name = model_name();
  found.isa = widest_isa();
  found.cores = available_cores();
  const auto level = [](int number, int64_t otherwise) {
    const int64_t bytes = cache_bytes(number);
    return bytes > 0 ? bytes : otherwise;
  };
  found.l1_bytes = static_cast<int>(level(1, default_l1));
  found.l2_bytes = static_cast<int>(level(2, default_l2));
  found.l3_bytes = level(3, found.l2_bytes);
  return found;
}

}  // namespace

const char* to_string(Isa isa) { return names[static_cast<size_t>(isa)]; }

Isa isa_named(std::string_view name) {
  const auto found = std::find(names.begin(), names.end(), name);
  FUSER_CHECK(found != names.end(), User, "cpu-isa-1", "unknown instruction set ", name,
              "; expected one of ", joined(names));
  return static_cast<Isa>(found - names.begin());
}

int simd_bytes(Isa isa) {
  constexpr std::array<int, 4> bytes = {16, 16, 32, 64};
  return bytes[static_cast<size_t>(isa)];
}

const Processor& processor() {
  static const Processor* const found = new Processor(detect());
  return *found;
}

bool can_run(Isa isa) {
  const Isa own = processor().isa;
  if (isa == Isa::Generic || isa == own) return true;
  return isa == Isa::Avx2 && own == Isa::Avx512;
}

}  // namespace fuser
