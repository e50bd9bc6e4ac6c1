// Copies from global to shared memory that run beside the thread: issued, grouped by commit_copies,
// there after wait_copies. A thread waits for its own copies only: others see them after a barrier
// behind that wait. Before sm_80 copies are done at once. The host twins (host_cuda.h) land at the
// wait in debug builds, and the place reads as poison until then.

//@ copy_async
// N elements, 4, 8 or 16 bytes together and aligned to that in both memories; zeros if not `in`,
// when g is not read.
#ifndef FUSER_HOST
template <i32 N, class T>
DEVICE void copy_async(T* s, const T* g, bool in) {
  constexpr i32 bytes = N * (i32)sizeof(T);
  static_assert(bytes == 4 || bytes == 8 || bytes == 16, "a copy moves 4, 8 or 16 bytes");
#if __CUDA_ARCH__ >= 800
  const u32 to = (u32)__cvta_generic_to_shared(s);
  const u64 from = (u64)__cvta_generic_to_global(g);
  const i32 size = in ? bytes : 0;
  if constexpr (bytes == 16) {  // past L1
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :: "r"(to), "l"(from), "r"(size) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
                 :: "r"(to), "l"(from), "n"(bytes), "r"(size) : "memory");
  }
#else
  typedef Access<bytes / 4, u32> Unit;
  Unit unit{};
  if (in) unit = *(const Unit*)g;
  *(Unit*)s = unit;
#endif
}
#endif

//@ commit_copies
// Closes a group: the copies issued since the last commit, which may be none.
#ifndef FUSER_HOST
DEVICE void commit_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
#endif

//@ wait_copies
// Waits until all but the last P groups are there.
#ifndef FUSER_HOST
template <i32 P>
DEVICE void wait_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" :: "n"(P) : "memory");
#endif
}
#endif
