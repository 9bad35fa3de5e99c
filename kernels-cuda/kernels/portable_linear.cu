// y = x · Wᵀ on any card from Ampere on: mma.sync and cp.async, any number of chunks.
//
// math     y[m, n] = epilogue(sum over chunks, left to right, of chain(k16 steps of the chunk))
// shapes   x [m, k], W [n_rows, k], y [m, n_out], bfloat16 in, f32 accumulate; rows of x and W are multiples of 8 elements
// tree     LinearTree of reduction-tree; on sm_80 an mma.sync is two fused steps of 8 (arithmetic `sm80`)
// tile     TOKENS tokens by 64 weight rows by 64 of K; four warps of 16 weight rows each
// launch   one block a tile, 128 threads
// shared   three stages of (TOKENS + 64) x 128 bytes
// bytes    W once a token tile, x once a row tile, y once
// rounding each k16 step (tensor core), chunk additions, epilogue (f32), store (bf16 RNE or f32)
#include "linear.cuh"

using namespace sametree;

namespace {

constexpr int ROWS = 64;
constexpr int STAGES = 3;

// Loads `count` rows of one block of 64 elements into swizzled shared memory; rows and columns past the end become zero.
__device__ __forceinline__ void load_rows(uint32_t shared, const uint16_t *source, unsigned pitch, unsigned first_row,
                                          unsigned rows, int count, unsigned first_k, unsigned k) {
  for (int i = threadIdx.x; i < count * 8; i += 128) {
    const int row = i >> 3, unit = i & 7;
    const unsigned at_row = first_row + row, at_k = first_k + unit * 8;
    const bool valid = at_row < rows && at_k < k;
    const uint16_t *from = valid ? source + static_cast<size_t>(at_row) * pitch + at_k : source;
    copy_async_16(shared + row * 128 + ((unit ^ (row & 7)) << 4), from, valid);
  }
}

template <int TOKENS>
__device__ __forceinline__ void linear_portable(const LinearParams &p) {
  static_assert(TOKENS % 16 == 0, "tokens are loaded by pairs of eights");
  constexpr uint32_t X_BYTES = TOKENS * 128, STAGE_BYTES = X_BYTES + ROWS * 128;
  extern __shared__ __align__(128) uint8_t dynamic_shared[];
  const uint32_t ring = static_cast<uint32_t>(__cvta_generic_to_shared(dynamic_shared));
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  const unsigned tile_n = blockIdx.x % p.tiles_n, tile_m = blockIdx.x / p.tiles_n;
  const int blocks = p.k_split * p.chunk_blocks;
  wait_for_predecessor();
  auto load = [&](int block) {
    if (block < blocks) {
      const uint32_t stage = ring + (block % STAGES) * STAGE_BYTES;
      load_rows(stage, p.x, p.x_pitch, tile_m * TOKENS, p.m, TOKENS, block * 64, p.k);
      load_rows(stage + X_BYTES, p.weight, p.weight_pitch, tile_n * ROWS, p.n_rows, ROWS, block * 64, p.k);
    }
    copy_async_commit();
  };
  for (int i = 0; i < STAGES - 1; i++) load(i);
  float acc[TOKENS / 8][4], sum[TOKENS / 8][4];
#pragma unroll
  for (int j = 0; j < TOKENS / 8; j++)
#pragma unroll
    for (int e = 0; e < 4; e++) acc[j][e] = 0.0f, sum[j][e] = 0.0f;
  const int a_row = warp * 16 + (lane & 15), a_half = lane >> 4;
  unsigned in_chunk = 0;
  for (int block = 0; block < blocks; block++) {
    copy_async_wait<STAGES - 2>();
    __syncthreads();
    load(block + STAGES - 1);
    const uint32_t x = ring + (block % STAGES) * STAGE_BYTES, w = x + X_BYTES;
#pragma unroll
    for (int k = 0; k < 4; k++) {
      uint32_t a[4];
      load_matrix_x4(a, w + a_row * 128 + (((k * 2 + a_half) ^ (a_row & 7)) << 4));
#pragma unroll
      for (int j = 0; j < TOKENS / 16; j++) {
        uint32_t b[4];
        const int row = j * 16 + (lane & 7) + ((lane >> 4) << 3), half = (lane >> 3) & 1;
        load_matrix_x4(b, x + row * 128 + (((k * 2 + half) ^ (row & 7)) << 4));
        mma_k16(acc[2 * j], a, b[0], b[1]);
        mma_k16(acc[2 * j + 1], a, b[2], b[3]);
      }
    }
    if (++in_chunk == p.chunk_blocks) {
      in_chunk = 0;
      // Adding the first chunk to +0 is exact: a chain never ends in -0.
#pragma unroll
      for (int j = 0; j < TOKENS / 8; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) sum[j][e] = __fadd_rn(sum[j][e], acc[j][e]), acc[j][e] = 0.0f;
    }
  }
  let_successor_start();
  const unsigned row = tile_n * ROWS + warp * 16 + (lane >> 2);
#pragma unroll
  for (int j = 0; j < TOKENS / 8; j++)
#pragma unroll
    for (int e = 0; e < 2; e++) {
      const unsigned token = tile_m * TOKENS + j * 8 + (lane & 3) * 2 + e;
      if (token >= p.m) continue;
      if (p.epilogue == SAMETREE_EPILOGUE_SILU_MUL) {
        const unsigned column = (tile_n * ROWS + warp * 16) / 2 + (lane >> 2);
        if (column < p.n_out)
          linear_store(p, token, column, linear_epilogue(p, token, column, sum[j][e], sum[j][e + 2]));
      } else {
        if (row < p.n_out) linear_store(p, token, row, linear_epilogue(p, token, row, sum[j][e], 0.0f));
        if (row + 8 < p.n_out) linear_store(p, token, row + 8, linear_epilogue(p, token, row + 8, sum[j][e + 2], 0.0f));
      }
    }
}

}  // namespace

#define PORTABLE_VARIANT(NAME, TOKENS) \
  extern "C" __global__ void __launch_bounds__(128, 3) NAME(const LinearParams p) { linear_portable<TOKENS>(p); }

PORTABLE_VARIANT(linear_portable_t16, 16)
PORTABLE_VARIANT(linear_portable_t64, 64)

// Copies rows of k elements to rows of `pitch` elements, so that 16-byte loads can read them.
extern "C" __global__ void __launch_bounds__(256) pad_rows(const uint16_t *x, uint16_t *out, unsigned rows, unsigned k, unsigned pitch) {
  wait_for_predecessor();
  let_successor_start();
  const size_t total = static_cast<size_t>(rows) * pitch;
  for (size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x; i < total; i += static_cast<size_t>(gridDim.x) * blockDim.x) {
    const size_t row = i / pitch, column = i % pitch;
    out[i] = column < k ? x[row * k + column] : 0;
  }
}
