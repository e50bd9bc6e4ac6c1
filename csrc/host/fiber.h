// Contexts with their own stacks, switched in user space. A switch saves only callee-saved
// registers and the floating-point control words. swapcontext would make a system call for the
// signal mask. x86-64 and aarch64 have their own switch; other machines, and FUSER_FIBER_UCONTEXT,
// use ucontext.
//
// A context must be resumed on the operating-system thread that started it, because compilers cache
// thread-local addresses.
#pragma once

#include <cstddef>

#if !defined(FUSER_FIBER_UCONTEXT) && !defined(__x86_64__) && !defined(__aarch64__)
#define FUSER_FIBER_UCONTEXT 1
#endif

#ifdef FUSER_FIBER_UCONTEXT
#include <ucontext.h>
#endif

namespace fuser::host {

struct Context {
#ifdef FUSER_FIBER_UCONTEXT
  ucontext_t machine;
  void (*entry)(void*);
  void* argument;
#else
  void* stack_pointer = nullptr;
#endif
};

// Makes `context` start in entry(argument) on the stack [low, low + bytes) at the first switch to
// it. entry must not return: its last action is a switch to another context.
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

// `count` stacks of at least `usable` bytes each in one mapping, with a guard page below each
// stack.
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

// Takes stacks from a free list shared by all threads, or maps new ones; release_stacks() returns
// them. Raises Launch "host-stacks" if no address space is left.
StackSet acquire_stacks(size_t count, size_t usable);
void release_stacks(const StackSet& set);

}  // namespace fuser::host
