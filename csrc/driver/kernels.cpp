#include "driver/kernels.h"

#include <dlfcn.h>

#include <chrono>
#include <future>
#include <map>
#include <mutex>

#include "base/error.h"
#include "base/log.h"
#include "driver/store.h"
#include "host/executor.h"

namespace fuser {
namespace {

// Part of every key: raise it when the meaning of a kernel's arguments changes without its text
// changing.
constexpr std::string_view format_version = "fuser-2";

struct KernelCache {
  std::mutex mutex;  // held for look-ups only
  Toolchain toolchain;
  std::map<std::pair<Digest, int>, std::shared_future<LoadedKernelRef>>
      kernels;  // by key and device
  KernelCounters counters;
  std::unique_ptr<DiskStore> store;
  std::string store_directory_option;
};

// Never destroyed: kernels may be asked for by threads that outlive main().
KernelCache& cache() {
  static auto* instance = new KernelCache;
  return *instance;
}

// The store of the present options; nullptr when switched off. Call with the mutex held.
DiskStore* store_of(KernelCache& c) {
  if (!options().cache) return nullptr;
  if (!c.store || c.store_directory_option != options().cache_dir) {
    c.store_directory_option = options().cache_dir;
    // The old one may be in use by another thread: stores are few and small.
    (void)c.store.release();
    c.store =
        std::make_unique<DiskStore>(store_directory(options().cache_dir), options().cache_mb << 20);
  }
  return c.store.get();
}

// What of a launch is settled when the kernel is loaded: two kernels of one text may differ in it.
std::string launch_key(const KernelText& k) {
  return text(k.shared_bytes, k.shared_grows ? "+ " : " ", k.cluster, " ", k.cooperative);
}

HostKernel find_named(const HostModule& module, const std::string& name) {
  for (uint32_t i = 0; dlsym(module.handle, text("fuser_entry_", i).c_str()); ++i) {
    const HostKernel kernel = find(module, i);
    if (name == kernel.entry->name) return kernel;
  }
  throw Fault(FaultKind::Launch, "host-module", text("the shared object holds no kernel ", name));
}

LoadedKernelRef load(const Target& target, int device, const KernelText& source,
                     const Binary& binary, const HostModule* module, double seconds) {
  auto loaded = std::make_shared<LoadedKernel>();
  loaded->source = source;
  loaded->target = target;
  loaded->registers = binary.registers;
  loaded->local_bytes = binary.local_bytes;
  loaded->build_seconds = seconds;
  if (target.host) {
    loaded->host = find_named(module ? *module : load_host_bytes(binary.payload), source.name);
  } else {
    const int shared =
        source.shared_grows ? cuda_device(device).shared_per_block : source.shared_bytes;
    loaded->cuda = load_kernel(binary.payload, source.name, device, shared, source.cluster);
    loaded->registers = loaded->cuda.registers;
    loaded->local_bytes = loaded->cuda.local_bytes;
  }
  return loaded;
}

}  // namespace

void set_toolchain(Toolchain toolchain) {
  KernelCache& c = cache();
  const std::lock_guard lock(c.mutex);
  c.toolchain = std::move(toolchain);
}

std::vector<LoadedKernelRef> load_kernels(const Target& target, int device,
                                          std::span<const KernelText> texts) {
  KernelCache& c = cache();
  const Toolchain toolchain = [&] {
    const std::lock_guard lock(c.mutex);
    return c.toolchain;
  }();
  FUSER_ASSERT(toolchain.build, "no toolchain is set");
  const std::string fingerprint = toolchain.fingerprint(target);
  const int slot = target.host ? -1 : device;

  struct Job {
    size_t index;
    Digest key;
    std::promise<LoadedKernelRef> promise;
  };
  std::vector<Job> jobs;
  std::vector<std::shared_future<LoadedKernelRef>> futures;
  DiskStore* store = nullptr;
  {
    const std::lock_guard lock(c.mutex);
    store = store_of(c);
    for (size_t i = 0; i < texts.size(); ++i) {
      const Digest key = sha256_of_parts(
          {format_version, texts[i].text, fingerprint, target.host ? "host" : "cuda",
           target.debug ? "debug" : "", text(target.arch), launch_key(texts[i])});
      auto& entry = c.kernels[{key, slot}];
      if (!entry.valid()) {
        jobs.push_back({.index = i, .key = key, .promise = {}});
        entry = jobs.back().promise.get_future().share();
      }
      futures.push_back(entry);
    }
  }

  const auto fail = [&](Job& job, std::exception_ptr error) {
    {
      const std::lock_guard lock(c.mutex);
      c.kernels.erase({job.key, slot});
    }
    job.promise.set_exception(error);
  };
  std::vector<Job*> missing;
  for (Job& job : jobs) {
    const auto binary = store ? store->get(job.key) : std::nullopt;
    if (!binary) {
      missing.push_back(&job);
      continue;
    }
    try {
      LoadedKernelRef kernel = load(target, device, texts[job.index], *binary, nullptr, 0.0);
      {
        const std::lock_guard lock(c.mutex);
        ++c.counters.from_disk;
      }
      job.promise.set_value(std::move(kernel));
    } catch (const std::exception& error) {
      log_line(text("kernel ", texts[job.index].name, " on disk does not load (", error.what(),
                    "); building it again"));
      missing.push_back(&job);
    }
  }
  if (!missing.empty()) {
    std::vector<KernelText> wanted;
    for (const Job* job : missing) wanted.push_back(texts[job->index]);
    try {
      const auto start = std::chrono::steady_clock::now();
      const std::vector<Binary> built = toolchain.build(target, wanted);
      FUSER_ASSERT(built.size() == wanted.size(), "the toolchain built ", built.size(), " of ",
                   wanted.size(), " kernels");
      const double seconds =
          std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      // One module for a host batch: its kernels share their payload.
      std::optional<HostModule> module;
      if (target.host) module = load_host_bytes(built[0].payload);
      for (size_t i = 0; i < missing.size(); ++i) {
        missing[i]->promise.set_value(load(target, device, wanted[i], built[i],
                                           module ? &*module : nullptr,
                                           seconds / static_cast<double>(missing.size())));
        if (store) store->put(missing[i]->key, built[i]);
      }
      const std::lock_guard lock(c.mutex);
      c.counters.compiled += static_cast<int64_t>(missing.size());
      c.counters.compile_seconds += seconds;
    } catch (...) {
      for (Job* job : missing) {
        try {
          fail(*job, std::current_exception());
        } catch (const std::future_error&) {
          // This one was delivered before the failure.
        }
      }
      throw;
    }
  }
  std::vector<LoadedKernelRef> out;
  for (auto& future : futures) {
    if (future.wait_for(std::chrono::seconds(0)) != std::future_status::ready)
      toolchain.while_waiting([&] { future.wait(); });
    out.push_back(future.get());
  }
  return out;
}

KernelCounters kernel_counters() {
  KernelCache& c = cache();
  const std::lock_guard lock(c.mutex);
  return c.counters;
}

void clear_kernels(bool disk) {
  KernelCache& c = cache();
  const std::lock_guard lock(c.mutex);
  // Those under way stay known, so that they are not compiled twice.
  for (auto it = c.kernels.begin(); it != c.kernels.end();)
    it = it->second.wait_for(std::chrono::seconds(0)) == std::future_status::ready
             ? c.kernels.erase(it)
             : std::next(it);
  c.counters = {};
  if (DiskStore* store = disk ? store_of(c) : nullptr) store->clear();
}

}  // namespace fuser
