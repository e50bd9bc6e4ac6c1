// Blocks of a cluster, sm_90 and newer. The host twins are members of HostFiber (host_cuda.h).
//
// A block's shared memory exists from its start to its end. So before the first access to another
// block's memory stands a barrier of the cluster, which all blocks have then reached, and after the
// last such access another one, before which no block ends. arrive_cluster at the top of a kernel
// and wait_cluster before the first access are that first barrier, its latency hidden.

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
