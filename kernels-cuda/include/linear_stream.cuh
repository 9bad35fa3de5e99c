// y = x · Wᵀ for few tokens: the weights are streamed once, and streaming them is what takes the time.
//
// math     y[m, n] = epilogue(sum over chunks, left to right, of chain(k16 steps of the chunk))
// shapes   x [m, k], W [n_rows, k], y [m, n_out], bfloat16 in, f32 accumulate
// tree     LinearTree of reduction-tree: one chain a chunk, chunks added left to right, epilogue, one rounding
// tile     ROWS weight rows by TOKENS tokens; a chunk is a group of warps of the block (LOCAL) or a block of the cluster
//          (CLUSTER); STEP blocks of 64 k a stage
// launch   one even wave of blocks, persistent over row tiles; one producer warp, the other warps consume; dependent launch:
//          the ring is filled with weights before the predecessor's output is awaited
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
  static constexpr int CHUNKS = LOCAL * CLUSTER;
  static constexpr int WARPS_PER_CHUNK = CONSUMER == Consumer::Wgmma ? TOKENS / 16 : ROWS / 16;
  static constexpr int CONSUMERS = LOCAL * WARPS_PER_CHUNK;
  static constexpr int THREADS = CONSUMERS * 32 + 32;
  static constexpr int OWN_ROWS = ROWS / CLUSTER;
  static constexpr int PARTIAL_PITCH = OWN_ROWS + 4;
  static constexpr uint32_t PARTIAL_BYTES = CHUNKS > 1 ? CHUNKS * TOKENS * PARTIAL_PITCH * 4 : 0;
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

  // Loads weights ahead of the predecessor's end, then both operands stage by stage.
  __device__ __forceinline__ void produce() {
    prefetch_map(x_map);
    prefetch_map(weight_map);
    const int per_tile = stage_count();
    const int mine = cluster < p.tiles_n ? (p.tiles_n - cluster + clusters - 1) / clusters : 0;
    const int total = mine * per_tile;
    const int blocks = p.chunk_blocks;
    int weight_block = 0, weight_row = cluster * ROWS, x_block = 0;
    const int first_chunk = rank * LOCAL;
    auto issue_weights = [&](uint32_t stage, uint32_t barrier) {
      const int steps = min(STEP, blocks - weight_block);
      barrier_expect(barrier, steps * LOCAL * (ROWS * 128 + x_bytes));
#pragma unroll
      for (int g = 0; g < LOCAL; g++)
#pragma unroll
        for (int u = 0; u < STEP; u++)
          if (u < steps)
            tensor_copy(stage + g * group_bytes + u * ROWS * 128, weight_map,
                        ((first_chunk + g) * blocks + weight_block + u) * 64, weight_row, barrier, EVICT_FIRST);
      weight_block += STEP;
      if (weight_block >= blocks) weight_block = 0, weight_row += clusters * ROWS;
    };
    auto issue_x = [&](uint32_t stage, uint32_t barrier) {
      const int steps = min(STEP, blocks - x_block);
#pragma unroll
      for (int g = 0; g < LOCAL; g++)
#pragma unroll
        for (int u = 0; u < STEP; u++)
          if (u < steps)
            tensor_copy(stage + g * group_bytes + STEP * ROWS * 128 + u * x_bytes, x_map,
                        ((first_chunk + g) * blocks + x_block + u) * 64, 0, barrier, EVICT_LAST);
      x_block += STEP;
      if (x_block >= blocks) x_block = 0;
    };
    const int stages = p.stages;
    const int ahead = min(total, stages);
    for (int i = 0; i < ahead; i++) issue_weights(ring + i * stage_bytes, full + 8 * i);
    wait_for_predecessor();
    for (int i = 0; i < ahead; i++) issue_x(ring + i * stage_bytes, full + 8 * i);
    int slot = 0;
    uint32_t parity = 0;
    for (int i = ahead; i < total; i++) {
      barrier_wait(empty + 8 * slot, parity);
      issue_weights(ring + slot * stage_bytes, full + 8 * slot);
      issue_x(ring + slot * stage_bytes, full + 8 * slot);
      if (++slot == stages) slot = 0, parity ^= 1;
    }
  }

  struct Cursor {
    int slot = 0;
    uint32_t parity = 0;
    __device__ __forceinline__ void advance(int stages) {
      if (++slot == stages) slot = 0, parity ^= 1;
    }
  };

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
      wgmma_wait<1>();
      if (previous >= 0 && lane == 0) barrier_arrive(empty + 8 * previous);
      previous = cursor.slot;
      cursor.advance(p.stages);
    }
    wgmma_wait<0>();
    // Keeps the compiler from reading accumulators before the wait.
#pragma unroll
    for (int i = 0; i < ROWS / 2; i++) asm volatile("" : "+f"(acc[i])::"memory");
    if (lane == 0) barrier_arrive(empty + 8 * previous);
  }

  // Where chunk `chunk`'s partial sum of (token, row of this block's own) lies.
  __device__ __forceinline__ uint32_t partial_at(int buffer, int chunk, int token, int row) const {
    return partial + (((buffer * SHAPE::CHUNKS + chunk) * TOKENS + token) * SHAPE::PARTIAL_PITCH + row) * 4;
  }

  __device__ __forceinline__ void push(int buffer, int chunk, int token, int row, float a, float b, int row_step) const {
    if constexpr (CLUSTER > 1) {
      const int owner = row / SHAPE::OWN_ROWS;
      store_cluster(map_to_rank(partial_at(buffer, chunk, token, row - owner * SHAPE::OWN_ROWS), owner), a, b);
    } else {
      const uint32_t at = partial_at(buffer, chunk, token, row);
      asm volatile("st.shared.f32 [%0], %1;" ::"r"(at), "f"(a) : "memory");
      asm volatile("st.shared.f32 [%0], %1;" ::"r"(at + row_step), "f"(b) : "memory");
    }
  }

  static constexpr int PAIRS = SHAPE::OWN_ROWS / 2;
  static constexpr int ITEMS = SHAPE::CHUNKS > 1 ? (TOKENS * PAIRS + SHAPE::CONSUMERS * 32 - 1) / (SHAPE::CONSUMERS * 32) : 1;

  // Bias or residual of the pairs that this thread will store, fetched before the chunks meet: its latency is hidden there.
  __device__ __forceinline__ void fetch_addends(uint32_t (&addend)[ITEMS], int tile) const {
    const bool bias = p.epilogue == SAMETREE_EPILOGUE_BIAS;
    if (!bias && p.epilogue != SAMETREE_EPILOGUE_RESIDUAL) return;
#pragma unroll
    for (int n = 0; n < ITEMS; n++) {
      const unsigned i = threadIdx.x + n * SHAPE::CONSUMERS * 32, token = i / PAIRS;
      const unsigned column = tile * ROWS + rank * SHAPE::OWN_ROWS + i % PAIRS * 2;
      if (token < p.m && column < p.n_out)
        addend[n] = *reinterpret_cast<const uint32_t *>(bias ? p.bias + column : p.residual + static_cast<size_t>(token) * p.n_out + column);
    }
  }

  // The sum of the chunks of two neighbouring rows of this block's own, left to right.
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

  __device__ __forceinline__ void finish_chunks(int buffer, int tile, const uint32_t (&addend)[ITEMS]) const {
    const unsigned first = tile * ROWS + rank * SHAPE::OWN_ROWS;
    if (p.epilogue == SAMETREE_EPILOGUE_SILU_MUL) {
#pragma unroll 2
      for (unsigned i = threadIdx.x; i < p.m * (PAIRS / 2); i += SHAPE::CONSUMERS * 32) {
        const unsigned token = i / (PAIRS / 2), pair = i % (PAIRS / 2) * 2, gate = (pair >> 3) * 16 + (pair & 7);
        const float2 g = add_chunks(buffer, token, gate), up = add_chunks(buffer, token, gate + 8);
        linear_finish_pair(p, token, first / 2 + pair, g.x, g.y, up.x, up.y);
      }
      return;
    }
    const bool adds = p.epilogue == SAMETREE_EPILOGUE_BIAS || p.epilogue == SAMETREE_EPILOGUE_RESIDUAL;
#pragma unroll
    for (int n = 0; n < ITEMS; n++) {
      const unsigned i = threadIdx.x + n * SHAPE::CONSUMERS * 32, token = i / PAIRS, column = first + i % PAIRS * 2;
      if (token >= p.m || column >= p.n_out) continue;
      float2 sum = add_chunks(buffer, token, i % PAIRS * 2);
      if (adds) sum = make_float2(__fadd_rn(sum.x, low_f32(addend[n])), __fadd_rn(sum.y, high_f32(addend[n])));
      const size_t at = static_cast<size_t>(token) * p.n_out + column;
      if (p.store_f32)
        *reinterpret_cast<float2 *>(static_cast<float *>(p.y) + at) = sum;
      else
        *reinterpret_cast<uint32_t *>(static_cast<uint16_t *>(p.y) + at) = pack_bf16(sum.x, sum.y);
    }
  }

  __device__ __forceinline__ void consume(int warp, int lane) {
    const int group = warp / SHAPE::WARPS_PER_CHUNK, part = warp % SHAPE::WARPS_PER_CHUNK;
    const int quad = lane >> 2, t = lane & 3;
    const int chunk = rank * LOCAL + group;
    Cursor cursor;
    int round = 0;
    bool cluster_ready = CLUSTER == 1;
    for (int tile = cluster; tile < static_cast<int>(p.tiles_n); tile += clusters, round++) {
      const int buffer = round & 1;
      if constexpr (CONSUMER == Consumer::MmaSync) {
        float acc[TOKENS / 8][4];
        chain(acc, cursor, group, part, lane);
        if constexpr (SHAPE::CHUNKS == 1) {
          if (round == 0) wait_for_predecessor();
          finish_mma(acc, tile, part, quad, t);
        } else {
#pragma unroll
          for (int j = 0; j < TOKENS / 8; j++)
#pragma unroll
            for (int e = 0; e < 4; e++)
              asm volatile("st.shared.f32 [%0], %1;" ::"r"(partial_at(buffer, chunk, j * 8 + t * 2 + (e & 1),
                                                                      part * 16 + quad + (e >> 1) * 8)),
                           "f"(acc[j][e])
                           : "memory");
        }
      } else {
        float acc[ROWS / 2];
        chain(acc, cursor, group, part >> 2, lane);
        const int token = part * 16 + quad;
        if constexpr (SHAPE::CHUNKS == 1) {
          if (round == 0) wait_for_predecessor();
          finish_wgmma(acc, tile, token, t);
        } else {
          if (!cluster_ready) cluster_wait(), cluster_ready = true;
#pragma unroll
          for (int h = 0; h < 2; h++)
            if (token + h * 8 < static_cast<int>(p.m))
#pragma unroll
              for (int j = 0; j < ROWS / 8; j++)
                push(buffer, chunk, token + h * 8, j * 8 + t * 2, acc[j * 4 + h * 2], acc[j * 4 + h * 2 + 1], 4);
        }
      }
      if constexpr (SHAPE::CHUNKS > 1) {
        uint32_t addend[ITEMS];
        if (round == 0) wait_for_predecessor();
        fetch_addends(addend, tile);
        if constexpr (CLUSTER > 1) {
          // Every thread publishes its own stores.
#pragma unroll
          for (int r = 0; r < CLUSTER; r++) barrier_arrive_remote(map_to_rank(exchange_barrier + 8 * buffer, r));
          barrier_wait_cluster(exchange_barrier + 8 * buffer, (round >> 1) & 1);
        } else {
          asm volatile("bar.sync 1, %0;" ::"n"(SHAPE::CONSUMERS * 32) : "memory");
        }
        finish_chunks(buffer, tile, addend);
      }
    }
    if (!cluster_ready) cluster_wait();
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

  __device__ __forceinline__ void finish_wgmma(const float (&acc)[ROWS / 2], int tile, int token, int t) const {
    const bool silu = p.epilogue == SAMETREE_EPILOGUE_SILU_MUL;
#pragma unroll
    for (int h = 0; h < 2; h++) {
      if (silu) {
#pragma unroll
        for (int j = 0; j < ROWS / 16; j++)
          linear_finish_pair(p, token + h * 8, tile * (ROWS / 2) + j * 8 + t * 2, acc[j * 8 + h * 2], acc[j * 8 + h * 2 + 1],
                             acc[j * 8 + 4 + h * 2], acc[j * 8 + 4 + h * 2 + 1]);
      } else {
#pragma unroll
        for (int j = 0; j < ROWS / 8; j++)
          linear_finish_pair(p, token + h * 8, tile * ROWS + j * 8 + t * 2, acc[j * 4 + h * 2], acc[j * 4 + h * 2 + 1], 0.0f, 0.0f);
      }
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
  // wgmma reads 64 rows of x although fewer were loaded; the rows past them are never stored, but must be in bounds.
  const uint32_t padding = CONSUMER == Consumer::Wgmma ? TOKENS * 128 : 0;
  const uint32_t barriers = base + p.stages * stage_bytes + padding;
  const uint32_t exchange = barriers + 8 * 2 * STREAM_STAGES_MAX;
  const uint32_t rank = CLUSTER > 1 ? cluster_rank() : 0;
  Stream<SHAPE, CONSUMER, ROWS, TOKENS, LOCAL, CLUSTER, STEP> stream{
      p, &weight_map, &x_map, base, barriers, barriers + 8 * STREAM_STAGES_MAX, exchange, barriers + STREAM_BARRIER_BYTES,
      rank, blockIdx.x / CLUSTER, gridDim.x / CLUSTER, x_bytes, group_bytes, stage_bytes};
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  if (threadIdx.x == 0) {
    for (int i = 0; i < static_cast<int>(p.stages); i++) {
      barrier_init(stream.full + 8 * i, 1);
      barrier_init(stream.empty + 8 * i, SHAPE::CONSUMERS);
    }
    barrier_init(exchange, CLUSTER * SHAPE::CONSUMERS * 32);
    barrier_init(exchange + 8, CLUSTER * SHAPE::CONSUMERS * 32);
    barrier_init_fence();
  }
  __syncthreads();
  if constexpr (CLUSTER > 1) cluster_arrive();
  let_successor_start();
  if (warp == SHAPE::CONSUMERS) {
    if (lane == 0) stream.produce();
    __syncwarp();
    if constexpr (CLUSTER > 1) cluster_wait();
  } else {
    stream.consume(warp, lane);
  }
  // A block stays until its neighbour's stores into its shared memory are done. The exchange barrier implies it; this says it
  // in a form that compute-sanitizer can check.
  if constexpr (CLUSTER > 1) {
    cluster_arrive();
    cluster_wait();
  }
}

}  // namespace sametree
