// y = x · Wᵀ for few tokens: the weights are streamed once, and streaming them is what takes the time.
//
// math     y[m, n] = epilogue(sum over chunks, left to right, of chain(k16 steps of the chunk))
// shapes   x [m, k], W [n_rows, k], y [m, n_out], bfloat16 in, f32 accumulate
// tree     LinearTree of reduction-tree: one chain a chunk, chunks added left to right, epilogue, one rounding
// tile     ROWS weight rows by TOKENS tokens; a chunk is a group of warps of the block (LOCAL) or a block of the cluster
//          (CLUSTER); STEP blocks of 64 k a stage
// launch   one even wave of blocks, persistent over tiles; a producer warp for each operand, the other warps consume; dependent launch: the
//          ring is filled with weights before the predecessor's output is awaited
// shared   ring of `stages` x LOCAL x STEP x (ROWS + x rows) x 128 bytes, then f32 partial sums when there are two chunks
// bytes    W once, x once a block, y once
// rounding each k16 step (tensor core), chunk additions, epilogue (f32), store (bf16 RNE or f32)
#pragma once
#include "linear.cuh"
#include "sm90.cuh"

namespace sametree {

// How the chunks' chains are computed: weights as the A operand of mma.sync, or tokens as the A operand of wgmma. Both give
// the same bits, since a k16 step is one fused sum whichever instruction issues it.
enum class Consumer { MmaSync, Wgmma };

template <Consumer CONSUMER, int ROWS, int TOKENS, int LOCAL, int CLUSTER, int STEP>
struct StreamShape {
  static_assert(ROWS % 16 == 0, "a warp of mma.sync holds 16 weight rows; wgmma's N is a multiple of 8");
  static_assert(CONSUMER == Consumer::MmaSync || TOKENS % 64 == 0, "a warpgroup holds 64 tokens");
  static_assert(CONSUMER == Consumer::Wgmma || TOKENS == 8 || TOKENS % 16 == 0, "tokens are loaded by pairs of eights");
  static_assert(CLUSTER == 1 || (ROWS / CLUSTER) % 16 == 0, "a block of the cluster finishes whole gate/up pairs");
  static_assert(LOCAL == 1 || CLUSTER == 1, "chunks live in the warps or in the cluster, not in both");
  static_assert(CLUSTER <= 2, "a block of a cluster sends to one neighbour");
  static_assert(CONSUMER == Consumer::Wgmma ? LOCAL == 1 : CLUSTER == 1, "sums meet in the block for mma.sync, in the cluster for wgmma");
  static constexpr int CHUNKS = LOCAL * CLUSTER;
  static constexpr int WARPS_PER_CHUNK = CONSUMER == Consumer::Wgmma ? TOKENS / 16 : ROWS / 16;
  static constexpr int CONSUMERS = LOCAL * WARPS_PER_CHUNK;
  static constexpr int THREADS = CONSUMERS * 32 + 64;  // and a warp for each operand
  static constexpr int OWN_ROWS = ROWS / CLUSTER;
  static constexpr int PARTIAL_PITCH = ROWS + 4;
  // 16-byte slots through which a thread receives the other chunk's sums of the rows that its block finishes.
  static constexpr int SLOTS = OWN_ROWS / 8;
  static constexpr uint32_t EXCHANGE_BYTES = SLOTS * CONSUMERS * 32 * 16;
};

constexpr int STREAM_STAGES_MAX = 24;
constexpr uint32_t STREAM_BARRIER_BYTES = 512;

template <class SHAPE, Consumer CONSUMER, int ROWS, int TOKENS, int LOCAL, int CLUSTER, int STEP>
struct Stream {
  const LinearParams &p;
  const CUtensorMap *weight_map, *x_map;
  uint32_t ring, full, empty, exchange_barrier, partial;
  uint32_t rank, cluster, clusters;
  uint32_t x_bytes, group_bytes, stage_bytes;

  __device__ __forceinline__ int stage_count() const {
    return (p.chunk_blocks + STEP - 1) / STEP;
  }

  __device__ __forceinline__ unsigned tile_count() const { return p.tiles_n * p.tiles_m; }

  struct Cursor {
    int slot = 0;
    uint32_t parity = 0;
    __device__ __forceinline__ void advance(int stages) {
      if (++slot == stages) slot = 0, parity ^= 1;
    }
  };

  // Fills this block's part of the ring, one operand a thread: issuing a copy takes a thread long enough that one could not
  // keep up. `first_row` gives a tile's first row of the operand. A copy brings STEP blocks of K of one chunk; those past the
  // chunk's end are not used.
  template <class FIRST_ROW>
  __device__ __forceinline__ void produce(const CUtensorMap *map, uint32_t offset, uint32_t bytes, uint64_t policy, FIRST_ROW first_row) {
    const int blocks = p.chunk_blocks, stages = p.stages;
    Cursor cursor{0, 1};
    for (unsigned tile = cluster; tile < tile_count(); tile += clusters) {
      const int row = first_row(tile);
      for (int block = 0; block < blocks; block += STEP) {
        const uint32_t stage = ring + cursor.slot * stage_bytes + offset, barrier = full + 8 * cursor.slot;
        barrier_wait(empty + 8 * cursor.slot, cursor.parity);
        barrier_expect(barrier, LOCAL * bytes);
#pragma unroll
        for (int g = 0; g < LOCAL; g++)
          tensor_copy_blocks(stage + g * group_bytes, map, row, (rank * LOCAL + g) * blocks + block, barrier, policy);
        cursor.advance(stages);
      }
    }
  }

  // The weights do not wait for the predecessor: they fill the ring while it ends.
  __device__ __forceinline__ void produce_weights() {
    produce(weight_map, 0, STEP * ROWS * 128, p.tiles_m > 1 ? EVICT_NORMAL : EVICT_FIRST,
            [&](unsigned tile) -> int { return tile / p.tiles_m * ROWS; });
  }
  __device__ __forceinline__ void produce_x() {
    wait_for_predecessor();
    produce(x_map, STEP * ROWS * 128, STEP * x_bytes, EVICT_LAST, [&](unsigned tile) -> int { return tile % p.tiles_m * TOKENS; });
  }

  // One chunk's chain for 16 weight rows and all tokens by mma.sync.
  __device__ __forceinline__ void chain(float (&acc)[TOKENS / 8][4], Cursor &cursor, int group, int row_warp, int lane) {
#pragma unroll
    for (int j = 0; j < TOKENS / 8; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) acc[j][e] = 0.0f;
    const int a_row = row_warp * 16 + (lane & 15), a_half = lane >> 4;
    const int per_tile = stage_count();
    int left = p.chunk_blocks;
    for (int i = 0; i < per_tile; i++, left -= STEP) {
      barrier_wait(full + 8 * cursor.slot, cursor.parity);
      const uint32_t stage = ring + cursor.slot * stage_bytes + group * group_bytes;
#pragma unroll
      for (int u = 0; u < STEP; u++) {
        if (u >= left) break;
        const uint32_t a = stage + u * ROWS * 128 + a_row * 128;
        const uint32_t b = stage + STEP * ROWS * 128 + u * x_bytes;
        if constexpr (TOKENS == 8) {
          uint32_t x[2][4];
          const int r = lane & 7, c = lane >> 3;
          load_matrix_x4(x[0], b + r * 128 + ((c ^ r) << 4));
          load_matrix_x4(x[1], b + r * 128 + (((c + 4) ^ r) << 4));
#pragma unroll
          for (int k = 0; k < 4; k++) {
            uint32_t w[4];
            load_matrix_x4(w, a + (((k * 2 + a_half) ^ (a_row & 7)) << 4));
            mma_k16(acc[0], w, x[k >> 1][(k & 1) * 2], x[k >> 1][(k & 1) * 2 + 1]);
          }
        } else {
#pragma unroll
          for (int k = 0; k < 4; k++) {
            uint32_t w[4];
            load_matrix_x4(w, a + (((k * 2 + a_half) ^ (a_row & 7)) << 4));
#pragma unroll
            for (int j = 0; j < TOKENS / 16; j++) {
              uint32_t x[4];
              const int row = j * 16 + (lane & 7) + ((lane >> 4) << 3), half = (lane >> 3) & 1;
              load_matrix_x4(x, b + row * 128 + (((k * 2 + half) ^ (row & 7)) << 4));
              mma_k16(acc[2 * j], w, x[0], x[1]);
              mma_k16(acc[2 * j + 1], w, x[2], x[3]);
            }
          }
        }
      }
      __syncwarp();
      if (lane == 0) barrier_arrive(empty + 8 * cursor.slot);
      cursor.advance(p.stages);
    }
  }

  // One chunk's chain for 64 tokens and ROWS weight rows by wgmma. The host picks a STEP that divides the chunk, since a
  // branch between two wgmma would make the compiler wait for each.
  __device__ __forceinline__ void chain(float (&acc)[ROWS / 2], Cursor &cursor, int group, int token_group, int lane) {
    // Few tokens: memory is what takes the time, and a stage that is free a moment earlier is worth more than busy tensor
    // cores. Many tokens: the products of the next stage are issued before those of this one end.
    constexpr int PENDING = TOKENS > 64 ? 1 : 0;
    const int per_tile = stage_count();
    int previous = -1;
    for (int i = 0; i < per_tile; i++) {
      barrier_wait(full + 8 * cursor.slot, cursor.parity);
      const uint32_t b = ring + cursor.slot * stage_bytes + group * group_bytes;
      const uint32_t a = b + STEP * ROWS * 128 + token_group * 64 * 128;
      wgmma_fence();
#pragma unroll
      for (int u = 0; u < STEP; u++) {
#pragma unroll
        for (int k = 0; k < 4; k++)
          Wgmma<ROWS>::shared(acc, descriptor_k_major(a + u * x_bytes + k * 32),
                              descriptor_k_major(b + u * ROWS * 128 + k * 32), (i | u | k) != 0);
      }
      wgmma_commit();
      wgmma_wait<PENDING>();
      const int read = PENDING ? previous : cursor.slot;
      if (read >= 0 && lane == 0) barrier_arrive(empty + 8 * read);
      previous = cursor.slot;
      cursor.advance(p.stages);
    }
    wgmma_wait<0>();
    // Keeps the compiler from reading accumulators before the wait.
#pragma unroll
    for (int i = 0; i < ROWS / 2; i++) asm volatile("" : "+f"(acc[i])::"memory");
    if (PENDING && lane == 0) barrier_arrive(empty + 8 * previous);
  }

  // Where chunk `chunk`'s partial sum of (token, row) lies when the chunks live in the warps of one block.
  __device__ __forceinline__ uint32_t partial_at(int buffer, int chunk, int token, int row) const {
    return partial + (((buffer * SHAPE::CHUNKS + chunk) * TOKENS + token) * SHAPE::PARTIAL_PITCH + row) * 4;
  }

  static constexpr int PAIRS = ROWS / 2;
  static constexpr int ITEMS = LOCAL > 1 ? (TOKENS * PAIRS + SHAPE::CONSUMERS * 32 - 1) / (SHAPE::CONSUMERS * 32) : 1;

  // Bias or residual of two neighbouring outputs.
  __device__ __forceinline__ uint32_t addend_at(unsigned token, unsigned column) const {
    const uint16_t *from = p.epilogue == SAMETREE_EPILOGUE_BIAS ? p.bias + column : p.residual + static_cast<size_t>(token) * p.n_out + column;
    return token < p.m && column < p.n_out ? *reinterpret_cast<const uint32_t *>(from) : 0;
  }
  __device__ __forceinline__ bool adds() const {
    return p.epilogue == SAMETREE_EPILOGUE_BIAS || p.epilogue == SAMETREE_EPILOGUE_RESIDUAL;
  }
  __device__ __forceinline__ void store_pair(unsigned token, unsigned column, float a, float b) const {
    const size_t at = static_cast<size_t>(token) * p.n_out + column;
    if (p.store_f32)
      *reinterpret_cast<float2 *>(static_cast<float *>(p.y) + at) = make_float2(a, b);
    else
      *reinterpret_cast<uint32_t *>(static_cast<uint16_t *>(p.y) + at) = pack_bf16(a, b);
  }

  // The sum of the chunks of two neighbouring rows, left to right.
  __device__ __forceinline__ float2 add_chunks(int buffer, int token, int row) const {
    float2 sum;
    asm volatile("ld.shared.v2.f32 {%0,%1}, [%2];" : "=f"(sum.x), "=f"(sum.y) : "r"(partial_at(buffer, 0, token, row)));
#pragma unroll
    for (int c = 1; c < SHAPE::CHUNKS; c++) {
      float2 next;
      asm volatile("ld.shared.v2.f32 {%0,%1}, [%2];" : "=f"(next.x), "=f"(next.y) : "r"(partial_at(buffer, c, token, row)));
      sum.x = __fadd_rn(sum.x, next.x);
      sum.y = __fadd_rn(sum.y, next.y);
    }
    return sum;
  }

  // Chunks in the warps of one block: their sums meet in shared memory.
  __device__ __forceinline__ void meet_in_block(const float (&acc)[TOKENS / 8][4], int buffer, int tile, int chunk, int row) const {
    const int t = threadIdx.x & 3;
#pragma unroll
    for (int j = 0; j < TOKENS / 8; j++)
#pragma unroll
      for (int e = 0; e < 4; e++)
        asm volatile("st.shared.f32 [%0], %1;" ::"r"(partial_at(buffer, chunk, j * 8 + t * 2 + (e & 1), row + (e >> 1) * 8)), "f"(acc[j][e])
                     : "memory");
    // Bias or residual is fetched before the chunks meet: its latency is hidden there.
    uint32_t addend[ITEMS] = {};
    if (adds())
#pragma unroll
      for (int n = 0; n < ITEMS; n++) {
        const unsigned i = threadIdx.x + n * SHAPE::CONSUMERS * 32;
        addend[n] = addend_at(i / PAIRS, tile * ROWS + i % PAIRS * 2);
      }
    asm volatile("bar.sync 1, %0;" ::"n"(SHAPE::CONSUMERS * 32) : "memory");
    if (p.epilogue == SAMETREE_EPILOGUE_SILU_MUL) {
#pragma unroll 2
      for (unsigned i = threadIdx.x; i < p.m * (PAIRS / 2); i += SHAPE::CONSUMERS * 32) {
        const unsigned token = i / (PAIRS / 2), pair = i % (PAIRS / 2) * 2, gate = (pair >> 3) * 16 + (pair & 7);
        const float2 g = add_chunks(buffer, token, gate), up = add_chunks(buffer, token, gate + 8);
        linear_finish_pair(p, token, tile * ROWS / 2 + pair, g.x, g.y, up.x, up.y);
      }
      return;
    }
#pragma unroll
    for (int n = 0; n < ITEMS; n++) {
      const unsigned i = threadIdx.x + n * SHAPE::CONSUMERS * 32, token = i / PAIRS, column = tile * ROWS + i % PAIRS * 2;
      if (token >= p.m || column >= p.n_out) continue;
      float2 sum = add_chunks(buffer, token, i % PAIRS * 2);
      if (adds()) sum = make_float2(__fadd_rn(sum.x, low_f32(addend[n])), __fadd_rn(sum.y, high_f32(addend[n])));
      store_pair(token, column, sum.x, sum.y);
    }
  }

  // Chunks in two blocks of a cluster: each block finishes half of the rows. A thread sends the other half of its sums to
  // the thread of the same index in the neighbour, which holds the same tokens and rows of the other chunk, and the
  // neighbour's barrier counts the bytes. No block ends before all it is sent has arrived, and a slot is written again only
  // after its reader has sent the sums of the next tile.
  template <int RANK>
  __device__ __forceinline__ void meet_in_cluster(const float (&acc)[ROWS / 2], int round, int tile_n, unsigned first_token, int warp_token,
                                                  int quad, int t) const {
    constexpr int SLOTS = SHAPE::SLOTS, HALF = SLOTS * 4;
    const int buffer = round & 1;
    const uint32_t barrier = exchange_barrier + 8 * buffer;
    const uint32_t slot = partial + buffer * SHAPE::EXCHANGE_BYTES + threadIdx.x * 16;
    const unsigned token = first_token + warp_token + quad, row = tile_n * ROWS + RANK * SHAPE::OWN_ROWS;
    const uint32_t peer_slot = map_to_rank(slot, RANK ^ 1), peer_barrier = map_to_rank(barrier, RANK ^ 1);
#pragma unroll
    for (int j = 0; j < SLOTS; j++) store_cluster(peer_slot + j * SHAPE::CONSUMERS * 32 * 16, &acc[(RANK ? 0 : HALF) + j * 4], peer_barrier);
    // Fetched before the wait, which hides its latency, where registers allow it.
    constexpr bool EARLY = SLOTS <= 8;
    uint32_t addend[EARLY ? SLOTS : 1][2] = {};
    if (EARLY && adds())
#pragma unroll
      for (int j = 0; j < (EARLY ? SLOTS : 1); j++)
#pragma unroll
        for (int h = 0; h < 2; h++) addend[j][h] = addend_at(token + h * 8, row + j * 8 + t * 2);
    barrier_wait_cluster(barrier, (round >> 1) & 1);
    float sum[HALF];
#pragma unroll
    for (int j = 0; j < SLOTS; j++) {
      float received[4];
      asm volatile("ld.shared.v4.f32 {%0,%1,%2,%3}, [%4];"
                   : "=f"(received[0]), "=f"(received[1]), "=f"(received[2]), "=f"(received[3])
                   : "r"(slot + j * SHAPE::CONSUMERS * 32 * 16)
                   : "memory");
      // Two chunks: their sum does not depend on which one is named first.
#pragma unroll
      for (int e = 0; e < 4; e++) sum[j * 4 + e] = __fadd_rn(acc[(RANK ? HALF : 0) + j * 4 + e], received[e]);
    }
    if (p.epilogue == SAMETREE_EPILOGUE_SILU_MUL) {
#pragma unroll
      for (int h = 0; h < 2; h++) finish_silu<SLOTS / 2>(sum, token, row, h, t);
      return;
    }
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
      for (int j = 0; j < SLOTS; j++) {
        const unsigned column = row + j * 8 + t * 2;
        if (token + h * 8 >= p.m || column >= p.n_out) continue;
        float a = sum[j * 4 + h * 2], b = sum[j * 4 + h * 2 + 1];
        if (adds()) {
          const uint32_t pair = EARLY ? addend[EARLY ? j : 0][h] : addend_at(token + h * 8, column);
          a = __fadd_rn(a, low_f32(pair)), b = __fadd_rn(b, high_f32(pair));
        }
        store_pair(token + h * 8, column, a, b);
      }
  }

  // One token's pairs of eight gate rows and eight up rows, from weight row `row` on.
  template <int BLOCKS, int COUNT>
  __device__ __forceinline__ void finish_silu(const float (&sum)[COUNT], unsigned token, unsigned row, int h, int t) const {
#pragma unroll
    for (int j = 0; j < BLOCKS; j++)
      linear_finish_pair(p, token + h * 8, row / 2 + j * 8 + t * 2, sum[j * 8 + h * 2], sum[j * 8 + h * 2 + 1], sum[j * 8 + 4 + h * 2],
                         sum[j * 8 + 4 + h * 2 + 1]);
  }

  __device__ __forceinline__ void consume(int warp, int lane) {
    const int group = warp / SHAPE::WARPS_PER_CHUNK, part = warp % SHAPE::WARPS_PER_CHUNK;
    const int quad = lane >> 2, t = lane & 3;
    Cursor cursor;
    int round = 0;
    for (unsigned tile = cluster; tile < tile_count(); tile += clusters, round++) {
      if constexpr (CONSUMER == Consumer::MmaSync) {
        float acc[TOKENS / 8][4];
        chain(acc, cursor, group, part, lane);
        if (round == 0) wait_for_predecessor();
        if constexpr (SHAPE::CHUNKS == 1)
          finish_mma(acc, tile, part, quad, t);
        else
          meet_in_block(acc, round & 1, tile, group, part * 16 + quad);
      } else {
        float acc[ROWS / 2];
        if constexpr (CLUSTER > 1) {
          // Every thread is sent its slots, also for tokens past the last row, so that the order above holds for each.
          if (threadIdx.x == 0) barrier_expect(exchange_barrier + 8 * (round & 1), SHAPE::EXCHANGE_BYTES);
        }
        chain(acc, cursor, group, part >> 2, lane);
        if (round == 0) {
          wait_for_predecessor();
          if constexpr (CLUSTER > 1) cluster_wait();
        }
        const unsigned tile_n = tile / p.tiles_m, first_token = tile % p.tiles_m * TOKENS;
        if constexpr (SHAPE::CHUNKS == 1)
          finish_wgmma(acc, tile_n, first_token + part * 16 + quad, t);
        else if (rank == 0)
          meet_in_cluster<0>(acc, round, tile_n, first_token, part * 16, quad, t);
        else
          meet_in_cluster<1>(acc, round, tile_n, first_token, part * 16, quad, t);
      }
    }
  }

  __device__ __forceinline__ void finish_mma(const float (&acc)[TOKENS / 8][4], int tile, int row_warp, int quad, int t) const {
    const unsigned row = tile * ROWS + row_warp * 16 + quad;
#pragma unroll
    for (int j = 0; j < TOKENS / 8; j++)
#pragma unroll
      for (int e = 0; e < 2; e++) {
        const unsigned token = j * 8 + t * 2 + e;
        if (token >= p.m) continue;
        if (p.epilogue == SAMETREE_EPILOGUE_SILU_MUL) {
          const unsigned column = (tile * ROWS + row_warp * 16) / 2 + quad;
          if (column < p.n_out) linear_store(p, token, column, linear_epilogue(p, token, column, acc[j][e], acc[j][e + 2]));
        } else {
          if (row < p.n_out) linear_store(p, token, row, linear_epilogue(p, token, row, acc[j][e], 0.0f));
          if (row + 8 < p.n_out) linear_store(p, token, row + 8, linear_epilogue(p, token, row + 8, acc[j][e + 2], 0.0f));
        }
      }
  }

  __device__ __forceinline__ void finish_wgmma(const float (&acc)[ROWS / 2], int tile, unsigned token, int t) const {
    const bool silu = p.epilogue == SAMETREE_EPILOGUE_SILU_MUL;
#pragma unroll
    for (int h = 0; h < 2; h++) {
      if (silu) {
        finish_silu<ROWS / 16>(acc, token, tile * ROWS, h, t);
        continue;
      }
#pragma unroll
      for (int j = 0; j < ROWS / 8; j++)
        linear_finish_pair(p, token + h * 8, tile * ROWS + j * 8 + t * 2, acc[j * 4 + h * 2], acc[j * 4 + h * 2 + 1], 0.0f, 0.0f);
    }
  }
};

template <Consumer CONSUMER, int ROWS, int TOKENS, int LOCAL, int CLUSTER, int STEP>
__device__ __forceinline__ void linear_stream(const CUtensorMap &weight_map, const CUtensorMap &x_map, const LinearParams &p) {
  using SHAPE = StreamShape<CONSUMER, ROWS, TOKENS, LOCAL, CLUSTER, STEP>;
  extern __shared__ uint8_t dynamic_shared[];
  const uint32_t base = (shared_address(dynamic_shared) + 1023) & ~1023u;
  const uint32_t x_bytes = p.x_rows_loaded * 128;
  const uint32_t group_bytes = STEP * (ROWS * 128 + x_bytes);
  const uint32_t stage_bytes = LOCAL * group_bytes;
  const uint32_t barriers = base + p.stages * stage_bytes, exchange = barriers + 8 * 2 * STREAM_STAGES_MAX;
  const uint32_t rank = CLUSTER > 1 ? cluster_rank() : 0;
  Stream<SHAPE, CONSUMER, ROWS, TOKENS, LOCAL, CLUSTER, STEP> stream{
      p, &weight_map, &x_map, base, barriers, barriers + 8 * STREAM_STAGES_MAX, exchange, barriers + STREAM_BARRIER_BYTES,
      rank, blockIdx.x / CLUSTER, gridDim.x / CLUSTER, x_bytes, group_bytes, stage_bytes};
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  // Before the barriers are made: fetching a map takes as long.
  if (threadIdx.x == SHAPE::CONSUMERS * 32) prefetch_map(&weight_map);
  if (threadIdx.x == SHAPE::CONSUMERS * 32 + 32) prefetch_map(&x_map);
  if (threadIdx.x == 0) {
    for (int i = 0; i < static_cast<int>(p.stages); i++) {
      barrier_init(stream.full + 8 * i, 2);
      barrier_init(stream.empty + 8 * i, SHAPE::CONSUMERS);
    }
    barrier_init(exchange, 1);
    barrier_init(exchange + 8, 1);
    barrier_init_fence();
  }
  __syncthreads();
  if constexpr (CLUSTER > 1) cluster_arrive();
  let_successor_start();
  if (warp >= SHAPE::CONSUMERS) {
    if (lane == 0) {
      if (warp == SHAPE::CONSUMERS)
        stream.produce_weights();
      else
        stream.produce_x();
    }
    __syncwarp();
    if constexpr (CLUSTER > 1) cluster_wait();
  } else {
    stream.consume(warp, lane);
  }
}

}  // namespace sametree
