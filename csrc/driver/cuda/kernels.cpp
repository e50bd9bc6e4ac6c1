#include "driver/cuda/kernels.h"

#include <dlfcn.h>
#include <pthread.h>

#include <chrono>
#include <future>
#include <map>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "driver/cache/host_lock.h"
#include "driver/cache/store.h"

namespace fuser::driver {

using namespace codegen;
using namespace host;

namespace {

// Part of every key: increment it if the meaning of a kernel's arguments changes without a change
// of its text.
constexpr std::string_view format_version = "fuser-3";

// Maximum time to wait for kernels that another process of this host is building.
constexpr std::chrono::seconds build_patience(300);
// Time between two looks at the lock of another process.
constexpr std::chrono::milliseconds build_poll(10);

struct KernelCache {
  std::mutex mutex;  // held for look-ups only
  Toolchain toolchain;
  std::map<std::pair<Digest, int>, std::shared_future<LoadedKernelRef>>
      kernels;  // by key and device
  KernelCounters counters;
  std::unique_ptr<DiskStore> store;
  std::pair<std::string, int64_t> store_options;  // directory and capacity that it was made for
};

// Returns the cache. It is never destroyed, because threads that outlive main() may use it. A
// forked child drops the unfinished kernels, because it has no threads that would finish them.
KernelCache& cache() {
  static KernelCache* const instance = [] {
    static auto* const made = new KernelCache;
    pthread_atfork([] { made->mutex.lock(); }, [] { made->mutex.unlock(); },
                   [] {
                     std::erase_if(made->kernels, [](const auto& item) {
                       return item.second.wait_for(std::chrono::seconds(0)) !=
                              std::future_status::ready;
                     });
                     made->mutex.unlock();
                   });
    return made;
  }();
  return *instance;
}

// Returns the store for the current options; nullptr if it is disabled. Requires the mutex.
DiskStore* store_of(KernelCache& c) {
  if (!options().cache) return nullptr;
  const std::pair<std::string, int64_t> wanted{options().cache_dir, options().cache_mb};
  if (!c.store || c.store_options != wanted) {
    c.store_options = wanted;
    // Leak the old store: another thread may use it, and stores are few and small.
    (void)c.store.release();
    c.store = std::make_unique<DiskStore>(store_directory(wanted.first), wanted.second << 20);
  }
  return c.store.get();
}

// Returns the launch attributes that are fixed when the kernel is loaded. Two kernels of one text
// may differ in them.
std::string launch_key(const KernelText& k) {
  return text(k.shared_bytes, k.shared_grows ? "+ " : " ", k.cluster, " ", k.cooperative);
}

// Returns all fields of a target as text.
std::string key_of(const Target& target) {
  constexpr const char* kinds[] = {"cuda", "host", "cpu"};
  return text(kinds[static_cast<size_t>(target.kind)], " ", target.arch, " ", to_string(target.isa),
              target.debug ? " debug" : "");
}

HostKernel find_named(const HostModule& module, const std::string& name) {
  for (uint32_t i = 0; dlsym(module.handle, text("fuser_entry_", i).c_str()); ++i) {
    const HostKernel kernel = find(module, i);
    if (name == kernel.entry->name) return kernel;
  }
  throw Fault(FaultKind::Launch, "host-module", text("the shared object has no kernel ", name));
}

LoadedKernelRef load(const Target& target, int device, const KernelText& source,
                     const Binary& binary, const HostModule* module, double seconds) {
  auto loaded = std::make_shared<LoadedKernel>();
  loaded->source = renamed(source, binary.name);
  loaded->target = target;
  loaded->registers = binary.registers;
  loaded->local_bytes = binary.local_bytes;
  loaded->build_seconds = seconds;
  if (target.is_host()) {
    loaded->host = find_named(module ? *module : load_host_bytes(binary.payload), binary.name);
  } else {
    const int shared =
        source.shared_grows ? cuda_device(device).shared_per_block : source.shared_bytes;
    loaded->cuda = load_kernel(binary.payload, binary.name, device, shared, source.cluster);
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

namespace {

// A kernel that this caller builds, for itself and for concurrent callers.
struct Job {
  size_t index;  // index of its text
  Digest key;
  std::promise<LoadedKernelRef> promise;
  bool open = true;         // its future has no result yet
  bool unloadable = false;  // its file on disk does not load

  void succeed(LoadedKernelRef kernel) {
    open = false;
    promise.set_value(std::move(kernel));
  }
  void fail(std::exception_ptr error) {
    open = false;
    promise.set_exception(std::move(error));
  }
};

// One call of load_kernels().
struct Loading {
  const Target& target;
  int device;
  std::span<const KernelText> texts;
  Purpose purpose;
  KernelCache& c;
  Toolchain toolchain;
  std::string fingerprint;
  DiskStore* store = nullptr;
  std::vector<Job> jobs;

  int slot() const { return target.is_host() ? -1 : device; }

  std::vector<std::shared_future<LoadedKernelRef>> claim();
  bool from_disk(Job& job);
  void build_once_per_host(std::span<Job* const> missing);
  void build(std::span<Job* const> missing);
  void forget_open_jobs(const std::exception_ptr& error);
};

// Returns a future for each text. A text that no caller is building yet becomes a job of this
// caller.
std::vector<std::shared_future<LoadedKernelRef>> Loading::claim() {
  fingerprint = toolchain.fingerprint(target);
  std::vector<std::shared_future<LoadedKernelRef>> futures;
  const std::lock_guard lock(c.mutex);
  store = store_of(c);
  for (size_t i = 0; i < texts.size(); ++i) {
    // The key does not contain the name: a kernel that was built under another name keeps that
    // name.
    const Digest key = sha256_of_parts(
        {format_version, hex(texts[i].digest), fingerprint, key_of(target), launch_key(texts[i])});
    auto& entry = c.kernels[{key, slot()}];
    if (!entry.valid()) {
      jobs.push_back({.index = i, .key = key, .promise = {}});
      entry = jobs.back().promise.get_future().share();
    }
    futures.push_back(entry);
  }
  return futures;
}

bool Loading::from_disk(Job& job) {
  const auto binary = store ? store->get(job.key) : std::nullopt;
  if (!binary) return false;
  try {
    LoadedKernelRef kernel = load(target, device, texts[job.index], *binary, nullptr, 0.0);
    if (purpose == Purpose::Call) {
      const std::lock_guard lock(c.mutex);
      ++c.counters.from_disk;
    }
    job.succeed(std::move(kernel));
    return true;
  } catch (const std::exception& error) {
    log_line(text("kernel ", texts[job.index].name, " on disk does not load (", error.what(),
                  "); building it again"));
    job.unloadable = true;
    return false;
  }
}

// Builds the kernels that no other process of this host is building. Then loads the kernels of
// other processes from disk, and builds the rest if those failed or could not write. No lock is
// held while waiting, so processes with lists in other orders do not block each other.
void Loading::build_once_per_host(std::span<Job* const> missing) {
  if (!store) return build(missing);
  HostLocks locks(store->directory());
  std::vector<Job*> ours, others;
  for (Job* job : missing) (locks.take(job->key) ? ours : others).push_back(job);
  // Another process may have stored a kernel between the first look and the lock.
  std::erase_if(ours, [&](Job* job) { return !job->unloadable && from_disk(*job); });
  if (!ours.empty()) build(ours);
  locks.release();
  if (others.empty()) return;
  toolchain.while_waiting([&] {
    const auto end = std::chrono::steady_clock::now() + build_patience;
    for (const Job* job : others) {
      while (!locks.take(job->key) && std::chrono::steady_clock::now() < end)
        std::this_thread::sleep_for(build_poll);
      locks.release();  // at once: if the kernel is not on disk, then no process waits for another
    }
  });
  std::erase_if(others, [&](Job* job) { return from_disk(*job); });
  if (!others.empty()) build(others);
}

void Loading::build(std::span<Job* const> missing) {
  using Clock = std::chrono::steady_clock;
  std::vector<KernelText> wanted;
  for (const Job* job : missing) wanted.push_back(texts[job->index]);
  const Clock::time_point start = Clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  std::optional<HostModule> module;  // module of a host batch: its kernels share their payload
  int64_t built = 0;
  toolchain.build(target, wanted, [&](size_t index, Toolchain::Outcome outcome) {
    FUSER_ASSERT(index < missing.size() && missing[index]->open, "the toolchain delivered kernel ",
                 index, " of ", missing.size(), " out of order");
    Job& job = *missing[index];
    if (const auto* refusal = std::get_if<std::exception_ptr>(&outcome)) return job.fail(*refusal);
    Binary& binary = std::get<Binary>(outcome);
    binary.name = wanted[index].name;
    if (target.is_host() && !module) module = load_host_bytes(binary.payload);
    const double share = seconds() / static_cast<double>(missing.size());
    job.succeed(load(target, device, wanted[index], binary, module ? &*module : nullptr, share));
    // The compiler may differ from the one that a previous process fingerprinted.
    if (store && toolchain.fingerprint(target) == fingerprint) store->put(job.key, binary);
    ++built;
  });
  for (const Job* job : missing)
    FUSER_ASSERT(!job->open, "the toolchain did not deliver kernel ", texts[job->index].name);
  if (purpose != Purpose::Call) return;
  const std::lock_guard lock(c.mutex);
  c.counters.compiled += built;
  c.counters.compile_seconds += seconds();
}

// Fails unfinished jobs: waiting callers get the error, and later callers try again.
void Loading::forget_open_jobs(const std::exception_ptr& error) {
  for (Job& job : jobs) {
    if (!job.open) continue;
    {
      const std::lock_guard lock(c.mutex);
      c.kernels.erase({job.key, slot()});
    }
    job.fail(error);
  }
}

std::vector<LoadedKernelRef> load_for(const Target& target, int device,
                                      std::span<const KernelText> texts, Purpose purpose) {
  KernelCache& c = cache();
  Loading loading{.target = target,
                  .device = device,
                  .texts = texts,
                  .purpose = purpose,
                  .c = c,
                  .toolchain = {},
                  .fingerprint = {},
                  .jobs = {}};
  {
    const std::lock_guard lock(c.mutex);
    loading.toolchain = c.toolchain;
  }
  FUSER_ASSERT(loading.toolchain.build, "no toolchain is set");
  const auto futures = loading.claim();
  try {
    std::vector<Job*> missing;
    for (Job& job : loading.jobs)
      if (!loading.from_disk(job)) missing.push_back(&job);
    if (!missing.empty()) loading.build_once_per_host(missing);
  } catch (...) {
    loading.forget_open_jobs(std::current_exception());
    throw;
  }
  std::vector<LoadedKernelRef> out;
  for (const auto& future : futures) {
    if (future.wait_for(std::chrono::seconds(0)) != std::future_status::ready)
      loading.toolchain.while_waiting([&] { future.wait(); });
    out.push_back(future.get());
  }
  return out;
}

}  // namespace

std::vector<LoadedKernelRef> load_kernels(int device, std::span<const KernelText> texts,
                                          Purpose purpose) {
  std::vector<LoadedKernelRef> out(texts.size());
  std::vector<bool> done(texts.size(), false);
  for (size_t first = 0; first < texts.size(); ++first) {
    if (done[first]) continue;
    const Target target = target_of(device, texts[first]);
    std::vector<size_t> indices;
    std::vector<KernelText> same;
    for (size_t i = first; i < texts.size(); ++i) {
      if (done[i] || target_of(device, texts[i]) != target) continue;
      done[i] = true;
      indices.push_back(i);
      same.push_back(texts[i]);
    }
    std::vector<LoadedKernelRef> loaded = load_for(target, device, same, purpose);
    for (size_t k = 0; k < indices.size(); ++k) out[indices[k]] = std::move(loaded[k]);
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
  // Unfinished kernels stay known, so that they are not compiled twice.
  for (auto it = c.kernels.begin(); it != c.kernels.end();)
    it = it->second.wait_for(std::chrono::seconds(0)) == std::future_status::ready
             ? c.kernels.erase(it)
             : std::next(it);
  c.counters = {};
  if (DiskStore* store = disk ? store_of(c) : nullptr) store->clear();
}

}  // namespace fuser::driver
