// y = x · Wᵀ for many tokens: the tensor cores are what takes the time.
//
// math     y[m, n] = epilogue(sum over chunks, left to right, of chain(k16 steps of the chunk))
// shapes   x [m, k], W [n_rows, k], y [m, n_out], bfloat16 in, f32 accumulate
// tree     LinearTree of reduction-tree, the same as linear_stream.cuh
// tile     128 tokens by COLUMNS weight rows; two warpgroups of 64 tokens each
// launch   persistent, one block a processor, tiles in bands of 8 token tiles so that W stays in L2; one producer thread. The
//          blocks of a CLUSTER work on neighbouring columns of the same tokens: each loads a part of x for all, since what
//          leaves L2 limits narrow tiles
// shared   ring of STAGES x (128 + COLUMNS) x 128 bytes; where STAGED, the bf16 output tile, into which the residual is loaded
//          while the sums are made and from which the copy engine stores while the next tile's are
// bytes    x and W once a tile, mostly from L2; y once
// rounding each k16 step (tensor core), chunk additions, epilogue (f32), store (bf16 RNE or f32)
#pragma once
#include "linear.cuh"
#include "sm90.cuh"

namespace sametree {

template <int COLUMNS, bool CHUNKED, int STAGES, bool STAGED>
struct TiledShape {
  static_assert(COLUMNS % 32 == 0, "the store exchanges groups of four blocks of eight columns");
  static constexpr int THREADS = 384;
  // Two sums of 96 leave the producer little.
  static constexpr int PRODUCER_REGISTERS = CHUNKED && COLUMNS > 128 ? 24 : 40;
  static constexpr int CONSUMER_REGISTERS = CHUNKED && COLUMNS > 128 ? 240 : 232;
  static_assert(PRODUCER_REGISTERS * 128 + CONSUMER_REGISTERS * 256 <= 168 * 384, "registers are passed on among those that the block was launched with");
  static constexpr uint32_t X_BYTES = 128 * 128;
  static constexpr uint32_t STAGE_BYTES = X_BYTES + COLUMNS * 128;
  static constexpr uint32_t OUT_BYTES = STAGED ? COLUMNS * 256 : 0;
  static constexpr uint32_t SHARED_BYTES = 1024 + STAGES * STAGE_BYTES + OUT_BYTES + 256;
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
    const uint16_t *from = p.epilogue == SAMETREE_EPILOGUE_BIAS ? p.bias : p.residual + static_cast<size_t>(token) * p.n_out;
#pragma unroll
    for (int j = 0; j < COLUMNS / 8; j += 4) {
      float2 pair[4];
#pragma unroll
      for (int u = 0; u < 4; u++) pair[u] = make_float2(value((j + u) * 4 + h * 2), value((j + u) * 4 + h * 2 + 1));
      if (adds) {
        const unsigned own = tile_n * COLUMNS + j * 8 + t * 8;
        const uint4 addend = token < p.m && own < p.n_out ? *reinterpret_cast<const uint4 *>(from + own) : make_uint4(0, 0, 0, 0);
        uint32_t r[4] = {addend.x, addend.y, addend.z, addend.w};
        transpose_quad(r, t);
#pragma unroll
        for (int u = 0; u < 4; u++) pair[u] = make_float2(__fadd_rn(pair[u].x, low_f32(r[u])), __fadd_rn(pair[u].y, high_f32(r[u])));
      }
      finish_blocks(p, token, tile_n * COLUMNS + j * 8, pair, t);
    }
  }
}

// The output tile in shared memory: boxes of 32 columns by 128 tokens, 64 bytes a row, in the copy engine's 64-byte swizzle.
// A warp's accesses touch every bank once.
struct OutTile {
  uint32_t base, residual_full, free;
  static constexpr uint32_t BOX_BYTES = 128 * 64;
  __device__ __forceinline__ uint32_t at(int token, int block, int t) const {
    return base + (block >> 2) * BOX_BYTES + token * 64 + (((block & 3) ^ ((token >> 1) & 3)) << 4) + t * 4;
  }
};

// Adds bias or residual to a warpgroup's sums, rounds them into its half of the output tile and lets the copy engine store
// it. The tile's last reader has been waited for by whoever writes: by the producer where a residual is loaded over it, by
// the storing thread and a barrier of the warpgroup otherwise.
template <int COLUMNS, class VALUE>
__device__ __forceinline__ void finish_staged(const LinearParams &p, const CUtensorMap &y_map, const OutTile &out, int tile_m, int tile_n,
                                              uint32_t parity, VALUE value) {
  const int warpgroup = threadIdx.x >> 7, warp = threadIdx.x >> 5, quad = (threadIdx.x & 31) >> 2, t = threadIdx.x & 3;
  const bool residual = p.epilogue == SAMETREE_EPILOGUE_RESIDUAL, bias = p.epilogue == SAMETREE_EPILOGUE_BIAS;
  if (residual)
    barrier_wait(out.residual_full, parity);
  else
    asm volatile("bar.sync %0, 128;" ::"r"(warpgroup + 1) : "memory");
#pragma unroll
  for (int h = 0; h < 2; h++)
#pragma unroll
    for (int j = 0; j < COLUMNS / 8; j++) {
      const uint32_t at = out.at(warp * 16 + quad + h * 8, j, t);
      float a = value(j * 4 + h * 2), b = value(j * 4 + h * 2 + 1);
      uint32_t pair = 0;
      if (residual) asm volatile("ld.shared.b32 %0, [%1];" : "=r"(pair) : "r"(at) : "memory");
      const unsigned column = tile_n * COLUMNS + j * 8 + t * 2;
      if (bias && column < p.n_out) pair = *reinterpret_cast<const uint32_t *>(p.bias + column);
      if (residual || bias) a = __fadd_rn(a, low_f32(pair)), b = __fadd_rn(b, high_f32(pair));
      asm volatile("st.shared.b32 [%0], %1;" ::"r"(at), "r"(pack_bf16(a, b)) : "memory");
    }
  proxy_fence();
  asm volatile("bar.sync %0, 128;" ::"r"(warpgroup + 1) : "memory");
  if ((threadIdx.x & 127) == 0) {
#pragma unroll
    for (int i = 0; i < COLUMNS / 32; i++)
      tensor_store(&y_map, tile_n * COLUMNS + i * 32, tile_m * 128 + warpgroup * 64, out.base + i * OutTile::BOX_BYTES + warpgroup * 64 * 64);
    bulk_commit();
  }
}

template <int COLUMNS, bool CHUNKED, int STAGES, Tail TAIL, bool STAGED, int CLUSTER>
struct Tiled {
  using SHAPE = TiledShape<COLUMNS, CHUNKED, STAGES, STAGED>;
  static_assert(!STAGED || TAIL == Tail::Bf16, "the output tile holds bf16");
  const CUtensorMap &weight_map, &x_map, &y_map, &residual_map;
  const LinearParams &p;
  uint32_t ring, full, empty;
  OutTile out;
  int rank;

  __device__ __forceinline__ int chunks() const { return CHUNKED ? p.k_split : 1; }
  __device__ __forceinline__ int groups_n() const { return (p.tiles_n + CLUSTER - 1) / CLUSTER; }
  __device__ __forceinline__ int total() const { return groups_n() * p.tiles_m; }
  __device__ __forceinline__ int first() const { return blockIdx.x / CLUSTER; }
  __device__ __forceinline__ int step() const { return gridDim.x / CLUSTER; }

  __device__ __forceinline__ void locate(int tile, int &tile_m, int &tile_n) const {
    constexpr int BAND = 8;
    const int per_band = BAND * groups_n(), band = tile / per_band, in_band = tile - band * per_band;
    const int height = min(BAND, static_cast<int>(p.tiles_m) - band * BAND);
    tile_m = band * BAND + in_band % height;
    tile_n = in_band / height * CLUSTER + rank;
  }

  __device__ __forceinline__ void produce() const {
    prefetch_map(&x_map);
    prefetch_map(&weight_map);
    wait_for_predecessor();
    const int blocks = p.chunk_blocks;
    int slot = 0;
    uint32_t parity = 1, out_parity = 1;
    const bool residual = STAGED && p.epilogue == SAMETREE_EPILOGUE_RESIDUAL;
    // The residual follows the ring's worth of blocks after which the tile before has surely been finished.
    const int residual_block = min(STAGES, chunks() * blocks - 1);
    for (int tile = first(); tile < total(); tile += step()) {
      int tile_m, tile_n;
      locate(tile, tile_m, tile_n);
#pragma unroll 1
      for (int block = 0; block < chunks() * blocks; block++) {
        const uint32_t stage = ring + slot * SHAPE::STAGE_BYTES, barrier = full + 8 * slot;
        barrier_wait(empty + 8 * slot, parity);
        barrier_expect(barrier, SHAPE::STAGE_BYTES);
        if constexpr (CLUSTER > 1) {
          constexpr int PART = 128 / CLUSTER;
          tensor_copy_multicast(stage + rank * PART * 128, &x_map, block * 64, tile_m * 128 + rank * PART, barrier, (1 << CLUSTER) - 1);
        } else {
          tensor_copy(stage, &x_map, block * 64, tile_m * 128, barrier, EVICT_NORMAL);
        }
        tensor_copy(stage + SHAPE::X_BYTES, &weight_map, block * 64, tile_n * COLUMNS, barrier, EVICT_NORMAL);
        if (++slot == STAGES) slot = 0, parity ^= 1;
        if (residual && block == residual_block) {
          barrier_wait(out.free, out_parity);
          out_parity ^= 1;
          barrier_expect(out.residual_full, SHAPE::OUT_BYTES);
#pragma unroll
          for (int i = 0; i < COLUMNS / 32 * 2; i++)
            tensor_copy(out.base + i * (OutTile::BOX_BYTES / 2), &residual_map, tile_n * COLUMNS + i / 2 * 32, tile_m * 128 + i % 2 * 64,
                        out.residual_full, EVICT_FIRST);
        }
      }
    }
  }

  // One thread of a warpgroup says that a stage was read, to every block whose loads fill it.
  __device__ __forceinline__ void release(int slot) const {
    if constexpr (CLUSTER > 1) {
#pragma unroll
      for (int r = 0; r < CLUSTER; r++) barrier_arrive_remote(map_to_rank(empty + 8 * slot, r));
    } else {
      barrier_arrive(empty + 8 * slot);
    }
  }

  // A warpgroup's place in the ring. A stage is released once the products after it have been issued.
  struct Reader {
    uint32_t full, base;
    int warpgroup, slot = 0, previous = -1;
    uint32_t parity = 0;

    // One chunk's chain into `acc`, in flight when this returns. `meanwhile` runs under products, late
    // enough that it need not wait.
    template <class MEANWHILE>
    __device__ __forceinline__ void chain(const Tiled &tiled, float (&acc)[COLUMNS / 2], int blocks, bool signals, MEANWHILE meanwhile) {
#pragma unroll 1
      for (int block = 0; block < blocks; block++) {
        barrier_wait(full + 8 * slot, parity);
        const uint32_t a = base + slot * SHAPE::STAGE_BYTES + warpgroup * 64 * 128, b = base + slot * SHAPE::STAGE_BYTES + SHAPE::X_BYTES;
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < 4; k++) Wgmma<COLUMNS>::shared(acc, descriptor_k_major(a + k * 32), descriptor_k_major(b + k * 32), (block | k) != 0);
        wgmma_commit();
        if (block == (blocks > 2 ? 2 : 0)) meanwhile();
        wgmma_wait<1>();
        if (previous >= 0 && signals) tiled.release(previous);
        previous = slot;
        if (++slot == STAGES) slot = 0, parity ^= 1;
      }
    }

    __device__ __forceinline__ void finish(const Tiled &tiled, float (&acc)[COLUMNS / 2], bool signals) {
      wgmma_wait<0>();
      // Keeps the compiler from reading accumulators before the wait.
#pragma unroll
      for (int i = 0; i < COLUMNS / 2; i++) asm volatile("" : "+f"(acc[i])::"memory");
      if (previous >= 0 && signals) tiled.release(previous);
      previous = -1;
    }
  };

  __device__ __forceinline__ void consume(int warp, int lane) const {
    const int warpgroup = warp >> 2, t = lane & 3, quad = lane >> 2, blocks = p.chunk_blocks;
    const bool signals = (threadIdx.x & 127) == 0;
    Reader ring{full, this->ring, warpgroup};
    uint32_t out_parity = 0;
    for (int tile = first(); tile < total(); tile += step()) {
      // The chain of the first chunk is the running sum; the others are added to it.
      float sum[COLUMNS / 2];
      ring.chain(*this, sum, blocks, signals, [&] {
        // The output tile before this one has left shared memory.
        if (STAGED && signals) {
          bulk_wait_read();
          if (tile != first()) barrier_arrive(out.free);
        }
      });
      if constexpr (CHUNKED) {
#pragma unroll 1
        for (int chunk = 1; chunk < chunks(); chunk++) {
          float acc[COLUMNS / 2];
          ring.chain(*this, acc, blocks, signals, [] {});
          ring.finish(*this, acc, signals);
#pragma unroll
          for (int i = 0; i < COLUMNS / 2; i++) sum[i] = __fadd_rn(sum[i], acc[i]);
        }
      }
      ring.finish(*this, sum, signals);
      if (tile == first()) wait_for_predecessor();
      int tile_m, tile_n;
      locate(tile, tile_m, tile_n);
      auto value = [&](int i) -> float { return sum[i]; };
      if constexpr (STAGED) {
        finish_staged<COLUMNS>(p, y_map, out, tile_m, tile_n, out_parity, value);
        out_parity ^= 1;
      } else {
#pragma unroll
        for (int h = 0; h < 2; h++)
          finish_token<COLUMNS, TAIL>(p, tile_m * 128 + warpgroup * 64 + (warp & 3) * 16 + quad + h * 8, tile_n, h, t, value);
      }
    }
    // A block's shared memory must outlive the copies from it.
    if (STAGED && signals) bulk_wait();
  }
};

template <int COLUMNS, bool CHUNKED, int STAGES, Tail TAIL, bool STAGED, int CLUSTER>
__device__ __forceinline__ void linear_tiled(const CUtensorMap &weight_map, const CUtensorMap &x_map, const CUtensorMap &y_map,
                                             const CUtensorMap &residual_map, const LinearParams &p) {
  using SHAPE = TiledShape<COLUMNS, CHUNKED, STAGES, STAGED>;
  extern __shared__ uint8_t dynamic_shared[];
  const uint32_t ring = (shared_address(dynamic_shared) + 1023) & ~1023u;
  const uint32_t out_base = ring + STAGES * SHAPE::STAGE_BYTES, full = out_base + SHAPE::OUT_BYTES, empty = full + 8 * STAGES;
  const Tiled<COLUMNS, CHUNKED, STAGES, TAIL, STAGED, CLUSTER> tiled{
      weight_map, x_map, y_map, residual_map, p, ring, full, empty, OutTile{out_base, empty + 8 * STAGES, empty + 8 * STAGES + 8},
      CLUSTER > 1 ? static_cast<int>(cluster_rank()) : 0};
  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; i++) barrier_init(full + 8 * i, 1), barrier_init(empty + 8 * i, 2 * CLUSTER);
    barrier_init(tiled.out.residual_full, 1);
    barrier_init(tiled.out.free, 2);
    barrier_init_fence();
  }
  __syncthreads();
  // Barriers must exist before a neighbour counts at them.
  if constexpr (CLUSTER > 1) cluster_arrive(), cluster_wait();
  let_successor_start();
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  if (warp >= 8) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(SHAPE::PRODUCER_REGISTERS));
    if (warp == 8 && lane == 0) tiled.produce();
    __syncwarp();
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(SHAPE::CONSUMER_REGISTERS));
    tiled.consume(warp, lane);
  }
  // No block ends while a neighbour may still write to it.
  if constexpr (CLUSTER > 1) cluster_arrive(), cluster_wait();
}

}  // namespace sametree
