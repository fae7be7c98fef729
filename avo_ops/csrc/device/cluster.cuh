// Rows that several blocks share: a cluster of blocks, which reach each other's shared memory (sm_90 and later).
#pragma once

#include "types.cuh"

namespace avo {

// How many blocks share a row of T threads.
template <int T, int kBlock> constexpr int kBlocksOfRow = T > kBlock ? T / kBlock : 1;

#ifdef AVO_EMULATOR
AVO_INLINE int cluster_rank() { return emulator::cluster_rank(); }
AVO_INLINE void cluster_barrier(AVO_SITE) { emulator::engine().cluster_barrier({file, line}); }
AVO_INLINE void cluster_arrive() {}
AVO_INLINE void cluster_wait(AVO_SITE) { emulator::engine().cluster_barrier({file, line}); }
template <class C> AVO_INLINE void store_in_cluster(C *own, int block, C value, AVO_SITE) {
  *static_cast<C *>(emulator::engine().in_cluster(own, block, {file, line})) = value;
}
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
// The number of this block in its cluster.
AVO_INLINE int cluster_rank() {
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return int(rank);
}

// Waits for all threads of the cluster; what they wrote before is visible after.
AVO_INLINE void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// The two halves of a barrier before which nothing was written.
AVO_INLINE void cluster_arrive() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
AVO_INLINE void cluster_wait() { asm volatile("barrier.cluster.wait.aligned;" ::: "memory"); }

// Write to the copy of a shared variable that another block of the cluster has.
AVO_INLINE uint32_t address_in_cluster(const void *own, int block) {
  const uint32_t local = uint32_t(__cvta_generic_to_shared(own));
  uint32_t remote;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(local), "r"(block));
  return remote;
}
AVO_INLINE void store_in_cluster(float *own, int block, float value) {
  asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(address_in_cluster(own, block)), "f"(value) : "memory");
}
AVO_INLINE void store_in_cluster(double *own, int block, double value) {
  asm volatile("st.shared::cluster.f64 [%0], %1;" ::"r"(address_in_cluster(own, block)), "d"(value) : "memory");
}
AVO_INLINE void store_in_cluster(int64_t *own, int block, int64_t value) {
  asm volatile("st.shared::cluster.s64 [%0], %1;" ::"r"(address_in_cluster(own, block)), "l"(value) : "memory");
}
#else
// Never launched here: the plan asks for sm_90.
AVO_INLINE int cluster_rank() { return 0; }
AVO_INLINE void cluster_barrier() {}
AVO_INLINE void cluster_arrive() {}
AVO_INLINE void cluster_wait() {}
template <class C> AVO_INLINE void store_in_cluster(C *own, int, C value) { *own = value; }
#endif

// The number of this thread among the T threads of its row.
template <int T, int kBlock> AVO_INLINE int thread_of_row() {
  if constexpr (kBlocksOfRow<T, kBlock> > 1) return cluster_rank() * kBlock + int(threadIdx.x);
  return T == kBlock ? int(threadIdx.x) : int(threadIdx.x % T);
}

// The rows of a block, or of the blocks that share one: kRows from `first` on, and again each `step` rows further. The
// calling thread's is number `own` of them.
//
// A kernel with kAhead is persistent: few blocks, of many rows each, that keep the operands of the columns and load
// the next row before they treat a row.
template <int T, int kBlock> struct BlockRows {
  static constexpr int kBlocks = kBlocksOfRow<T, kBlock>, kRows = kBlocks > 1 ? 1 : kBlock / T;

  int64_t step, first;
  int own;
  int64_t block; // among those of the grid that share no row

  AVO_INLINE BlockRows(unsigned block_index, unsigned blocks)
      : step(int64_t(blocks / kBlocks) * kRows), first(int64_t(block_index / kBlocks) * kRows),
        own(int(threadIdx.x) / T), block(block_index / kBlocks) {}
};

// Blocks of a row may write to each other's memory once all have begun: each announces that it has, and waits for the
// others when it has loaded its part of the first row.
template <int T, int kBlock> AVO_INLINE void announce_row() {
  if constexpr (kBlocksOfRow<T, kBlock> > 1) cluster_arrive();
}
template <int T, int kBlock> AVO_INLINE void await_row() {
  if constexpr (kBlocksOfRow<T, kBlock> > 1) cluster_wait();
}

} // namespace avo
