// Single warpgroup products for tests: every width of wgmma, with A in shared memory or in registers.
//
// math     out [64, N] = a [64, k] · b [N, k]ᵀ, one chain of k16 steps from +0
// shapes   k is a multiple of 64 up to 256
// tree     one chain; whichever instruction and operand place realises it must give the soft tensor core's bits
// launch   one block of 128 threads
// shared   a and b in 128-byte swizzle; b by rows of n (K-major) or by rows of k (MN-major, for A in registers)
// bytes    irrelevant
// rounding each k16 step (tensor core)
#include "common.cuh"
#include "sm90.cuh"

using namespace sametree;

namespace {

// Element (row, column) of a matrix whose rows are cut into blocks of 64 elements; blocks are `rows` x 128 bytes apart.
__device__ __forceinline__ uint32_t swizzled(uint32_t base, int rows, int row, int column) {
  const int block = column >> 6, unit = (column >> 3) & 7;
  return base + block * rows * 128 + row * 128 + ((unit ^ (row & 7)) << 4) + (column & 7) * 2;
}
__device__ __forceinline__ void put(uint32_t at, uint16_t value) { asm volatile("st.shared.u16 [%0], %1;" ::"r"(at), "h"(value) : "memory"); }

template <int N, bool REGISTERS>
__device__ __forceinline__ void product(const uint16_t *a, const uint16_t *b, float *out, unsigned k) {
  static_assert(!REGISTERS || N % 64 == 0, "an MN-major operand has columns of 64 elements");
  extern __shared__ uint8_t dynamic_shared[];
  const uint32_t a_shared = (shared_address(dynamic_shared) + 1023) & ~1023u, b_shared = a_shared + 64 * 256 * 2;
  for (unsigned i = threadIdx.x; i < 64 * k; i += 128) put(swizzled(a_shared, 64, i / k, i % k), a[i]);
  for (unsigned i = threadIdx.x; i < N * k; i += 128)
    put(REGISTERS ? swizzled(b_shared, 256, i % k, i / k) : swizzled(b_shared, N, i / k, i % k), b[i]);
  proxy_fence();
  __syncthreads();
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, quad = lane >> 2, t = lane & 3;
  float acc[N / 2];
  for (unsigned step = 0; step < k / 16; step++) {
    wgmma_fence();
    if constexpr (REGISTERS) {
      uint32_t fragment[4];
      for (int i = 0; i < 4; i++)
        fragment[i] = *reinterpret_cast<const uint32_t *>(a + (warp * 16 + quad + (i & 1) * 8) * k + step * 16 + (i >> 1) * 8 + t * 2);
      Wgmma<N>::registers(acc, fragment, descriptor_mn_major(b_shared + step * 16 * 128, 256 * 128), step != 0);
    } else {
      Wgmma<N>::shared(acc, descriptor_k_major(a_shared + (step >> 2) * 64 * 128 + (step & 3) * 32),
                       descriptor_k_major(b_shared + (step >> 2) * N * 128 + (step & 3) * 32), step != 0);
    }
    wgmma_commit();
    wgmma_wait<0>();
  }
#pragma unroll
  for (int i = 0; i < N / 2; i++) {
    const int row = warp * 16 + quad + ((i >> 1) & 1) * 8, column = (i >> 2) * 8 + t * 2 + (i & 1);
    out[row * N + column] = acc[i];
  }
}

}  // namespace

#define INSTRUCTION_VARIANT(NAME, N, REGISTERS)                                                                        \
  extern "C" __global__ void __launch_bounds__(128) NAME(const uint16_t *a, const uint16_t *b, float *out, unsigned k) { \
    product<N, REGISTERS>(a, b, out, k);                                                                               \
  }

INSTRUCTION_VARIANT(wgmma_n8, 8, false)
INSTRUCTION_VARIANT(wgmma_n16, 16, false)
INSTRUCTION_VARIANT(wgmma_n32, 32, false)
INSTRUCTION_VARIANT(wgmma_n48, 48, false)
INSTRUCTION_VARIANT(wgmma_n64, 64, false)
INSTRUCTION_VARIANT(wgmma_n96, 96, false)
INSTRUCTION_VARIANT(wgmma_n112, 112, false)
INSTRUCTION_VARIANT(wgmma_n128, 128, false)
INSTRUCTION_VARIANT(wgmma_n160, 160, false)
INSTRUCTION_VARIANT(wgmma_n192, 192, false)
INSTRUCTION_VARIANT(wgmma_n224, 224, false)
INSTRUCTION_VARIANT(wgmma_n256, 256, false)
INSTRUCTION_VARIANT(wgmma_n64_registers, 64, true)
INSTRUCTION_VARIANT(wgmma_n128_registers, 128, true)
INSTRUCTION_VARIANT(wgmma_n192_registers, 192, true)
INSTRUCTION_VARIANT(wgmma_n256_registers, 256, true)
