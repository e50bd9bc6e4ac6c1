#include "host/fiber.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <mutex>
#include <vector>

#include "base/error.h"

namespace fuser::host {

#ifdef FUSER_FIBER_UCONTEXT

namespace {

// makecontext passes only ints, so the address is passed as two halves.
void enter(unsigned high, unsigned low) {
  auto* context = reinterpret_cast<Context*>((uint64_t{high} << 32) | low);
  context->entry(context->argument);
}

}  // namespace

void start_context(Context& context, char* low, size_t bytes, void (*entry)(void*),
                   void* argument) {
  FUSER_ASSERT(getcontext(&context.machine) == 0, "getcontext failed");
  context.machine.uc_stack.ss_sp = low;
  context.machine.uc_stack.ss_size = bytes;
  context.machine.uc_link = nullptr;
  context.entry = entry;
  context.argument = argument;
  const auto address = reinterpret_cast<uint64_t>(&context);
  makecontext(&context.machine, reinterpret_cast<void (*)()>(enter), 2,
              static_cast<unsigned>(address >> 32), static_cast<unsigned>(address));
}

void switch_context(Context& from, Context& to) { swapcontext(&from.machine, &to.machine); }

#else

extern "C" void fuser_start_context();

#if defined(__x86_64__)

// Saved state, from the stack pointer up: mxcsr and x87 control, r15 r14 r13 r12 rbx rbp, return
// address. The control words are loaded only if they differ from the current ones, because loading
// them costs more than the rest of the switch. `ret` instead of a jump: all fibers of a block
// suspend in the same calls, so the return predictor stays correct.
asm(R"(
.text
.p2align 4
.globl fuser_switch_context
.hidden fuser_switch_context
.type fuser_switch_context, @function
fuser_switch_context:
  .cfi_startproc
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  subq $8, %rsp
  stmxcsr (%rsp)
  fnstcw 4(%rsp)
  movl (%rsp), %eax
  movzwl 4(%rsp), %ecx
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  cmpl %eax, (%rsp)
  je 1f
  ldmxcsr (%rsp)
1:
  cmpw %cx, 4(%rsp)
  je 2f
  fldcw 4(%rsp)
2:
  addq $8, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .cfi_endproc
.size fuser_switch_context, .-fuser_switch_context

.globl fuser_start_context
.hidden fuser_start_context
.type fuser_start_context, @function
fuser_start_context:
  .cfi_startproc
  .cfi_undefined rip
  movq %r12, %rdi
  callq *%r13
  ud2
  .cfi_endproc
.size fuser_start_context, .-fuser_start_context
)");

void start_context(Context& context, char* low, size_t bytes, void (*entry)(void*),
                   void* argument) {
  uint32_t vector_control;
  uint16_t x87_control;
  asm volatile("stmxcsr %0" : "=m"(vector_control));
  asm volatile("fnstcw %0" : "=m"(x87_control));
  const uintptr_t top = (reinterpret_cast<uintptr_t>(low) + bytes) & ~uintptr_t{15};
  auto* frame = reinterpret_cast<uint64_t*>(top) - 8;  // the start routine begins at `top`, aligned
  std::memset(frame, 0, 8 * sizeof(uint64_t));
  frame[0] = vector_control | (uint64_t{x87_control} << 32);
  frame[3] = reinterpret_cast<uint64_t>(entry);     // r13
  frame[4] = reinterpret_cast<uint64_t>(argument);  // r12
  frame[7] = reinterpret_cast<uint64_t>(&fuser_start_context);
  context.stack_pointer = frame;
}

#else  // __aarch64__

// Saved state, from the stack pointer up: x19..x30, d8..d15, fpcr.
asm(R"(
.text
.p2align 4
.globl fuser_switch_context
.hidden fuser_switch_context
.type fuser_switch_context, %function
fuser_switch_context:
  .cfi_startproc
  sub sp, sp, #176
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mrs x9, fpcr
  str x9, [sp, #160]
  mov x10, sp
  str x10, [x0]
  mov sp, x1
  ldr x10, [sp, #160]
  cmp x9, x10
  b.eq 1f
  msr fpcr, x10
1:
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #176
  ret
  .cfi_endproc
.size fuser_switch_context, .-fuser_switch_context

.globl fuser_start_context
.hidden fuser_start_context
.type fuser_start_context, %function
fuser_start_context:
  .cfi_startproc
  .cfi_undefined x30
  mov x0, x19
  blr x20
  brk #1
  .cfi_endproc
.size fuser_start_context, .-fuser_start_context
)");

void start_context(Context& context, char* low, size_t bytes, void (*entry)(void*),
                   void* argument) {
  uint64_t control;
  asm volatile("mrs %0, fpcr" : "=r"(control));
  const uintptr_t top = (reinterpret_cast<uintptr_t>(low) + bytes) & ~uintptr_t{15};
  auto* frame = reinterpret_cast<uint64_t*>(top) - 22;
  std::memset(frame, 0, 22 * sizeof(uint64_t));
  frame[0] = reinterpret_cast<uint64_t>(argument);               // x19
  frame[1] = reinterpret_cast<uint64_t>(entry);                  // x20
  frame[11] = reinterpret_cast<uint64_t>(&fuser_start_context);  // x30
  frame[20] = control;
  context.stack_pointer = frame;
}

#endif
#endif

namespace {

// Bytes by which stacks are staggered (colours). Without it, equal page offsets of all stack tops
// would map to a few cache sets.
constexpr size_t kColours = 32;
constexpr size_t kColourBytes = 128;
constexpr size_t kIdleSets = 8;

struct StackCache {
  std::mutex mutex;
  std::vector<StackSet> idle;
};

// Returns the cache. It is leaked, and replaced in a forked child, where the lock may be held by a
// thread that does not exist.
StackCache* cache() {
  static StackCache* current = nullptr;
  static const int registered = [] {
    current = new StackCache;
    return pthread_atfork(nullptr, nullptr, [] { current = new StackCache; });
  }();
  (void)registered;
  return current;
}

size_t page_bytes() {
  static const size_t bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

void unmap(const StackSet& set) { munmap(set.base, set.count * set.pitch); }

}  // namespace

StackSpan stack_at(const StackSet& set, size_t index) {
  char* low = set.base + index * set.pitch + page_bytes();
  const size_t top = set.pitch - page_bytes() - index % kColours * kColourBytes;
  return {low, top};
}

StackSet acquire_stacks(size_t count, size_t usable) {
  StackCache& stacks = *cache();
  {
    std::lock_guard lock(stacks.mutex);
    for (StackSet& idle : stacks.idle) {
      if (idle.usable != usable || idle.count < count) continue;
      const StackSet found = idle;
      idle = stacks.idle.back();
      stacks.idle.pop_back();
      return found;
    }
  }
  const size_t page = page_bytes();
  const size_t body = (usable + kColours * kColourBytes + page - 1) / page * page;
  StackSet set{nullptr, count, usable, body + page};
  void* base = mmap(nullptr, count * set.pitch, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  const char* hint =
      "hint: use fewer concurrent blocks, smaller stacks, or a higher vm.max_map_count";
  FUSER_CHECK(base != MAP_FAILED, Launch, "host-stacks", "host executor: cannot allocate ", count,
              " stacks of ", usable, " bytes; ", hint);
  set.base = static_cast<char*>(base);
  for (size_t i = 0; i < count; ++i) {
    if (mprotect(set.base + i * set.pitch, page, PROT_NONE) == 0) continue;
    unmap(set);
    throw Fault(FaultKind::Launch, "host-stacks",
                text("host executor: guard page ", i, " of ", count, " refused; ", hint));
  }
  return set;
}

void release_stacks(const StackSet& set) {
  StackCache& stacks = *cache();
  StackSet oldest = set;
  {
    std::lock_guard lock(stacks.mutex);
    stacks.idle.push_back(set);
    if (stacks.idle.size() <= kIdleSets) return;
    oldest = stacks.idle.front();
    stacks.idle.erase(stacks.idle.begin());
  }
  unmap(oldest);
}

}  // namespace fuser::host
