// Contexts with stacks of their own, switched in user space: a switch costs a few nanoseconds,
// because nothing but callee-saved registers and the floating-point control words moves
// (swapcontext makes a system call for the signal mask). x86-64 and aarch64 have their own switch;
// others, and FUSER_FIBER_UCONTEXT, use ucontext.
//
// A context must be resumed on the operating-system thread that started it: compilers cache
// thread-local addresses.
#pragma once

#include <cstddef>

#if !defined(FUSER_FIBER_UCONTEXT) && !defined(__x86_64__) && !defined(__aarch64__)
#define FUSER_FIBER_UCONTEXT 1
#endif

#ifdef FUSER_FIBER_UCONTEXT
#include <ucontext.h>
#endif

namespace fuser {

struct Context {
#ifdef FUSER_FIBER_UCONTEXT
  ucontext_t machine;
  void (*entry)(void*);
  void* argument;
#else
  void* stack_pointer = nullptr;
#endif
};

// Makes `context` start in entry(argument) on the stack [low, low + bytes) when first switched to.
// entry must not return: it switches away for the last time instead.
void start_context(Context& context, char* low, size_t bytes, void (*entry)(void*), void* argument);

// Saves the running context into `from` and resumes `to`.
#ifdef FUSER_FIBER_UCONTEXT
void switch_context(Context& from, Context& to);
#else
extern "C" void fuser_switch_context(void** from, void* to);
inline void switch_context(Context& from, Context& to) {
  fuser_switch_context(&from.stack_pointer, to.stack_pointer);
}
#endif

// `count` stacks of at least `usable` bytes each in one mapping, a guard page below each one.
struct StackSet {
  char* base = nullptr;
  size_t count = 0;
  size_t usable = 0;
  size_t pitch = 0;
};

struct StackSpan {
  char* low;
  size_t bytes;
};

StackSpan stack_at(const StackSet& set, size_t index);

// Stacks come from a free list shared by all threads and go back to it. Raises Launch "host-stacks"
// when the system gives no more address space.
StackSet acquire_stacks(size_t count, size_t usable);
void release_stacks(const StackSet& set);

}  // namespace fuser
