// Hopper's barriers, bulk copies, clusters and warpgroup MMA as thin inline functions. Addresses are 32-bit shared-memory
// addresses. Nothing here orders an addition.
#pragma once
#include <cuda.h>
#include <stdint.h>
#include "wgmma.cuh"

namespace sametree {

__device__ __forceinline__ uint32_t shared_address(const void *pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ void barrier_init(uint32_t barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void barrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred done;\nwait_loop:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1, 0x989680;\n"
      "@!done bra wait_loop;\n}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}
// As above, for a barrier that another block of the cluster arrives at: its stores are visible afterwards.
__device__ __forceinline__ void barrier_wait_cluster(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred done;\nwait_loop:\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1, 0x989680;\n"
      "@!done bra wait_loop;\n}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}
__device__ __forceinline__ void barrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void barrier_expect(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
// Arrival at a barrier of any block of the cluster. Enough where a stage was read by warpgroup products that have been waited
// for: no access is left to be published, and a release for the cluster would cost a fence of the whole device.
__device__ __forceinline__ void barrier_arrive_remote(uint32_t cluster_address) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(cluster_address) : "memory");
}

__device__ __forceinline__ uint32_t cluster_rank() {
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ __forceinline__ uint32_t map_to_rank(uint32_t address, uint32_t rank) {
  uint32_t mapped;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(address), "r"(rank));
  return mapped;
}
// The first use publishes barriers that were made, which barrier_init_fence has released for the cluster; the others publish
// nothing. So the arrival is relaxed: a release would cost a fence of the whole device.
__device__ __forceinline__ void cluster_arrive() { asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory"); }
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }
// Stores four values into another block of the cluster and counts their bytes at its barrier, which orders them before what
// follows a wait there.
__device__ __forceinline__ void store_cluster(uint32_t address, const float *v, uint32_t barrier) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1,%2,%3,%4}, [%5];" ::"r"(address), "f"(v[0]),
               "f"(v[1]), "f"(v[2]), "f"(v[3]), "r"(barrier)
               : "memory");
}

// A box of a two-dimensional tensor map: x counts elements of the inner dimension, y rows.
__device__ __forceinline__ void tensor_copy(uint32_t shared, const CUtensorMap *map, int x, int y, uint32_t barrier,
                                            uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%2,%3}], [%4], %5;" ::"r"(shared),
      "l"(map), "r"(x), "r"(y), "r"(barrier), "l"(policy)
      : "memory");
}
// A box of a map of blocks [k / 64, rows, 64]: neighbouring blocks of K of the same rows, one after the other in shared memory.
__device__ __forceinline__ void tensor_copy_blocks(uint32_t shared, const CUtensorMap *map, int row, int block, uint32_t barrier,
                                                   uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%2,%3,%4}], [%5], %6;" ::"r"(shared),
      "l"(map), "r"(0), "r"(row), "r"(block), "r"(barrier), "l"(policy)
      : "memory");
}
// A box that every block of `mask` receives at the same place, where it counts at the barrier of the same place.
__device__ __forceinline__ void tensor_copy_multicast(uint32_t shared, const CUtensorMap *map, int x, int y, uint32_t barrier, uint16_t mask) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%2,%3}], [%4], %5;" ::"r"(shared),
      "l"(map), "r"(x), "r"(y), "r"(barrier), "h"(mask)
      : "memory");
}
// The other way: a box of shared memory into global memory; what lies outside the tensor is not written. Copies are committed
// in groups, by the thread that issued them.
__device__ __forceinline__ void tensor_store(const CUtensorMap *map, int x, int y, uint32_t shared) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1,%2}], [%3];" ::"l"(map), "r"(x), "r"(y), "r"(shared)
               : "memory");
}
__device__ __forceinline__ void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// All committed copies have read their source.
__device__ __forceinline__ void bulk_wait_read() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
__device__ __forceinline__ void prefetch_map(const CUtensorMap *map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
__device__ __forceinline__ void bulk_copy(uint32_t shared, const void *global, uint32_t bytes, uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared),
               "l"(global), "r"(bytes), "r"(barrier)
               : "memory");
}
__device__ __forceinline__ void proxy_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Cache policies of `createpolicy.fractional`: weights are read once a step, activations by every block.
constexpr uint64_t EVICT_FIRST = 0x12F0000000000000ull;
constexpr uint64_t EVICT_NORMAL = 0x1000000000000000ull;
constexpr uint64_t EVICT_LAST = 0x14F0000000000000ull;

// Descriptor of a K-major operand in 128-byte swizzle: groups of eight rows are 1024 bytes apart.
__device__ __forceinline__ uint64_t descriptor_k_major(uint32_t address) {
  return static_cast<uint64_t>((address >> 4) & 0x3FFF) | (1ull << 16) | (static_cast<uint64_t>(1024 >> 4) << 32) |
         (1ull << 62);
}
// Descriptor of an MN-major operand in 128-byte swizzle: groups of eight k are 1024 bytes apart, columns of 64 elements
// `column_bytes` apart.
__device__ __forceinline__ uint64_t descriptor_mn_major(uint32_t address, uint32_t column_bytes) {
  return static_cast<uint64_t>((address >> 4) & 0x3FFF) | (static_cast<uint64_t>((column_bytes >> 4) & 0x3FFF) << 16) |
         (static_cast<uint64_t>(1024 >> 4) << 32) | (1ull << 62);
}
// The same operand `units` of 16 bytes further on. Addresses lie in the low 14 bits and do not overflow them.
__device__ __forceinline__ uint64_t descriptor_at(uint64_t descriptor, uint32_t units) {
  return (descriptor & 0xFFFFFFFF00000000ull) | (static_cast<uint32_t>(descriptor) + units);
}
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int PENDING>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

}  // namespace sametree
