#include "host/pool.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <vector>

namespace fuser {
namespace {

constexpr size_t kWorkerStackBytes = 16 << 20;  // plain kernels keep their register arrays on this
                                                // stack

struct Job {
  uint64_t count;
  uint64_t grain;
  void (*run)(void*, uint64_t, uint64_t);
  void* context;
  int seats;        // workers that may still join; under Pool::mutex
  int working = 0;  // workers that joined; under Pool::mutex
  std::atomic<uint64_t> next{0};
};

struct Pool {
  std::mutex mutex;
  std::condition_variable work;  // a job was added
  std::condition_variable done;  // a worker left a job
  std::vector<Job*> jobs;
  int workers = 0;
};

void run_chunks(Job& job) {
  for (;;) {
    const uint64_t begin = job.next.fetch_add(job.grain, std::memory_order_relaxed);
    if (begin >= job.count) return;
    job.run(job.context, begin, std::min(begin + job.grain, job.count));
  }
}

Job* job_with_seat(Pool& pool) {
  for (Job* job : pool.jobs) {
    if (job->seats > 0 && job->next.load(std::memory_order_relaxed) < job->count) return job;
  }
  return nullptr;
}

void* worker_main(void* argument) {
  Pool& pool = *static_cast<Pool*>(argument);
  std::unique_lock lock(pool.mutex);
  for (;;) {
    Job* job = nullptr;
    pool.work.wait(lock, [&] { return (job = job_with_seat(pool)) != nullptr; });
    --job->seats;
    ++job->working;
    lock.unlock();
    run_chunks(*job);
    lock.lock();
    if (--job->working == 0) pool.done.notify_all();
  }
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

}  // namespace

void parallel_for(uint64_t count, uint64_t grain, int threads,
                  void (*run)(void* context, uint64_t begin, uint64_t end), void* context) {
  grain = std::max<uint64_t>(grain, 1);
  const uint64_t chunks = (count + grain - 1) / grain;
  const int helpers = static_cast<int>(std::min<uint64_t>(std::max(threads, 1), chunks)) - 1;
  Job job{count, grain, run, context, helpers};
  if (helpers <= 0) return run_chunks(job);

  Pool& pool = *pool_now();
  {
    std::lock_guard lock(pool.mutex);
    pool.jobs.push_back(&job);
    while (pool.workers < helpers && start_worker(pool)) ++pool.workers;
  }
  for (int i = 0; i < helpers; ++i) pool.work.notify_one();
  run_chunks(job);
  std::unique_lock lock(pool.mutex);
  pool.jobs.erase(std::find(pool.jobs.begin(), pool.jobs.end(), &job));
  pool.done.wait(lock, [&] { return job.working == 0; });
}

}  // namespace fuser
