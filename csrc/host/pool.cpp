#include "host/pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <vector>

namespace fuser::host {
namespace {

constexpr size_t kWorkerStackBytes = 16 << 20;  // plain kernels keep their register arrays on this
                                                // stack
// Time for which a thread without work spins before it sleeps: the gap between two kernels of a
// program. A sleeping thread wakes in 5 to 50 us.
constexpr std::chrono::microseconds kSpinTime{50};
// Beginning of that time, in which the thread does not offer its core to other threads, because a
// system call takes as long as the gap.
constexpr std::chrono::microseconds kBusyTime{5};

constexpr size_t kMostSegments = 64;
constexpr uint64_t kChunksPerSegment = 8;  // balance cores of unequal speed

// A range that one thread runs from its start, chunk by chunk. Equal jobs have equal segments, so a
// core finds in its caches what it stored for the previous kernel. Threads that finish early help.
struct alignas(64) Segment {
  std::atomic<uint64_t> next{0};
  uint64_t end = 0;
};

struct Job {
  void (*run)(void*, uint64_t, uint64_t);
  void* context;
  uint64_t grain;
  size_t segments;
  int seats;                    // workers that may still join; under Pool::mutex
  size_t seat = 1;              // segment of the next worker that joins; under Pool::mutex
  std::atomic<int> working{0};  // workers that joined and have not left
  Segment segment[kMostSegments] = {};
};

struct Pool {
  std::mutex mutex;
  std::vector<Job*> jobs;
  int workers = 0;
  std::atomic<uint32_t> published{0};  // number of jobs so far; sleeping workers wait for a change
  std::atomic<uint32_t> left{0};       // number of times that the last worker left a job
  std::atomic<int> spinning{0}, sleeping{0};  // workers without work
  std::atomic<int> waiting{0};                // callers that sleep until workers leave their jobs
};

void sleep_while(std::atomic<uint32_t>& word, uint32_t value) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT_PRIVATE, value, nullptr);
}

void wake(std::atomic<uint32_t>& word, int threads) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE_PRIVATE, threads);
}

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Returns true as soon as `ready` does, and false after kSpinTime.
template <class Ready>
bool spin_until(const Ready& ready) {
  using Clock = std::chrono::steady_clock;
  constexpr int checks_per_clock = 16;
  if (ready()) return true;
  const Clock::time_point start = Clock::now();
  for (;;) {
    for (int i = 0; i < checks_per_clock; ++i) {
      if (ready()) return true;
      relax();
    }
    const auto spent = Clock::now() - start;
    if (spent > kSpinTime) return false;
    if (spent > kBusyTime) sched_yield();
  }
}

// Runs chunks of all segments, first those of segment `own`.
void run_chunks(Job& job, size_t own) {
  for (size_t i = 0; i < job.segments; ++i) {
    Segment& segment = job.segment[(own + i) % job.segments];
    for (;;) {
      if (segment.next.load(std::memory_order_relaxed) >= segment.end) break;
      const uint64_t begin = segment.next.fetch_add(job.grain, std::memory_order_relaxed);
      if (begin >= segment.end) break;
      job.run(job.context, begin, std::min(begin + job.grain, segment.end));
    }
  }
}

bool has_chunks(const Job& job) {
  return std::any_of(job.segment, job.segment + job.segments, [](const Segment& s) {
    return s.next.load(std::memory_order_relaxed) < s.end;
  });
}

// Takes a seat of a job and returns its segment; nullptr if no job needs a worker.
Job* join_job(Pool& pool, size_t& own) {
  const std::lock_guard lock(pool.mutex);
  for (Job* job : pool.jobs) {
    if (job->seats == 0 || !has_chunks(*job)) continue;
    --job->seats;
    own = job->seat++ % job->segments;
    job->working.fetch_add(1, std::memory_order_relaxed);
    return job;
  }
  return nullptr;
}

// Waits until a job is published after job number `seen`.
void wait_for_job(Pool& pool, uint32_t seen) {
  const auto published = [&] { return pool.published.load(std::memory_order_acquire) != seen; };
  pool.spinning.fetch_add(1);
  const bool found = spin_until(published);
  pool.spinning.fetch_sub(1);
  if (found) return;
  pool.sleeping.fetch_add(1);
  while (!published()) sleep_while(pool.published, seen);
  pool.sleeping.fetch_sub(1);
}

void* worker_main(void* argument) {
  Pool& pool = *static_cast<Pool*>(argument);
  for (;;) {
    const uint32_t seen = pool.published.load(std::memory_order_acquire);
    size_t own = 0;
    Job* const job = join_job(pool, own);
    if (!job) {
      wait_for_job(pool, seen);
      continue;
    }
    run_chunks(*job, own);
    // The job may be gone after the last worker has left.
    if (job->working.fetch_sub(1) != 1) continue;
    pool.left.fetch_add(1);
    if (pool.waiting.load() > 0) wake(pool.left, INT32_MAX);
  }
}

// Waits until all workers have left a job that is no longer listed.
void wait_for_workers(Pool& pool, const Job& job) {
  const auto done = [&] { return job.working.load(std::memory_order_acquire) == 0; };
  if (spin_until(done)) return;
  pool.waiting.fetch_add(1);
  for (;;) {
    const uint32_t left = pool.left.load();
    if (done()) break;
    sleep_while(pool.left, left);
  }
  pool.waiting.fetch_sub(1);
}

// Returns false if the system cannot create another thread. Then the caller does the work.
bool start_worker(Pool& pool) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, kWorkerStackBytes);
  sigset_t all, before;  // signals belong to the program's own threads
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  const bool started = pthread_create(&thread, &attributes, worker_main, &pool) == 0;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&attributes);
  return started;
}

// Returns the pool. It is leaked, and replaced in a forked child, which has the parent's memory but
// not its workers.
Pool* pool_now() {
  static Pool* current = nullptr;
  static const int registered = [] {
    current = new Pool;
    return pthread_atfork(nullptr, nullptr, [] { current = new Pool; });
  }();
  (void)registered;
  return current;
}

// Lists the job and wakes as many workers as it needs beside those that spin.
void publish(Pool& pool, Job& job, int helpers) {
  {
    const std::lock_guard lock(pool.mutex);
    pool.jobs.push_back(&job);
    while (pool.workers < helpers && start_worker(pool)) ++pool.workers;
  }
  pool.published.fetch_add(1);
  const int missing = helpers - pool.spinning.load();
  if (missing > 0 && pool.sleeping.load() > 0) wake(pool.published, missing);
}

}  // namespace

void parallel_for(uint64_t count, int threads,
                  void (*run)(void* context, uint64_t begin, uint64_t end), void* context,
                  Team team) {
  const auto used = static_cast<int>(std::min<uint64_t>(std::max(threads, 1), count));
  if (used <= 1) {
    if (count > 0) run(context, 0, count);
    return;
  }
  Job job{.run = run, .context = context, .grain = 1, .segments = 1, .seats = used - 1};
  job.segments = std::min<size_t>(used, kMostSegments);
  job.grain = std::max<uint64_t>(1, count / job.segments / kChunksPerSegment);
  for (size_t i = 0; i < job.segments; ++i) {
    job.segment[i].next = count * i / job.segments;
    job.segment[i].end = count * (i + 1) / job.segments;
  }
  if (team) {
    const auto run_seat = [](void* job, int seat) {
      Job& of = *static_cast<Job*>(job);
      run_chunks(of, static_cast<size_t>(seat) % of.segments);
    };
    return team(used, run_seat, &job);
  }
  Pool& pool = *pool_now();
  publish(pool, job, used - 1);
  run_chunks(job, 0);
  {
    const std::lock_guard lock(pool.mutex);
    pool.jobs.erase(std::find(pool.jobs.begin(), pool.jobs.end(), &job));
  }
  wait_for_workers(pool, job);
}

}  // namespace fuser::host
