// y = x · Wᵀ for many tokens: the tensor cores are what takes the time.
//
// math     y[m, n] = epilogue(sum over chunks, left to right, of chain(k16 steps of the chunk))
// shapes   x [m, k], W [n_rows, k], y [m, n_out], bfloat16 in, f32 accumulate
// tree     LinearTree of reduction-tree, the same as linear_stream.cuh
// tile     128 tokens by COLUMNS weight rows; two warpgroups of 64 tokens each
// launch   persistent, one block a processor, tiles in bands of 8 token tiles so that W stays in L2; a producer thread for
//          each operand. The blocks of a cluster work on CLUSTER_M x CLUSTER_N neighbouring tiles: each loads a part of x for
//          those of its tokens and a part of W for those of its columns, since what leaves L2 limits narrow tiles
// shared   ring of STAGES x (128 + COLUMNS) x 128 bytes; where STAGED, the bf16 output tile, into which the residual is loaded
//          while the sums are made and from which the copy engine stores while the next tile's are
// registers two accumulators of COLUMNS / 2 where they fit: a tile ends in one, in pieces, between the first products of the
//          next tile, which go into the other
// bytes    x and W once a tile, mostly from L2; y once
// rounding each k16 step (tensor core), chunk additions, epilogue (f32), store (bf16 RNE or f32)
#pragma once
#include "linear.cuh"
#include "sm90.cuh"

namespace sametree {

// What is stored. Bias and residual are chosen at run time; the other tails would double the code of a kernel.
enum class Tail { Bf16, F32, SiluMul };

template <int COLUMNS, bool CHUNKED, int STAGES, Tail TAIL, bool STAGED>
struct TiledShape {
  static_assert(COLUMNS % 32 == 0, "the store exchanges groups of four blocks of eight columns");
  static_assert(!STAGED || TAIL == Tail::Bf16, "the output tile holds bf16");
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
  // A tile ends in pieces: a token of the thread's two by four blocks of eight output columns.
  static constexpr int OUT_BLOCKS = COLUMNS / (TAIL == Tail::SiluMul ? 16 : 8);
  static constexpr int PIECES = 2 * ((OUT_BLOCKS + 3) / 4);
  static constexpr bool OVERLAPS = COLUMNS <= 128;
  static_assert(!STAGED || OVERLAPS, "the residual's place is given free where a tile ends under the next one");
  // The block of K after which a tile's predecessor has surely been finished.
  static constexpr int FINISHED = OVERLAPS ? PIECES + 1 : 2;
};

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

// One piece: a token and the four blocks of output columns of `group`. The host launches these kernels only when n_out is a
// multiple of eight.
template <int COLUMNS, Tail TAIL, class VALUE>
__device__ __forceinline__ void finish_group(const LinearParams &p, unsigned token, unsigned tile_n, int group, int h, int t, VALUE value) {
  if constexpr (TAIL == Tail::F32) {
    float *to = static_cast<float *>(p.y) + static_cast<size_t>(token) * p.n_out;
#pragma unroll
    for (int j = group * 4; j < group * 4 + 4; j++) {
      const unsigned column = tile_n * COLUMNS + j * 8 + t * 2;
      if (token < p.m && column < p.n_out) *reinterpret_cast<float2 *>(to + column) = make_float2(value(j * 4 + h * 2), value(j * 4 + h * 2 + 1));
    }
  } else if constexpr (TAIL == Tail::SiluMul) {
    auto out = [&](int j, int e) { return __fmul_rn(silu_tree(value(j * 8 + h * 2 + e)), value(j * 8 + 4 + h * 2 + e)); };
    constexpr int BLOCKS = COLUMNS / 16;
    if ((group + 1) * 4 <= BLOCKS) {
      float2 pair[4];
#pragma unroll
      for (int u = 0; u < 4; u++) pair[u] = make_float2(out(group * 4 + u, 0), out(group * 4 + u, 1));
      finish_blocks(p, token, tile_n * (COLUMNS / 2) + group * 32, pair, t);
      return;
    }
#pragma unroll
    for (int j = BLOCKS / 4 * 4; j < BLOCKS; j++) {
      const unsigned column = tile_n * (COLUMNS / 2) + j * 8 + t * 2;
      if (token < p.m && column < p.n_out)
        *reinterpret_cast<uint32_t *>(static_cast<uint16_t *>(p.y) + static_cast<size_t>(token) * p.n_out + column) = pack_bf16(out(j, 0), out(j, 1));
    }
  } else {
    const bool adds = p.epilogue == SAMETREE_EPILOGUE_BIAS || p.epilogue == SAMETREE_EPILOGUE_RESIDUAL;
    const uint16_t *from = p.epilogue == SAMETREE_EPILOGUE_BIAS ? p.bias : p.residual + static_cast<size_t>(token) * p.n_out;
    float2 pair[4];
#pragma unroll
    for (int u = 0; u < 4; u++) pair[u] = make_float2(value((group * 4 + u) * 4 + h * 2), value((group * 4 + u) * 4 + h * 2 + 1));
    if (adds) {
      const unsigned own = tile_n * COLUMNS + group * 32 + t * 8;
      const uint4 addend = token < p.m && own < p.n_out ? *reinterpret_cast<const uint4 *>(from + own) : make_uint4(0, 0, 0, 0);
      uint32_t r[4] = {addend.x, addend.y, addend.z, addend.w};
      transpose_quad(r, t);
#pragma unroll
      for (int u = 0; u < 4; u++) pair[u] = make_float2(__fadd_rn(pair[u].x, low_f32(r[u])), __fadd_rn(pair[u].y, high_f32(r[u])));
    }
    finish_blocks(p, token, tile_n * COLUMNS + group * 32, pair, t);
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

// Adds bias or residual to a piece of a warpgroup's sums and rounds it into its half of the output tile; after the last piece
// the copy engine stores the half. The tile's last reader has been waited for by whoever writes: by the producer where a
// residual is loaded over it, by the storing thread and a barrier of the warpgroup otherwise.
template <int COLUMNS, int PIECES, class VALUE>
__device__ __forceinline__ void finish_staged(const LinearParams &p, const CUtensorMap &y_map, const OutTile &out, int tile_m, int tile_n,
                                              uint32_t parity, int piece, VALUE value) {
  const int warpgroup = threadIdx.x >> 7, warp = threadIdx.x >> 5, quad = (threadIdx.x & 31) >> 2, t = threadIdx.x & 3;
  const int h = piece & 1, group = piece >> 1;
  const bool residual = p.epilogue == SAMETREE_EPILOGUE_RESIDUAL, bias = p.epilogue == SAMETREE_EPILOGUE_BIAS;
  if (piece == 0) {
    if (residual)
      barrier_wait(out.residual_full, parity);
    else
      asm volatile("bar.sync %0, 128;" ::"r"(warpgroup + 1) : "memory");
  }
  // All loads before the first use: their latency is waited for once.
  uint32_t pair[4] = {};
#pragma unroll
  for (int u = 0; u < 4; u++) {
    const uint32_t at = out.at(warp * 16 + quad + h * 8, group * 4 + u, t);
    const unsigned column = tile_n * COLUMNS + (group * 4 + u) * 8 + t * 2;
    if (residual) asm volatile("ld.shared.b32 %0, [%1];" : "=r"(pair[u]) : "r"(at) : "memory");
    if (bias && column < p.n_out) pair[u] = *reinterpret_cast<const uint32_t *>(p.bias + column);
  }
#pragma unroll
  for (int u = 0; u < 4; u++) {
    const int j = group * 4 + u;
    float a = value(j * 4 + h * 2), b = value(j * 4 + h * 2 + 1);
    if (residual || bias) a = __fadd_rn(a, low_f32(pair[u])), b = __fadd_rn(b, high_f32(pair[u]));
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(out.at(warp * 16 + quad + h * 8, j, t)), "r"(pack_bf16(a, b)) : "memory");
  }
  if (piece < PIECES - 1) return;
  proxy_fence();
  asm volatile("bar.sync %0, 128;" ::"r"(warpgroup + 1) : "memory");
  if ((threadIdx.x & 127) == 0) {
#pragma unroll
    for (int i = 0; i < COLUMNS / 32; i++)
      tensor_store(&y_map, tile_n * COLUMNS + i * 32, tile_m * 128 + warpgroup * 64, out.base + i * OutTile::BOX_BYTES + warpgroup * 64 * 64);
    bulk_commit();
  }
}

template <int COLUMNS, bool CHUNKED, int STAGES, Tail TAIL, bool STAGED, int CLUSTER_M, int CLUSTER_N>
struct Tiled {
  using SHAPE = TiledShape<COLUMNS, CHUNKED, STAGES, TAIL, STAGED>;
  static constexpr int CLUSTER = CLUSTER_M * CLUSTER_N;
  static_assert(CLUSTER_M <= 2 && CLUSTER_N <= 2, "a block shares an operand with one neighbour");
  const CUtensorMap &weight_map, &x_map, &y_map, &residual_map;
  const LinearParams &p;
  uint32_t ring, full, empty;
  OutTile out;
  int rank_m, rank_n;  // this block's place in the cluster

  __device__ __forceinline__ int chunks() const { return CHUNKED ? p.k_split : 1; }
  __device__ __forceinline__ int groups_n() const { return (p.tiles_n + CLUSTER_N - 1) / CLUSTER_N; }
  __device__ __forceinline__ int groups_m() const { return (p.tiles_m + CLUSTER_M - 1) / CLUSTER_M; }
  __device__ __forceinline__ int total() const { return groups_n() * groups_m(); }
  __device__ __forceinline__ int first() const { return blockIdx.x / CLUSTER; }
  __device__ __forceinline__ int step() const { return gridDim.x / CLUSTER; }

  __device__ __forceinline__ void locate(int tile, int &tile_m, int &tile_n) const {
    constexpr int BAND = 8 / CLUSTER_M;
    const int per_band = BAND * groups_n(), band = tile / per_band, in_band = tile - band * per_band;
    const int height = min(BAND, groups_m() - band * BAND);
    tile_m = (band * BAND + in_band % height) * CLUSTER_M + rank_m;
    tile_n = in_band / height * CLUSTER_N + rank_n;
  }

  // A part of an operand for each of `COUNT` blocks of the cluster that share it.
  template <int COUNT>
  __device__ __forceinline__ void load(uint32_t to, const CUtensorMap *map, int block, int row, int rows, int part, uint16_t mask,
                                       uint32_t barrier) const {
    if constexpr (COUNT > 1)
      tensor_copy_multicast(to + part * (rows / COUNT) * 128, map, block * 64, row + part * (rows / COUNT), barrier, mask);
    else
      tensor_copy(to, map, block * 64, row, barrier, EVICT_NORMAL);
  }

  // Fills this block's part of the ring with one operand. `load` takes a stage, a block of K, the tile's place and the barrier.
  template <class LOAD>
  __device__ __forceinline__ void produce(LOAD load) const {
    const int blocks = chunks() * p.chunk_blocks;
    int slot = 0;
    uint32_t parity = 1;
    for (int tile = first(); tile < total(); tile += step()) {
      int tile_m, tile_n;
      locate(tile, tile_m, tile_n);
#pragma unroll 1
      for (int block = 0; block < blocks; block++) {
        barrier_wait(empty + 8 * slot, parity);
        load(ring + slot * SHAPE::STAGE_BYTES, block, tile_m, tile_n, full + 8 * slot);
        if (++slot == STAGES) slot = 0, parity ^= 1;
      }
    }
  }

  // The weights do not wait for the predecessor: they fill the ring while it ends. Their bytes are counted by the other thread,
  // before or after they land.
  __device__ __forceinline__ void produce_weights() const {
    constexpr uint16_t COLUMN = CLUSTER_M > 1 ? 1 | 1 << CLUSTER_N : 1;
    produce([&](uint32_t stage, int block, int, int tile_n, uint32_t barrier) {
      load<CLUSTER_M>(stage + SHAPE::X_BYTES, &weight_map, block, tile_n * COLUMNS, COLUMNS, rank_m, COLUMN << rank_n, barrier);
    });
  }

  __device__ __forceinline__ void produce_x() const {
    wait_for_predecessor();
    constexpr uint16_t ROW = (1 << CLUSTER_N) - 1;
    uint32_t out_parity = 1;
    // The residual follows the ring's worth of blocks after which the tile before has surely been finished.
    const bool residual = STAGED && p.epilogue == SAMETREE_EPILOGUE_RESIDUAL;
    const int residual_block = min(SHAPE::FINISHED + STAGES, static_cast<int>(chunks() * p.chunk_blocks) - 1);
    produce([&](uint32_t stage, int block, int tile_m, int tile_n, uint32_t barrier) {
      barrier_expect(barrier, SHAPE::STAGE_BYTES);
      load<CLUSTER_N>(stage, &x_map, block, tile_m * 128, 128, rank_n, ROW << rank_m * CLUSTER_N, barrier);
      if (!residual || block != residual_block) return;
      barrier_wait(out.free, out_parity);
      out_parity ^= 1;
      barrier_expect(out.residual_full, SHAPE::OUT_BYTES);
#pragma unroll
      for (int i = 0; i < COLUMNS / 32 * 2; i++)
        tensor_copy(out.base + i * (OutTile::BOX_BYTES / 2), &residual_map, tile_n * COLUMNS + i / 2 * 32, tile_m * 128 + i % 2 * 64,
                    out.residual_full, EVICT_FIRST);
    });
  }

  // One thread of a warpgroup says that a stage was read, to every block whose loads fill it.
  __device__ __forceinline__ void release(int slot) const {
    barrier_arrive(empty + 8 * slot);
    if constexpr (CLUSTER_N > 1) barrier_arrive_remote(map_to_rank(empty + 8 * slot, rank_m * CLUSTER_N + (rank_n ^ 1)));
    if constexpr (CLUSTER_M > 1) barrier_arrive_remote(map_to_rank(empty + 8 * slot, (rank_m ^ 1) * CLUSTER_N + rank_n));
  }

  // A warpgroup's place in the ring. A stage is released once the products after it have been issued.
  struct Reader {
    uint32_t full;
    uint64_t x, weight;  // descriptors of the first stage
    bool signals;
    int slot = 0, previous = -1;
    uint32_t parity = 0;

    // The products of one block of K, in flight when this returns; those before them are done.
    __device__ __forceinline__ void step(const Tiled &tiled, float (&acc)[COLUMNS / 2], bool fresh) {
      const uint64_t a = descriptor_at(x, slot * (SHAPE::STAGE_BYTES / 16)), b = descriptor_at(weight, slot * (SHAPE::STAGE_BYTES / 16));
      barrier_wait(full + 8 * slot, parity);
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < 4; k++) Wgmma<COLUMNS>::shared(acc, descriptor_at(a, k * 2), descriptor_at(b, k * 2), !fresh || k != 0);
      wgmma_commit();
      wgmma_wait<1>();
      if (previous >= 0 && signals) tiled.release(previous);
      previous = slot;
      if (++slot == STAGES) slot = 0, parity ^= 1;
    }

    // Blocks `from` to `blocks` of a chunk's chain. `finished` runs once, when the tile before has been finished for a while.
    template <class FINISHED>
    __device__ __forceinline__ void chain(const Tiled &tiled, float (&acc)[COLUMNS / 2], int from, int blocks, FINISHED finished) {
#pragma unroll 1
      for (int block = from; block < blocks; block++) {
        step(tiled, acc, block == 0);
        if (block == min(SHAPE::FINISHED, blocks - 1)) finished();
      }
    }

    __device__ __forceinline__ void finish(const Tiled &tiled, float (&acc)[COLUMNS / 2]) {
      wgmma_wait<0>();
      fence(acc);
      if (previous >= 0 && signals) tiled.release(previous);
      previous = -1;
    }

    // Keeps the compiler from reading accumulators before a wait.
    static __device__ __forceinline__ void fence(float (&acc)[COLUMNS / 2]) {
#pragma unroll
      for (int i = 0; i < COLUMNS / 2; i++) asm volatile("" : "+f"(acc[i])::"memory");
    }
  };

  // One piece of a tile's end.
  __device__ __forceinline__ void end(int tile, uint32_t parity, int piece, const float (&sum)[COLUMNS / 2]) const {
    const int lane = threadIdx.x & 31, t = lane & 3, h = piece & 1;
    int tile_m, tile_n;
    locate(tile, tile_m, tile_n);
    auto value = [&](int i) -> float { return sum[i]; };
    if constexpr (STAGED) {
      finish_staged<COLUMNS, SHAPE::PIECES>(p, y_map, out, tile_m, tile_n, parity, piece, value);
    } else {
      const unsigned token = tile_m * 128 + (threadIdx.x >> 5) * 16 + (lane >> 2) + h * 8;
      finish_group<COLUMNS, TAIL>(p, token, tile_n, piece >> 1, h, t, value);
    }
  }
  __device__ __forceinline__ void end(int tile, uint32_t parity, const float (&sum)[COLUMNS / 2]) const {
#pragma unroll
    for (int piece = 0; piece < SHAPE::PIECES; piece++) end(tile, parity, piece, sum);
  }

  // A tile's sums. While its first products are made, the tile `ended` before it is finished from `other`, which then takes the
  // chains of the further chunks.
  template <bool ENDS>
  __device__ __forceinline__ void sums(Reader &ring, float (&sum)[COLUMNS / 2], float (&other)[COLUMNS / 2], int ended, uint32_t parity) const {
    const int blocks = p.chunk_blocks;
    auto finished = [&] {
      // The output tile before this one has left shared memory.
      if (STAGED && ring.signals) {
        bulk_wait_read();
        if (ENDS) barrier_arrive(out.free);
      }
    };
    if (ENDS && SHAPE::OVERLAPS && blocks > SHAPE::PIECES) {
#pragma unroll
      for (int piece = 0; piece < SHAPE::PIECES; piece++) {
        ring.step(*this, sum, piece == 0);
        if (piece == 0) Reader::fence(other);
        end(ended, parity, piece, other);
      }
      ring.chain(*this, sum, SHAPE::PIECES, blocks, finished);
    } else {
      if (ENDS) {
        ring.finish(*this, other);
        end(ended, parity, other);
      }
      ring.chain(*this, sum, 0, blocks, finished);
    }
    if constexpr (CHUNKED) {
      // The chain of the first chunk is the running sum; the others are added to it.
#pragma unroll 1
      for (int chunk = 1; chunk < chunks(); chunk++) {
        ring.chain(*this, other, 0, blocks, [] {});
        ring.finish(*this, other);
#pragma unroll
        for (int i = 0; i < COLUMNS / 2; i++) sum[i] = __fadd_rn(sum[i], other[i]);
      }
      ring.finish(*this, sum);
    }
  }

  __device__ __forceinline__ void consume(int warp) const {
    constexpr uint32_t ROWS = 64 * 128;
    const uint32_t x = this->ring + (warp >> 2) * ROWS, weight = this->ring + SHAPE::X_BYTES;
    Reader ring{full, descriptor_k_major(x), descriptor_k_major(weight), (threadIdx.x & 127) == 0};
    uint32_t parity = 0;
    int tile = first();
    float a[COLUMNS / 2], b[COLUMNS / 2];
    sums<false>(ring, a, b, tile, parity);
    wait_for_predecessor();
    // Where only one accumulator fits, a tile ends before the next begins.
    if constexpr (!SHAPE::OVERLAPS) {
      for (;;) {
        ring.finish(*this, a);
        end(tile, parity, a);
        parity ^= 1;
        tile += step();
        if (tile >= total()) break;
        sums<false>(ring, a, b, tile, parity);
      }
    } else {
      for (;;) {
        if (tile + step() >= total()) {
          ring.finish(*this, a);
          end(tile, parity, a);
          break;
        }
        sums<true>(ring, b, a, tile, parity);
        parity ^= 1;
        tile += step();
        if (tile + step() >= total()) {
          ring.finish(*this, b);
          end(tile, parity, b);
          break;
        }
        sums<true>(ring, a, b, tile, parity);
        parity ^= 1;
        tile += step();
      }
    }
    // A block's shared memory must outlive the copies from it; what they write is complete when the kernel is.
    if (STAGED && ring.signals) bulk_wait_read();
  }
};

template <int COLUMNS, bool CHUNKED, int STAGES, Tail TAIL, bool STAGED, int CLUSTER_M, int CLUSTER_N>
__device__ __forceinline__ void linear_tiled(const CUtensorMap &weight_map, const CUtensorMap &x_map, const CUtensorMap &y_map,
                                             const CUtensorMap &residual_map, const LinearParams &p) {
  using TILED = Tiled<COLUMNS, CHUNKED, STAGES, TAIL, STAGED, CLUSTER_M, CLUSTER_N>;
  using SHAPE = typename TILED::SHAPE;
  extern __shared__ uint8_t dynamic_shared[];
  const uint32_t ring = (shared_address(dynamic_shared) + 1023) & ~1023u;
  const uint32_t out_base = ring + STAGES * SHAPE::STAGE_BYTES, full = out_base + SHAPE::OUT_BYTES, empty = full + 8 * STAGES;
  const int rank = TILED::CLUSTER > 1 ? cluster_rank() : 0;
  const TILED tiled{weight_map, x_map, y_map, residual_map, p, ring, full, empty, OutTile{out_base, empty + 8 * STAGES, empty + 8 * STAGES + 8},
                    rank / CLUSTER_N, rank % CLUSTER_N};
  if (threadIdx.x == 8 * 32) prefetch_map(&x_map);
  if (threadIdx.x == 9 * 32) prefetch_map(&weight_map);
  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; i++) barrier_init(full + 8 * i, 1), barrier_init(empty + 8 * i, 2 * (CLUSTER_M + CLUSTER_N - 1));
    barrier_init(tiled.out.residual_full, 1);
    barrier_init(tiled.out.free, 2);
    barrier_init_fence();
  }
  __syncthreads();
  // Barriers must exist before a neighbour counts at them.
  if constexpr (TILED::CLUSTER > 1) cluster_arrive(), cluster_wait();
  let_successor_start();
  // The shuffle tells the compiler that a warp's number is one value, so that descriptors live in uniform registers.
  const int warp = __shfl_sync(~0u, threadIdx.x >> 5, 0), lane = threadIdx.x & 31;
  if (warp >= 8) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(SHAPE::PRODUCER_REGISTERS));
    if (warp == 8 && lane == 0) tiled.produce_x();
    if (warp == 9 && lane == 0) tiled.produce_weights();
    __syncwarp();
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(SHAPE::CONSUMER_REGISTERS));
    tiled.consume(warp);
  }
  // No block ends while a neighbour may still write to it.
  if constexpr (TILED::CLUSTER > 1) cluster_arrive(), cluster_wait();
}

}  // namespace sametree
