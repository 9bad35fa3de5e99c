// Paged attention for few query rows a sequence: KV is streamed once, splits run in parallel and are merged in order.
//
// math     out = softmax(q · Kᵀ * scale) · V over the tokens that each row sees
// shapes   q, out [rows, q_heads, head_dim]; up to 8 columns (rows x group) a block and KV head
// tree     AttentionTree of reduction-tree
// tile     128 tokens; operands swapped: tokens, then head dimensions are the M of mma.sync, the 8 columns its N
// launch   persistent, work item = (split, block, KV head); four consuming warps, one loading warp, four merging warps: those of
//          the block that completes the last split of a (block, KV head) merge its splits left to right
// shared   ring of STAGES x (K + V tile), P [8, 128] bf16, row sums by k16 step
// bytes    K and V once, partial states (head_dim + 2) x 4 bytes a split and column
// rounding score steps, exp2, l additions, P to bf16, P·V steps, merge, out to bf16
#include "kv_load.cuh"

using namespace sametree;

namespace {

constexpr int WARPS = 4;         // that consume, and as many that merge
constexpr int LOADER = WARPS;    // the loading warp; the merging warps follow it
constexpr int THREADS = (2 * WARPS + 1) * 32;
constexpr int P_PITCH = KV_TILE + 8;  // elements; keeps the fragment loads free of bank conflicts

template <int HALVES>
struct DecodeShape {
  static constexpr int D = HALVES * 64;
  static constexpr int STAGES = HALVES == 2 ? 3 : 6;
  static constexpr int M_TILES = D / 16 / WARPS;
  static_assert(D % (16 * WARPS) == 0, "each warp holds whole m16 tiles of the head dimension");
  static constexpr int RECORD = 8 * (D + 2);  // floats: acc [8, D], then (c, l) [8]
  static constexpr uint32_t STAGE_BYTES = 2 * KV_TILE_BYTES<HALVES>;
};

struct Scratch {
  uint16_t p[8 * P_PITCH];
  float sums[8][8][8];  // [k16 step][column][lane]
  float maxima[WARPS][8];
  float alpha[8];
  SoftmaxState state[8];
  float4 weights[WARPS][32];  // (a, b, l) of the splits that a warp merges next
  unsigned ticket[2];
};

// A load past the first cache level that stays where it is written: the compiler would move it to its use, where its latency
// shows.
__device__ __forceinline__ float2 load_now(const float2 *from) {
  float2 value;
  asm volatile("ld.global.cg.v2.f32 {%0,%1}, [%2];" : "=f"(value.x), "=f"(value.y) : "l"(from) : "memory");
  return value;
}

// Barriers of the ring and of the hand-over from the consuming to the merging warps.
struct Barriers {
  uint32_t full, empty, published, taken;
};

struct Item {
  unsigned block, head, split;  // split counted from the first that the block sees
};
__device__ __forceinline__ Item item_at(unsigned index, const AttentionParams &p) {
  const unsigned heads = p.kv.kv_heads, head = index % heads, rest = index / heads;
  return {rest % p.block_count, head, rest / p.block_count};
}
__device__ __forceinline__ unsigned item_count(const AttentionParams &p) { return p.block_count * p.kv.kv_heads * p.split_max; }

// Tokens of a split that its block sees, from the start of their first tile on.
struct Range {
  unsigned begin, end;
  __device__ __forceinline__ Range(const Span &span, unsigned split, const AttentionParams &p) {
    const unsigned first = (span.split_first + split) * p.kv_split;
    begin = max(span.low, first) / KV_TILE * KV_TILE, end = min(span.high, first + p.kv_split);
  }
};
__device__ __forceinline__ uint16_t *out_at(const AttentionParams &p, const QueryBlock &block, unsigned head, unsigned column) {
  const size_t row = block.first_row + column / p.group, q_head = head * p.group + column % p.group;
  return p.out + (row * p.q_heads + q_head) * p.kv.head_dim;
}

__device__ __forceinline__ void consumers_sync() { asm volatile("bar.sync 1, 128;" ::: "memory"); }

template <int HALVES>
struct Consumer {
  using SHAPE = DecodeShape<HALVES>;
  const AttentionParams &p;
  Scratch &scratch;
  const KvPages pages;
  uint32_t ring;
  const Barriers barriers;
  int warp, lane, quad, t, slot = 0;
  uint32_t parity = 0;
  unsigned published = 0;
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
  __device__ __forceinline__ void scores(float (&s)[2][4], uint32_t tile) const {
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
        load_matrix_x4(a, tile + pages.plane(0, k >> 2, HALVES) + pages.token<HALVES>(row) + ((unit ^ (row & 7)) << 4));
        mma_k16(s[i], a, q[k][0], q[k][1]);
      }
  }

  __device__ __forceinline__ void tile(unsigned first, const unsigned (&position)[2]) {
    barrier_wait(barriers.full + 8 * slot, parity);
    const uint32_t tile = ring + slot * SHAPE::STAGE_BYTES;
    float s[2][4];
    scores(s, tile);
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
        load_matrix_x4_trans(a, tile + pages.plane(1, unit >> 3, HALVES) + pages.token<HALVES>(row) + (((unit & 7) ^ (row & 7)) << 4));
        mma_k16(acc[m], a, b0, b1);
      }
    }
    barrier_arrive(barriers.empty + 8 * slot);
    if (threadIdx.x < 64) {
      const int column = threadIdx.x >> 3, g = threadIdx.x & 7;
      l = __fmul_rn(l, scratch.alpha[column]);
#pragma unroll
      for (int i = 0; i < 8; i++) l = __fadd_rn(l, scratch.sums[i][column][g]);
    }
    if (++slot == SHAPE::STAGES) slot = 0, parity ^= 1;
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
      uint16_t *to = out_at(p, block, head, column);
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

  __device__ __forceinline__ void item(const Item &item) {
    const QueryBlock block = p.blocks[item.block];
    const Span span(block, p);
    if (item.split >= span.split_count) return;
    const unsigned columns = block.rows * p.group;
    const Range range(span, item.split, p);
    load_query(block, item.head, columns);
    const unsigned position[2] = {block.first_position + (t * 2) / p.group, block.first_position + (t * 2 + 1) / p.group};
    c[0] = c[1] = -INFINITY;
    l = 0.0f;
#pragma unroll
    for (int m = 0; m < SHAPE::M_TILES; m++)
#pragma unroll
      for (int e = 0; e < 4; e++) acc[m][e] = 0.0f;
    for (unsigned first = range.begin; first < range.end; first += KV_TILE) tile(first, position);
    close_split();
    if (span.split_count == 1) {
      finish_single(block, item.head, columns);
      return;
    }
    const size_t pair = static_cast<size_t>(item.block) * p.kv.kv_heads + item.head;
    publish(p.partial + (pair * p.split_max + item.split) * SHAPE::RECORD, columns);
    // At most one record waits for the merging warps, so that the phases of the barrier cannot be confused.
    if (published > 0) barrier_wait(barriers.taken, (published - 1) & 1);
    barrier_arrive(barriers.published);
    published++;
  }
};

template <int HALVES>
struct Merger {
  using SHAPE = DecodeShape<HALVES>;
  const AttentionParams &p;
  Scratch &scratch;
  const Barriers barriers;
  int warp, lane;
  unsigned taken = 0;

  __device__ __forceinline__ bool first_thread() const { return warp == 0 && lane == 0; }

  // The weights of splits [first, first + 32) of a column, one a lane; splits outside [low, high) get none. `before` is the
  // maximum of the splits before, and becomes that of these too: a maximum does not depend on the order.
  __device__ __forceinline__ void weigh(const float *records, unsigned column, unsigned first, unsigned low, unsigned high, float &before) const {
    const unsigned split = first + lane;
    const bool seen = split >= low && split < high;
    const float2 cl = seen ? load_now(reinterpret_cast<const float2 *>(records + static_cast<size_t>(split) * SHAPE::RECORD + 8 * SHAPE::D) + column)
                           : make_float2(-INFINITY, 0.0f);
    float c = fmaxf(cl.x, before);
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const float lower = __shfl_up_sync(~0u, c, step);
      if (lane >= step) c = fmaxf(c, lower);
    }
    const float lower = __shfl_up_sync(~0u, c, 1), previous = lane == 0 ? before : lower;
    __syncwarp();
    scratch.weights[warp][lane] = make_float4(exp2_tree(__fsub_rn(previous, c)), exp2_tree(__fsub_rn(cl.x, c)), cl.y, 0.0f);
    __syncwarp();
    before = __shfl_sync(~0u, c, 31);
  }

  // Merges the splits of one column left to right, HALVES x 2 dimensions a lane. All loads of a group come before its
  // additions, since their latency is what the merge costs.
  __device__ __forceinline__ void column(const QueryBlock &block, const Span &span, unsigned head, const float *records, unsigned column) const {
    constexpr int GROUP = 16;
    const unsigned position = block.first_position + column / p.group;
    // Splits that this row sees, counted from the block's first.
    const unsigned row_low = p.window && position + 1 > p.window ? position + 1 - p.window : 0;
    const unsigned low = row_low / p.kv_split - span.split_first, high = position / p.kv_split - span.split_first + 1;
    float total[HALVES * 2] = {}, l = 0.0f, before = -INFINITY;
    for (unsigned first = low; first < high; first += GROUP) {
      float2 next[GROUP][HALVES];
#pragma unroll
      for (int g = 0; g < GROUP; g++) {
        const float *record = records + static_cast<size_t>(min(first + g, high - 1)) * SHAPE::RECORD + column * SHAPE::D;
#pragma unroll
        for (int i = 0; i < HALVES; i++) next[g][i] = load_now(reinterpret_cast<const float2 *>(record + i * 64) + lane);
      }
      if ((first - low) % 32 == 0) weigh(records, column, first, low, high, before);
#pragma unroll
      for (int g = 0; g < GROUP; g++) {
        const float4 w = scratch.weights[warp][(first - low) % 32 + g];
        const bool is_first = first + g == low, seen = first + g < high;
        auto merge = [&](float old, float now) { return seen ? (is_first ? now : __fmaf_rn(now, w.y, __fmul_rn(old, w.x))) : old; };
        l = merge(l, w.z);
#pragma unroll
        for (int i = 0; i < HALVES; i++) total[i * 2] = merge(total[i * 2], next[g][i].x), total[i * 2 + 1] = merge(total[i * 2 + 1], next[g][i].y);
      }
    }
    const float r = __frcp_rn(l);
    uint16_t *to = out_at(p, block, head, column);
#pragma unroll
    for (int i = 0; i < HALVES; i++) {
      const unsigned d = i * 64 + lane * 2;
      if (d < p.kv.head_dim) *reinterpret_cast<uint32_t *>(to + d) = pack_bf16(__fmul_rn(total[i * 2], r), __fmul_rn(total[i * 2 + 1], r));
    }
  }

  // Counts a published split. Whoever counts the last one of a (block, head) merges all of them.
  __device__ __forceinline__ void item(const Item &item) {
    const QueryBlock block = p.blocks[item.block];
    const Span span(block, p);
    if (item.split >= span.split_count || span.split_count == 1) return;
    const size_t pair = static_cast<size_t>(item.block) * p.kv.kv_heads + item.head;
    barrier_wait(barriers.published, taken & 1);
    unsigned &ticket = scratch.ticket[taken & 1];
    if (first_thread()) {
      __threadfence();
      ticket = atomicAdd(p.arrived + pair, 1u);
      __threadfence();
    }
    taken++;
    asm volatile("bar.sync 2, 128;" ::: "memory");
    if (first_thread()) barrier_arrive(barriers.taken);
    if (ticket + 1 != span.split_count) return;
    const float *records = p.partial + pair * p.split_max * SHAPE::RECORD;
    for (unsigned i = warp; i < block.rows * p.group; i += WARPS) column(block, span, item.head, records, i);
    if (first_thread()) p.arrived[pair] = 0;
  }
};

template <int HALVES>
__device__ __forceinline__ void produce(const AttentionParams &p, const KvPages &pages, uint32_t ring, const Barriers &barriers, int lane) {
  using SHAPE = DecodeShape<HALVES>;
  int slot = 0;
  uint32_t parity = 1;
  for (unsigned index = blockIdx.x; index < item_count(p); index += gridDim.x) {
    const Item item = item_at(index, p);
    const QueryBlock block = p.blocks[item.block];
    const Span span(block, p);
    if (item.split >= span.split_count) continue;
    const Range range(span, item.split, p);
    for (unsigned first = range.begin; first < range.end; first += KV_TILE) {
      barrier_wait(barriers.empty + 8 * slot, parity);
      load_kv_tile<HALVES>(ring + slot * SHAPE::STAGE_BYTES, p.kv, pages, p.tables + block.table_offset, item.head, first, span.low, span.high,
                           barriers.full + 8 * slot, lane);
      if (++slot == SHAPE::STAGES) slot = 0, parity ^= 1;
    }
  }
}

template <int HALVES>
__device__ __forceinline__ void attention_decode(const AttentionParams &p) {
  using SHAPE = DecodeShape<HALVES>;
  extern __shared__ uint8_t dynamic_shared[];
  __shared__ Scratch scratch;
  __shared__ uint64_t storage[2 * SHAPE::STAGES + 2];
  const uint32_t ring = (shared_address(dynamic_shared) + 1023) & ~1023u, base = shared_address(storage);
  const Barriers barriers{base, base + 8 * SHAPE::STAGES, base + 16 * SHAPE::STAGES, base + 16 * SHAPE::STAGES + 8};
  const KvPages pages(p.kv.page_tokens);
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  if (threadIdx.x == 0) {
    for (int i = 0; i < SHAPE::STAGES; i++) {
      barrier_init(barriers.full + 8 * i, KV_LOADED_ARRIVALS);
      barrier_init(barriers.empty + 8 * i, WARPS * 32);
    }
    barrier_init(barriers.published, WARPS * 32);
    barrier_init(barriers.taken, 1);
    barrier_init_fence();
  }
  __syncthreads();
  let_successor_start();
  wait_for_predecessor();
  if (warp == LOADER) {
    produce<HALVES>(p, pages, ring, barriers, lane);
  } else if (warp < WARPS) {
    Consumer<HALVES> consumer{p, scratch, pages, ring, barriers, warp, lane, lane >> 2, lane & 3};
    for (unsigned index = blockIdx.x; index < item_count(p); index += gridDim.x) consumer.item(item_at(index, p));
  } else {
    Merger<HALVES> merger{p, scratch, barriers, warp - WARPS - 1, lane};
    for (unsigned index = blockIdx.x; index < item_count(p); index += gridDim.x) merger.item(item_at(index, p));
  }
}

}  // namespace

#define DECODE_VARIANT(NAME, HALVES) \
  extern "C" __global__ void __launch_bounds__(288, 1) NAME(const AttentionParams p) { attention_decode<HALVES>(p); }

static_assert(THREADS == 288, "the launch bounds are a number, so that the launcher can be checked against them");
DECODE_VARIANT(attention_decode_d64, 1)
DECODE_VARIANT(attention_decode_d128, 2)
