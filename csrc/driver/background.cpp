#include "driver/background.h"

#include <pthread.h>
#include <signal.h>

#include <condition_variable>
#include <deque>
#include <mutex>

namespace fuser::driver {
namespace {

constexpr size_t max_jobs = 64;

struct Queue {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> jobs;
  bool started = false, running = false, stopped = false;
};

// Returns the queue. It is leaked, and replaced in a forked child, which has the parent's memory
// but not its thread.
Queue* queue_now() {
  static Queue* current = nullptr;
  static const int registered = [] {
    current = new Queue;
    return pthread_atfork(nullptr, nullptr, [] { current = new Queue; });
  }();
  (void)registered;
  return current;
}

void* work(void* argument) {
  Queue& queue = *static_cast<Queue*>(argument);
  std::unique_lock lock(queue.mutex);
  for (;;) {
    queue.changed.wait(lock, [&] { return !queue.jobs.empty(); });
    std::function<void()> job = std::move(queue.jobs.front());
    queue.jobs.pop_front();
    queue.running = true;
    lock.unlock();
    job();
    job = nullptr;  // destroy the job's captures without the lock
    lock.lock();
    queue.running = false;
    queue.changed.notify_all();
  }
}

// Returns false if the system cannot create a thread.
bool start(Queue& queue) {
  sigset_t all, before;  // signals belong to the program's own threads
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  const bool started = pthread_create(&thread, nullptr, work, &queue) == 0;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (started) pthread_detach(thread);
  return started;
}

}  // namespace

bool run_in_background(std::function<void()> job) {
  Queue& queue = *queue_now();
  const std::lock_guard lock(queue.mutex);
  if (queue.stopped || queue.jobs.size() >= max_jobs) return false;
  if (!queue.started && !(queue.started = start(queue))) return false;
  queue.jobs.push_back(std::move(job));
  queue.changed.notify_all();
  return true;
}

void wait_for_background() {
  Queue& queue = *queue_now();
  std::unique_lock lock(queue.mutex);
  queue.changed.wait(lock, [&] { return queue.jobs.empty() && !queue.running; });
}

void stop_background() {
  Queue& queue = *queue_now();
  std::deque<std::function<void()>> dropped;
  std::unique_lock lock(queue.mutex);
  queue.stopped = true;
  dropped.swap(queue.jobs);
  queue.changed.wait(lock, [&] { return !queue.running; });
}

}  // namespace fuser::driver
