// Paged attention for few query rows a sequence: KV is streamed once, splits run in parallel and are merged in order.
//
// math     out = softmax(q · Kᵀ * scale) · V over the tokens that each row sees
// shapes   q, out [rows, q_heads, head_dim]; up to 8 columns (rows x group) a block and KV head
// tree     AttentionTree of reduction-tree
// tile     128 tokens; operands swapped: tokens, then head dimensions are the M of mma.sync, the 8 columns its N
// launch   persistent, work item = (split, block, KV head); four consuming warps, four loading warps; the block that completes
//          the last split of a (block, KV head) merges them left to right
// shared   ring of STAGES x (K + V tile), P [8, 128] bf16, row sums by k16 step
// bytes    K and V once, partial states (head_dim + 2) x 4 bytes a split and column
// rounding score steps, exp2, l additions, P to bf16, P·V steps, merge, out to bf16
#include "kv_load.cuh"

using namespace sametree;

namespace {

constexpr int WARPS = 4;
constexpr int P_PITCH = KV_TILE + 8;  // elements; keeps the fragment loads free of bank conflicts

template <int HALVES>
struct DecodeShape {
  static constexpr int D = HALVES * 64;
  static constexpr int STAGES = HALVES == 2 ? 3 : 6;
  static constexpr int M_TILES = D / 16 / WARPS;
  static_assert(D % (16 * WARPS) == 0, "each warp holds whole m16 tiles of the head dimension");
  static constexpr int RECORD = 8 * (D + 2);  // floats: acc [8, D], then (c, l) [8]
};

struct Scratch {
  uint16_t p[8 * P_PITCH];
  float sums[8][8][8];  // [k16 step][column][lane]
  float maxima[WARPS][8];
  float alpha[8];
  SoftmaxState state[8];
  unsigned ticket;
};

struct Item {
  unsigned block, head, split;  // split counted from the first that the block sees
};
__device__ __forceinline__ Item item_at(unsigned index, const AttentionParams &p) {
  const unsigned heads = p.kv.kv_heads, head = index % heads, rest = index / heads;
  return {rest % p.block_count, head, rest / p.block_count};
}

__device__ __forceinline__ void consumers_sync() { asm volatile("bar.sync 1, 128;" ::: "memory"); }

template <int HALVES>
struct Consumer {
  using SHAPE = DecodeShape<HALVES>;
  const AttentionParams &p;
  Scratch &scratch;
  uint32_t ring, full_k, full_v, empty_k, empty_v;
  int warp, lane, quad, t, slot = 0;
  uint32_t parity = 0;
  uint32_t q[HALVES * 4][2];
  float acc[SHAPE::M_TILES][4];
  float c[2];  // of columns 2t and 2t + 1
  float l;     // of (column, lane) = (thread / 8, thread mod 8), in the first 64 threads

  __device__ __forceinline__ void load_query(const QueryBlock &block, unsigned head, unsigned columns) {
    const bool used = static_cast<unsigned>(quad) < columns;
    const size_t row = block.first_row + quad / p.group, q_head = head * p.group + quad % p.group;
    const uint16_t *from = p.q + (row * p.q_heads + q_head) * p.kv.head_dim;
#pragma unroll
    for (int k = 0; k < HALVES * 4; k++)
#pragma unroll
      for (int b = 0; b < 2; b++) {
        const unsigned at = k * 16 + b * 8 + t * 2;
        q[k][b] = used && at < p.kv.head_dim ? *reinterpret_cast<const uint32_t *>(from + at) : 0;
      }
  }

  // Scores of this warp's 32 tokens: s[i][e] is token 16i + quad (+ 8), column 2t + (e & 1).
  __device__ __forceinline__ void scores(float (&s)[2][4], uint32_t k_tile) const {
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
      for (int e = 0; e < 4; e++) s[i][e] = 0.0f;
#pragma unroll
    for (int k = 0; k < HALVES * 4; k++)
#pragma unroll
      for (int i = 0; i < 2; i++) {
        uint32_t a[4];
        const int row = warp * 32 + i * 16 + (lane & 15), unit = (k & 3) * 2 + (lane >> 4);
        load_matrix_x4(a, k_tile + (k >> 2) * KV_TILE * 128 + row * 128 + ((unit ^ (row & 7)) << 4));
        mma_k16(s[i], a, q[k][0], q[k][1]);
      }
  }

  __device__ __forceinline__ void tile(unsigned first, const unsigned (&position)[2]) {
    barrier_wait(full_k + 8 * slot, parity);
    const uint32_t k_tile = ring + slot * 2 * KV_TILE_BYTES<HALVES>, v_tile = k_tile + KV_TILE_BYTES<HALVES>;
    float s[2][4];
    scores(s, k_tile);
    barrier_arrive(empty_k + 8 * slot);
    float high[2] = {-INFINITY, -INFINITY};
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
      for (int e = 0; e < 4; e++) {
        const unsigned token = first + warp * 32 + i * 16 + quad + (e >> 1) * 8;
        if (!row_sees(position[e & 1], token, p.window)) s[i][e] = -INFINITY;
        high[e & 1] = fmaxf(high[e & 1], s[i][e]);
      }
#pragma unroll
    for (int e = 0; e < 2; e++) {
#pragma unroll
      for (int step = 4; step < 32; step *= 2) high[e] = fmaxf(high[e], __shfl_xor_sync(~0u, high[e], step));
      if (quad == 0) scratch.maxima[warp][t * 2 + e] = high[e];
    }
    consumers_sync();
    float alpha[2];
#pragma unroll
    for (int e = 0; e < 2; e++) {
      float all = scratch.maxima[0][t * 2 + e];
#pragma unroll
      for (int w = 1; w < WARPS; w++) all = fmaxf(all, scratch.maxima[w][t * 2 + e]);
      const float next = fmaxf(c[e], __fmul_rn(all, p.scale_log2));
      alpha[e] = row_sees_any(position[e], first, KV_TILE, p.window) ? exp2_tree(__fsub_rn(c[e], next)) : 1.0f;
      c[e] = next;
      if (warp == 0 && quad == 0) scratch.alpha[t * 2 + e] = alpha[e];
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
#pragma unroll
      for (int e = 0; e < 4; e++) {
        s[i][e] = exp2_tree(__fmaf_rn(s[i][e], p.scale_log2, -c[e & 1]));
        scratch.p[(t * 2 + (e & 1)) * P_PITCH + warp * 32 + i * 16 + quad + (e >> 1) * 8] = f32_to_bf16(s[i][e]);
      }
#pragma unroll
      for (int e = 0; e < 2; e++) scratch.sums[warp * 2 + i][t * 2 + e][quad] = __fadd_rn(s[i][e], s[i][e + 2]);
    }
    consumers_sync();
    if (threadIdx.x < 64) {
      const int column = threadIdx.x >> 3, g = threadIdx.x & 7;
      l = __fmul_rn(l, scratch.alpha[column]);
#pragma unroll
      for (int i = 0; i < 8; i++) l = __fadd_rn(l, scratch.sums[i][column][g]);
    }
    barrier_wait(full_v + 8 * slot, parity);
#pragma unroll
    for (int m = 0; m < SHAPE::M_TILES; m++)
#pragma unroll
      for (int e = 0; e < 4; e++) acc[m][e] = __fmul_rn(acc[m][e], alpha[e & 1]);
#pragma unroll
    for (int k = 0; k < KV_TILE / 16; k++) {
      const uint16_t *from = scratch.p + quad * P_PITCH + k * 16 + t * 2;
      const uint32_t b0 = *reinterpret_cast<const uint32_t *>(from), b1 = *reinterpret_cast<const uint32_t *>(from + 8);
#pragma unroll
      for (int m = 0; m < SHAPE::M_TILES; m++) {
        uint32_t a[4];
        const int row = k * 16 + (lane & 7) + ((lane >> 4) << 3), unit = (warp * SHAPE::M_TILES + m) * 2 + ((lane >> 3) & 1);
        load_matrix_x4_trans(a, v_tile + (unit >> 3) * KV_TILE * 128 + row * 128 + (((unit & 7) ^ (row & 7)) << 4));
        mma_k16(acc[m], a, b0, b1);
      }
    }
    barrier_arrive(empty_v + 8 * slot);
    if (++slot == SHAPE::STAGES) slot = 0, parity ^= 1;
  }

  __device__ __forceinline__ uint16_t *out_at(const QueryBlock &block, unsigned head, unsigned column) const {
    const size_t row = block.first_row + column / p.group, q_head = head * p.group + column % p.group;
    return p.out + (row * p.q_heads + q_head) * p.kv.head_dim;
  }

  // Closes the split: the lanes of l are added by the pairwise tree and its state published to the block.
  __device__ __forceinline__ void close_split() {
    if (threadIdx.x < 64) {
#pragma unroll
      for (int step = 1; step < 8; step *= 2) l = __fadd_rn(l, __shfl_xor_sync(~0u, l, step));
      if ((threadIdx.x & 7) == 0) scratch.state[threadIdx.x >> 3].l = l;
    }
    if (warp == 0 && quad == 0) scratch.state[t * 2].c = c[0], scratch.state[t * 2 + 1].c = c[1];
    consumers_sync();
  }

  __device__ __forceinline__ void finish_single(const QueryBlock &block, unsigned head, unsigned columns) const {
#pragma unroll
    for (int e = 0; e < 4; e++) {
      const unsigned column = t * 2 + (e & 1);
      if (column >= columns) continue;
      const float r = __frcp_rn(scratch.state[column].l);
      uint16_t *to = out_at(block, head, column);
#pragma unroll
      for (int m = 0; m < SHAPE::M_TILES; m++) {
        const unsigned d = (warp * SHAPE::M_TILES + m) * 16 + quad + (e >> 1) * 8;
        if (d < p.kv.head_dim) to[d] = f32_to_bf16(__fmul_rn(acc[m][e], r));
      }
    }
  }

  __device__ __forceinline__ void publish(float *record, unsigned columns) const {
#pragma unroll
    for (int e = 0; e < 4; e++) {
      const unsigned column = t * 2 + (e & 1);
      if (column >= columns) continue;
#pragma unroll
      for (int m = 0; m < SHAPE::M_TILES; m++)
        record[column * SHAPE::D + (warp * SHAPE::M_TILES + m) * 16 + quad + (e >> 1) * 8] = acc[m][e];
    }
    if (threadIdx.x < columns) {
      record[8 * SHAPE::D + threadIdx.x * 2] = scratch.state[threadIdx.x].c;
      record[8 * SHAPE::D + threadIdx.x * 2 + 1] = scratch.state[threadIdx.x].l;
    }
  }

  // Merges the splits of one (block, head) left to right; one warp a column, HALVES x 2 neighbouring dimensions a lane.
  // Splits are taken in groups: all loads of a group first, since their latency is what the merge costs.
  __device__ __forceinline__ void merge(const QueryBlock &block, const Span &span, unsigned head, const float *records, unsigned columns) const {
    constexpr int GROUP = 8;
    for (unsigned column = warp; column < columns; column += WARPS) {
      const unsigned position = block.first_position + column / p.group;
      float total[HALVES * 2];
      SoftmaxState state{-INFINITY, 0.0f};
      bool any = false;
      for (unsigned first = 0; first < span.split_count; first += GROUP) {
        float2 next[GROUP][HALVES], cl[GROUP];
#pragma unroll
        for (int g = 0; g < GROUP; g++) {
          const float *record = records + static_cast<size_t>(min(first + g, span.split_count - 1)) * SHAPE::RECORD;
          cl[g] = __ldcg(reinterpret_cast<const float2 *>(record + 8 * SHAPE::D) + column);
#pragma unroll
          for (int i = 0; i < HALVES; i++) next[g][i] = __ldcg(reinterpret_cast<const float2 *>(record + column * SHAPE::D + i * 64) + lane);
        }
#pragma unroll
        for (int g = 0; g < GROUP; g++) {
          const unsigned s = first + g;
          if (s >= span.split_count || !row_sees_any(position, (span.split_first + s) * p.kv_split, p.kv_split, p.window)) continue;
          if (!any) {
            any = true;
            state = {cl[g].x, cl[g].y};
#pragma unroll
            for (int i = 0; i < HALVES; i++) total[i * 2] = next[g][i].x, total[i * 2 + 1] = next[g][i].y;
          } else {
            float a, b;
            merge_weights(state, {cl[g].x, cl[g].y}, a, b);
#pragma unroll
            for (int i = 0; i < HALVES; i++) {
              total[i * 2] = __fmaf_rn(next[g][i].x, b, __fmul_rn(total[i * 2], a));
              total[i * 2 + 1] = __fmaf_rn(next[g][i].y, b, __fmul_rn(total[i * 2 + 1], a));
            }
          }
        }
      }
      const float r = __frcp_rn(state.l);
      uint16_t *to = out_at(block, head, column);
#pragma unroll
      for (int i = 0; i < HALVES; i++) {
        const unsigned d = i * 64 + lane * 2;
        if (d < p.kv.head_dim)
          *reinterpret_cast<uint32_t *>(to + d) = pack_bf16(__fmul_rn(total[i * 2], r), __fmul_rn(total[i * 2 + 1], r));
      }
    }
  }

  __device__ __forceinline__ void item(const Item &item) {
    const QueryBlock block = p.blocks[item.block];
    const Span span(block, p);
    if (item.split >= span.split_count) return;
    const unsigned columns = block.rows * p.group;
    const unsigned split_begin = (span.split_first + item.split) * p.kv_split;
    const unsigned begin = max(span.low, split_begin) / KV_TILE * KV_TILE, end = min(span.high, split_begin + p.kv_split);
    load_query(block, item.head, columns);
    const unsigned position[2] = {block.first_position + (t * 2) / p.group, block.first_position + (t * 2 + 1) / p.group};
    c[0] = c[1] = -INFINITY;
    l = 0.0f;
#pragma unroll
    for (int m = 0; m < SHAPE::M_TILES; m++)
#pragma unroll
      for (int e = 0; e < 4; e++) acc[m][e] = 0.0f;
    for (unsigned first = begin; first < end; first += KV_TILE) tile(first, position);
    close_split();
    if (span.split_count == 1) {
      finish_single(block, item.head, columns);
      return;
    }
    const unsigned pair = item.block * p.kv.kv_heads + item.head;
    float *records = p.partial + static_cast<size_t>(pair) * p.split_max * SHAPE::RECORD;
    publish(records + static_cast<size_t>(item.split) * SHAPE::RECORD, columns);
    __threadfence();
    consumers_sync();
    if (threadIdx.x == 0) scratch.ticket = atomicAdd(p.arrived + pair, 1u);
    consumers_sync();
    if (scratch.ticket + 1 == span.split_count) {
      __threadfence();
      merge(block, span, item.head, records, columns);
      if (threadIdx.x == 0) p.arrived[pair] = 0;
    }
  }
};

template <int HALVES>
__device__ __forceinline__ void produce(const AttentionParams &p, uint32_t ring, unsigned value, unsigned part, uint32_t full,
                                        uint32_t empty, int lane) {
  using SHAPE = DecodeShape<HALVES>;
  int slot = 0;
  uint32_t parity = 1;
  const unsigned items = p.block_count * p.kv.kv_heads * p.split_max;
  for (unsigned index = blockIdx.x; index < items; index += gridDim.x) {
    const Item item = item_at(index, p);
    const QueryBlock block = p.blocks[item.block];
    const Span span(block, p);
    if (item.split >= span.split_count) continue;
    const unsigned split_begin = (span.split_first + item.split) * p.kv_split;
    const unsigned begin = max(span.low, split_begin) / KV_TILE * KV_TILE, end = min(span.high, split_begin + p.kv_split);
    for (unsigned first = begin; first < end; first += KV_TILE) {
      barrier_wait(empty + 8 * slot, parity);
      load_kv_value<HALVES>(ring + (slot * 2 + value) * KV_TILE_BYTES<HALVES>, p.kv, p.tables + block.table_offset, item.head, value, part,
                           first, span.low, span.high, full + 8 * slot, lane);
      if (++slot == SHAPE::STAGES) slot = 0, parity ^= 1;
    }
  }
}

template <int HALVES>
__device__ __forceinline__ void attention_decode(const AttentionParams &p) {
  using SHAPE = DecodeShape<HALVES>;
  extern __shared__ uint8_t dynamic_shared[];
  __shared__ Scratch scratch;
  __shared__ uint64_t barriers[4 * SHAPE::STAGES];
  const uint32_t ring = (shared_address(dynamic_shared) + 1023) & ~1023u;
  const uint32_t full_k = shared_address(barriers), full_v = full_k + 8 * SHAPE::STAGES, empty_k = full_v + 8 * SHAPE::STAGES,
                 empty_v = empty_k + 8 * SHAPE::STAGES;
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  if (threadIdx.x == 0) {
    for (int i = 0; i < SHAPE::STAGES; i++) {
      barrier_init(full_k + 8 * i, KV_LOADED_ARRIVALS);
      barrier_init(full_v + 8 * i, KV_LOADED_ARRIVALS);
      barrier_init(empty_k + 8 * i, WARPS * 32);
      barrier_init(empty_v + 8 * i, WARPS * 32);
    }
    barrier_init_fence();
  }
  __syncthreads();
  let_successor_start();
  wait_for_predecessor();
  if (warp >= WARPS) {
    const unsigned value = (warp >> 1) & 1;
    produce<HALVES>(p, ring, value, warp & 1, value ? full_v : full_k, value ? empty_v : empty_k, lane);
  } else {
    Consumer<HALVES> consumer{p, scratch, ring, full_k, full_v, empty_k, empty_v, warp, lane, lane >> 2, lane & 3};
    const unsigned items = p.block_count * p.kv.kv_heads * p.split_max;
    for (unsigned index = blockIdx.x; index < items; index += gridDim.x) consumer.item(item_at(index, p));
  }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(256, 1) attention_decode_d64(const AttentionParams p) { attention_decode<1>(p); }
extern "C" __global__ void __launch_bounds__(256, 1) attention_decode_d128(const AttentionParams p) { attention_decode<2>(p); }
