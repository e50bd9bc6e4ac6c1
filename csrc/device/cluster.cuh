// Blocks of a cluster, sm_90 and newer. The host twins are members of HostFiber (host_cuda.h).
//
// A block's shared memory exists from its start to its end. So before the first access to another
// block's memory stands a barrier of the cluster, which all blocks have then reached, and after the
// last such access another one, before which no block ends, or a wait for all that was sent to the
// block. begin_cluster at the top of a kernel and wait_cluster before the first access are that
// first barrier, its latency hidden.
//
// After it blocks send partial results to each other's shared memory and wait for the bytes to
// arrive, as no barrier of the cluster does: one that publishes waits for all stores of a thread
// and for all that it copies ahead, and forgets what L1 holds (MEMBAR.ALL.GPU, CCTL.IVALL).

//@ arrive_cluster
// The first half of a barrier that publishes nothing: it lacks the fence of sync_cluster, which
// waits for all stores of the thread.
#ifndef FUSER_HOST
DEVICE void arrive_cluster() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
#endif

//@ wait_cluster
#ifndef FUSER_HOST
DEVICE void wait_cluster() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
#endif

//@ sync_cluster
// Barrier of the cluster. Every thread of all its blocks arrives.
#ifndef FUSER_HOST
DEVICE void sync_cluster() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
#endif

//@ cluster_size
#ifndef FUSER_HOST
DEVICE i32 cluster_size() {
  u32 size;
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
  return (i32)size;
}
#endif

//@ cluster_rank
// Of this block in its cluster, x fastest.
#ifndef FUSER_HOST
DEVICE i32 cluster_rank() {
  u32 rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return (i32)rank;
}
#endif

//@ map_shared_rank
// The same place of shared memory in the block of that rank of the cluster.
#ifndef FUSER_HOST
template <class T>
DEVICE T* map_shared_rank(T* address, i32 rank) {
  u64 mapped;
  asm("mapa.u64 %0, %1, %2;" : "=l"(mapped) : "l"(address), "r"(rank));
  return (T*)mapped;
}
#endif

//@ begin_cluster
// Makes N places at which the block waits for what others send, and arrives.
#ifdef FUSER_HOST
template <i32 N>
DEVICE void begin_cluster(i64*) {}
#else
template <i32 N>
DEVICE void begin_cluster(i64* arrivals) {
  if (thread_x() == 0) {
    UNROLL for (i32 i = 0; i < N; ++i) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;"
                   :
                   : "r"((u32)__cvta_generic_to_shared(arrivals + i))
                   : "memory");
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  arrive_cluster();
}
#endif

//@ send_
// The value to that place of the block of that rank, whose `arrival` counts the bytes.
#ifndef FUSER_HOST
template <class S>
DEVICE void send_(S* to, S x, i64* arrival, i32 rank) {
  u32 words[(sizeof(S) + 3) / 4] = {};
  memcpy(words, &x, sizeof(S));
  u32 at, counter;
  asm("mapa.shared::cluster.u32 %0, %1, %2;"
      : "=r"(at)
      : "r"((u32)__cvta_generic_to_shared(to)), "r"(rank));
  asm("mapa.shared::cluster.u32 %0, %1, %2;"
      : "=r"(counter)
      : "r"((u32)__cvta_generic_to_shared(arrival)), "r"(rank));
  UNROLL for (i32 i = 0; i < (i32)((sizeof(S) + 3) / 4); ++i) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];"
                 :
                 : "r"(at + 4 * i), "r"(words[i]), "r"(counter)
                 : "memory");
  }
}
#endif

//@ await_cluster
// Until so many bytes have been sent to `arrival`; turn: how often it was waited there before,
// modulo 2. Every thread of all blocks waits, and has sent what it sends.
#ifdef FUSER_HOST
DEVICE void await_cluster(i64*, i32, i32) { sync_cluster(); }
#else
DEVICE void await_cluster(i64* arrival, i32 bytes, i32 turn) {
  const u32 at = (u32)__cvta_generic_to_shared(arrival);
  if (thread_x() == 0) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 :
                 : "r"(at), "r"(bytes)
                 : "memory");
  }
  asm volatile(
      "{\n"
      ".reg .pred there;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 there, [%0], %1;\n"
      "@!there bra again;\n"
      "}"
      :
      : "r"(at), "r"(turn)
      : "memory");
}
#endif
