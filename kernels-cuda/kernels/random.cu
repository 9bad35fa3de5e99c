// Random weights made where they are used: the values of `kernels-rs/src/random.rs`, in the layout that the linear kernels read.
//
// math     stored[r, c] = offset 0 + spread * u(tensor, index) for the source row of r and c < k; 0 in padding
// shapes   stored [stored_rows, pitch]; the weight's rows are up to three tensors, one after another, each [rows, k]
// tree     none
// launch   any number of blocks of 256 threads; a thread makes vectors of eight elements
// bytes    the weight once, written
// rounding spread * u, then to bf16; u is exact
#include "common.cuh"
#include "scalar.cuh"

using namespace sametree;

namespace {

__device__ __forceinline__ float unit(uint32_t half) {
  return __fmul_rn(static_cast<float>(static_cast<int>(2 * half) - 65535), 1.0f / 65536.0f);
}

__device__ __forceinline__ uint4 block_of(size_t block, unsigned tensor, uint2 seed) {
  return philox(make_uint4(static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), tensor, 1), seed);
}

// offset 0 is added as well: it makes -0 from a product that underflows +0, as on the host.
__device__ __forceinline__ float value(uint32_t half, float spread) { return __fadd_rn(0.0f, __fmul_rn(spread, unit(half))); }

}  // namespace

// `pairs` is 0, or the number of gate rows where gate and up rows are interleaved by eight. Rows below `first_end` are those of
// tensor `first`, rows from there below `second_end` those of `second`, the rest those of `third`.
extern "C" __global__ void __launch_bounds__(256)
    random_weight(uint16_t *stored, unsigned stored_rows, unsigned k, unsigned pitch, unsigned pairs, unsigned seed_low, unsigned seed_high,
                  unsigned first_end, unsigned second_end, unsigned first, unsigned second, unsigned third, float spread) {
  const uint2 seed = make_uint2(seed_low, seed_high);
  let_successor_start();
  wait_for_predecessor();
  const size_t vectors = static_cast<size_t>(stored_rows) * (pitch / 8);
  for (size_t at = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x; at < vectors; at += static_cast<size_t>(gridDim.x) * blockDim.x) {
    const unsigned row = static_cast<unsigned>(at / (pitch / 8)), column = static_cast<unsigned>(at % (pitch / 8)) * 8;
    // Rows 16b..16b+8 are gates 8b.., the next eight their up projections.
    const unsigned pair = row / 16 * 8 + row % 8;
    const unsigned source = pairs == 0 ? row : pair + (row / 8 % 2) * pairs;
    const bool used = pairs == 0 || pair < pairs;
    const unsigned tensor = source < first_end ? first : source < second_end ? second : third;
    const unsigned start = source < first_end ? 0 : source < second_end ? first_end : second_end;
    const size_t index = static_cast<size_t>(source - start) * k + column;
    uint32_t words[4] = {0, 0, 0, 0};
    if (used && column + 8 <= k && index % 8 == 0) {
      const uint4 block = block_of(index / 8, tensor, seed);
      const uint32_t w[4] = {block.x, block.y, block.z, block.w};
#pragma unroll
      for (int i = 0; i < 4; i++) words[i] = pack_bf16(value(w[i] & 0xffff, spread), value(w[i] >> 16, spread));
    } else if (used) {
#pragma unroll
      for (int e = 0; e < 8; e++) {
        if (column + e >= k) break;
        const size_t i = index + e;
        const uint4 block = block_of(i / 8, tensor, seed);
        const uint32_t word = (i & 4 ? (i & 2 ? block.w : block.z) : (i & 2 ? block.y : block.x));
        words[e / 2] |= static_cast<uint32_t>(f32_to_bf16(value(i & 1 ? word >> 16 : word & 0xffff, spread))) << (16 * (e & 1));
      }
    }
    reinterpret_cast<uint4 *>(stored)[at] = make_uint4(words[0], words[1], words[2], words[3]);
  }
}
