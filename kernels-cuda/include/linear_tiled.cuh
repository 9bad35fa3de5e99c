// y = x · Wᵀ for many tokens: the tensor cores are what takes the time.
//
// math     y[m, n] = epilogue(sum over chunks, left to right, of chain(k16 steps of the chunk))
// shapes   x [m, k], W [n_rows, k], y [m, n_out], bfloat16 in, f32 accumulate
// tree     LinearTree of reduction-tree, the same as linear_stream.cuh
// tile     128 tokens by COLUMNS weight rows; two warpgroups of 64 tokens each
// launch   persistent, one block a processor, tiles in bands of 8 token tiles so that W stays in L2; one producer thread
// shared   ring of STAGES x (128 + COLUMNS) x 128 bytes; with more than one chunk, PARKED running sums a thread
// bytes    x and W once a tile, mostly from L2; y once
// rounding each k16 step (tensor core), chunk additions, epilogue (f32), store (bf16 RNE or f32)
#pragma once
#include "linear.cuh"
#include "sm90.cuh"

namespace sametree {

template <int COLUMNS, bool CHUNKED, int STAGES, int PARKED>
struct TiledShape {
  static_assert(COLUMNS % 32 == 0, "the store exchanges groups of four blocks of eight columns");
  static_assert(CHUNKED || PARKED == 0, "one chunk needs no running sum");
  static_assert(PARKED % 4 == 0 && PARKED <= COLUMNS / 2, "parked sums move four at a time");
  static constexpr int THREADS = 384;
  static constexpr uint32_t X_BYTES = 128 * 128;
  static constexpr uint32_t STAGE_BYTES = X_BYTES + COLUMNS * 128;
  static constexpr uint32_t SHARED_BYTES = 1024 + STAGES * STAGE_BYTES + 256 + PARKED * 4 * 256;
  static_assert(SHARED_BYTES <= 232448, "a block has at most 227 KiB of shared memory");
};

// What is stored. Bias and residual are chosen at run time; the other tails would double the code of a kernel.
enum class Tail { Bf16, F32, SiluMul };

// Four blocks of eight columns of one token, from `column` on; block u's pair belongs to columns column + 8u + 2t. After the
// exchange each thread stores eight neighbouring columns with one 16-byte access.
__device__ __forceinline__ void finish_blocks(const LinearParams &p, unsigned token, unsigned column, const float2 (&value)[4], int t) {
  const unsigned own = column + t * 8;
  uint32_t v[4];
#pragma unroll
  for (int u = 0; u < 4; u++) v[u] = pack_bf16(value[u].x, value[u].y);
  transpose_quad(v, t);
  if (token < p.m && own < p.n_out)
    *reinterpret_cast<uint4 *>(static_cast<uint16_t *>(p.y) + static_cast<size_t>(token) * p.n_out + own) = make_uint4(v[0], v[1], v[2], v[3]);
}

// Bias or residual of one token's COLUMNS, eight neighbouring columns a thread, all loads in flight at once.
template <int COLUMNS>
__device__ __forceinline__ void fetch_addends(const LinearParams &p, unsigned token, unsigned tile_n, int t, uint4 (&addend)[COLUMNS / 32]) {
  const uint16_t *from = p.epilogue == SAMETREE_EPILOGUE_BIAS ? p.bias : p.residual + static_cast<size_t>(token) * p.n_out;
#pragma unroll
  for (int j = 0; j < COLUMNS / 32; j++) {
    const unsigned own = tile_n * COLUMNS + j * 32 + t * 8;
    addend[j] = token < p.m && own < p.n_out ? *reinterpret_cast<const uint4 *>(from + own) : make_uint4(0, 0, 0, 0);
  }
}

// One token's COLUMNS sums. The host launches these kernels only when n_out is a multiple of eight.
template <int COLUMNS, Tail TAIL, class VALUE>
__device__ __forceinline__ void finish_token(const LinearParams &p, unsigned token, unsigned tile_n, int h, int t, VALUE value) {
  if constexpr (TAIL == Tail::F32) {
    float *to = static_cast<float *>(p.y) + static_cast<size_t>(token) * p.n_out;
#pragma unroll
    for (int j = 0; j < COLUMNS / 8; j++) {
      const unsigned column = tile_n * COLUMNS + j * 8 + t * 2;
      if (token < p.m && column < p.n_out) *reinterpret_cast<float2 *>(to + column) = make_float2(value(j * 4 + h * 2), value(j * 4 + h * 2 + 1));
    }
  } else if constexpr (TAIL == Tail::SiluMul) {
    auto out = [&](int j, int e) { return __fmul_rn(silu_tree(value(j * 8 + h * 2 + e)), value(j * 8 + 4 + h * 2 + e)); };
    constexpr int BLOCKS = COLUMNS / 16, WHOLE = BLOCKS / 4 * 4;
#pragma unroll
    for (int j = 0; j < WHOLE; j += 4) {
      float2 pair[4];
#pragma unroll
      for (int u = 0; u < 4; u++) pair[u] = make_float2(out(j + u, 0), out(j + u, 1));
      finish_blocks(p, token, tile_n * (COLUMNS / 2) + j * 8, pair, t);
    }
#pragma unroll
    for (int j = WHOLE; j < BLOCKS; j++) {
      const unsigned column = tile_n * (COLUMNS / 2) + j * 8 + t * 2;
      if (token < p.m && column < p.n_out)
        *reinterpret_cast<uint32_t *>(static_cast<uint16_t *>(p.y) + static_cast<size_t>(token) * p.n_out + column) = pack_bf16(out(j, 0), out(j, 1));
    }
  } else {
    const bool adds = p.epilogue == SAMETREE_EPILOGUE_BIAS || p.epilogue == SAMETREE_EPILOGUE_RESIDUAL;
    uint4 addend[COLUMNS / 32];
    if (adds) fetch_addends<COLUMNS>(p, token, tile_n, t, addend);
#pragma unroll
    for (int j = 0; j < COLUMNS / 8; j += 4) {
      float2 pair[4];
#pragma unroll
      for (int u = 0; u < 4; u++) pair[u] = make_float2(value((j + u) * 4 + h * 2), value((j + u) * 4 + h * 2 + 1));
      if (adds) {
        uint32_t r[4] = {addend[j / 4].x, addend[j / 4].y, addend[j / 4].z, addend[j / 4].w};
        transpose_quad(r, t);
#pragma unroll
        for (int u = 0; u < 4; u++) pair[u] = make_float2(__fadd_rn(pair[u].x, low_f32(r[u])), __fadd_rn(pair[u].y, high_f32(r[u])));
      }
      finish_blocks(p, token, tile_n * COLUMNS + j * 8, pair, t);
    }
  }
}

template <int COLUMNS, bool CHUNKED, int STAGES, int PARKED, Tail TAIL>
__device__ __forceinline__ void linear_tiled(const CUtensorMap &weight_map, const CUtensorMap &x_map, const LinearParams &p) {
  using SHAPE = TiledShape<COLUMNS, CHUNKED, STAGES, PARKED>;
  constexpr int KEPT = COLUMNS / 2 - PARKED;  // running sums that stay in registers
  extern __shared__ uint8_t dynamic_shared[];
  const uint32_t ring = (shared_address(dynamic_shared) + 1023) & ~1023u;
  const uint32_t full = ring + STAGES * SHAPE::STAGE_BYTES, empty = full + 8 * STAGES, parked = full + 256 + (threadIdx.x & 255) * 16;
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  const int total = p.tiles_n * p.tiles_m;
  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; i++) barrier_init(full + 8 * i, 1), barrier_init(empty + 8 * i, 2);
    barrier_init_fence();
  }
  __syncthreads();
  let_successor_start();
  const int chunks = CHUNKED ? p.k_split : 1, blocks = p.chunk_blocks;
  auto locate = [&](int tile, int &tile_m, int &tile_n) {
    constexpr int BAND = 8;
    const int per_band = BAND * p.tiles_n, band = tile / per_band, in_band = tile - band * per_band;
    const int height = min(BAND, static_cast<int>(p.tiles_m) - band * BAND);
    tile_m = band * BAND + in_band % height;
    tile_n = in_band / height;
  };
  if (warp >= 8) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (warp == 8 && lane == 0) {
      prefetch_map(&x_map);
      prefetch_map(&weight_map);
      wait_for_predecessor();
      int slot = 0;
      uint32_t parity = 1;
      for (int tile = blockIdx.x; tile < total; tile += gridDim.x) {
        int tile_m, tile_n;
        locate(tile, tile_m, tile_n);
        for (int block = 0; block < chunks * blocks; block++) {
          barrier_wait(empty + 8 * slot, parity);
          barrier_expect(full + 8 * slot, SHAPE::STAGE_BYTES);
          const uint32_t stage = ring + slot * SHAPE::STAGE_BYTES;
          tensor_copy(stage, &x_map, block * 64, tile_m * 128, full + 8 * slot, EVICT_NORMAL);
          tensor_copy(stage + SHAPE::X_BYTES, &weight_map, block * 64, tile_n * COLUMNS, full + 8 * slot, EVICT_NORMAL);
          if (++slot == STAGES) slot = 0, parity ^= 1;
        }
      }
    }
    return;
  }
  asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
  const int warpgroup = warp >> 2, t = lane & 3, quad = lane >> 2;
  const bool signals = (threadIdx.x & 127) == 0;
  int slot = 0;
  uint32_t parity = 0;
  bool first = true;
  for (int tile = blockIdx.x; tile < total; tile += gridDim.x) {
    int tile_m, tile_n;
    locate(tile, tile_m, tile_n);
    float acc[COLUMNS / 2];
    float sum[CHUNKED ? KEPT : 1];
    if constexpr (CHUNKED) {
      // Adding the first chunk to +0 is exact: a chain never ends in -0.
#pragma unroll
      for (int i = 0; i < KEPT; i++) sum[i] = 0.0f;
    }
    int previous = -1;
#pragma unroll 1
    for (int chunk = 0; chunk < chunks; chunk++) {
#pragma unroll 1
      for (int block = 0; block < blocks; block++) {
        barrier_wait(full + 8 * slot, parity);
        const uint32_t a = ring + slot * SHAPE::STAGE_BYTES + warpgroup * 64 * 128, b = ring + slot * SHAPE::STAGE_BYTES + SHAPE::X_BYTES;
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < 4; k++)
          Wgmma<COLUMNS>::shared(acc, descriptor_k_major(a + k * 32), descriptor_k_major(b + k * 32), (block | k) != 0);
        wgmma_commit();
        wgmma_wait<1>();
        if (previous >= 0 && signals) barrier_arrive(empty + 8 * previous);
        previous = slot;
        if (++slot == STAGES) slot = 0, parity ^= 1;
      }
      if constexpr (CHUNKED) {
        wgmma_wait<0>();
#pragma unroll
        for (int i = 0; i < KEPT; i++) sum[i] = __fadd_rn(sum[i], acc[i]);
#pragma unroll
        for (int i = KEPT; i < COLUMNS / 2; i += 4) {
          const uint32_t at = parked + ((i - KEPT) / 4) * 4096;
          float s[4] = {0.0f, 0.0f, 0.0f, 0.0f};
          if (chunk > 0)
            asm volatile("ld.shared.v4.f32 {%0,%1,%2,%3}, [%4];" : "=f"(s[0]), "=f"(s[1]), "=f"(s[2]), "=f"(s[3]) : "r"(at) : "memory");
#pragma unroll
          for (int e = 0; e < 4; e++) s[e] = __fadd_rn(s[e], acc[i + e]);
          if (chunk + 1 < chunks)
            asm volatile("st.shared.v4.f32 [%0], {%1,%2,%3,%4};" ::"r"(at), "f"(s[0]), "f"(s[1]), "f"(s[2]), "f"(s[3]) : "memory");
          else
#pragma unroll
            for (int e = 0; e < 4; e++) acc[i + e] = s[e];
        }
      }
    }
    wgmma_wait<0>();
    // Keeps the compiler from reading accumulators before the wait.
#pragma unroll
    for (int i = 0; i < COLUMNS / 2; i++) asm volatile("" : "+f"(acc[i])::"memory");
    if (signals) barrier_arrive(empty + 8 * previous);
    if (first) wait_for_predecessor(), first = false;
    auto value = [&](int i) -> float {
      if constexpr (CHUNKED)
        return i < KEPT ? sum[i < KEPT ? i : 0] : acc[i];
      else
        return acc[i];
    };
#pragma unroll
    for (int h = 0; h < 2; h++)
      finish_token<COLUMNS, TAIL>(p, tile_m * 128 + warpgroup * 64 + (warp & 3) * 16 + quad + h * 8, tile_n, h, t, value);
  }
}

}  // namespace sametree
