// Scalar arithmetic of the trees, warp-level MMA and dependent launch, for every architecture. Each rounding is written:
// the build forbids contraction, and no approximate instruction is used.
#pragma once
#include <cuda_bf16.h>
#include <stdint.h>
#include "params.h"

namespace sametree {

using bf16 = __nv_bfloat16;

__device__ __forceinline__ float bf16_to_f32(uint16_t bits) { return __uint_as_float(static_cast<uint32_t>(bits) << 16); }
// Round to nearest even; NaN becomes 0x7fff.
__device__ __forceinline__ uint16_t f32_to_bf16(float value) { return __bfloat16_as_ushort(__float2bfloat16_rn(value)); }
// Two at once, `low` in the low half.
__device__ __forceinline__ uint32_t pack_bf16(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}
__device__ __forceinline__ float low_f32(uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float high_f32(uint32_t pair) { return __uint_as_float(pair & 0xffff0000u); }

// Waits until the kernels before this one in the stream are complete and their stores visible. Every kernel calls it
// before it touches memory that another kernel writes.
__device__ __forceinline__ void wait_for_predecessor() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ __forceinline__ void let_successor_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

__device__ __forceinline__ void load_matrix_x4(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void load_matrix_x4_trans(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}
// d (16 x 8) += a (16 x 16) · b (16 x 8): one k16 step of the tree.
__device__ __forceinline__ void mma_k16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void copy_async_16(uint32_t shared, const void *global, bool valid) {
  const uint32_t bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global), "r"(bytes) : "memory");
}
__device__ __forceinline__ void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int PENDING>
__device__ __forceinline__ void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

// Exchanges four 32-bit items among the four threads of a quad: item u of thread t becomes item t of thread u.
__device__ __forceinline__ void transpose_quad(uint32_t (&v)[4], int t) {
  const bool odd = t & 1, high = t & 2;
  uint32_t a = __shfl_xor_sync(~0u, odd ? v[0] : v[1], 1), b = __shfl_xor_sync(~0u, odd ? v[2] : v[3], 1);
  if (odd)
    v[0] = a, v[2] = b;
  else
    v[1] = a, v[3] = b;
  a = __shfl_xor_sync(~0u, high ? v[0] : v[2], 2), b = __shfl_xor_sync(~0u, high ? v[1] : v[3], 2);
  if (high)
    v[0] = a, v[1] = b;
  else
    v[2] = a, v[3] = b;
}

}  // namespace sametree
