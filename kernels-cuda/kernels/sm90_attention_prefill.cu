// Paged attention for many query rows a sequence: the tensor cores are what takes the time.
//
// math     out = softmax(q · Kᵀ * scale) · V over the tokens that each row sees
// shapes   q, out [rows, q_heads, head_dim]; a block is 128 packed rows: tokens x query heads of one KV head's group
// tree     AttentionTree of reduction-tree; splits one after the other
// tile     128 packed rows by 128 tokens; two warpgroups of 64 rows; scores of the next tile overlap P·V of this one
// launch   one block per (query block, KV head), longest first; four loading warps
// shared   q, ring of STAGES x (K + V tile), the total of the splits so far (16-byte slots of one thread each)
// bytes    K and V once a block, mostly from L2; q and out once
// rounding score steps, exp2, l additions, P to bf16, P·V steps, merge, out to bf16
#include "attention_rows.cuh"
#include "kv_load.cuh"

using namespace sametree;

namespace {

constexpr int ROWS = 128;

template <int HALVES>
struct PrefillShape {
  static constexpr int D = HALVES * 64;
  static constexpr int STAGES = HALVES == 2 ? 2 : 4;
  static constexpr uint32_t Q_BYTES = HALVES * ROWS * 128;
  static constexpr uint32_t TOTAL_BYTES = D / 2 * 4 * 256;
  static constexpr uint32_t SHARED_BYTES = 1024 + Q_BYTES + STAGES * 2 * KV_TILE_BYTES<HALVES> + TOTAL_BYTES;
  static_assert(ROWS == 128 && KV_TILE == 128, "the halves of q and of K lie equally far apart");
  static_assert(SHARED_BYTES + 32 * STAGES <= 232448, "a block has at most 227 KiB of shared memory");
};

// The two products of a tile. Descriptors count in 16-byte units, so that a part further on is an addition away.
template <int HALVES>
struct Products {
  using SHAPE = PrefillShape<HALVES>;
  static constexpr uint32_t STAGE_UNITS = 2 * KV_TILE_BYTES<HALVES> / 16;
  uint64_t q, k, v;  // of this warpgroup's rows, and of the first stage

  __device__ __forceinline__ Products(uint32_t q_rows, uint32_t ring)
      : q(descriptor_k_major(q_rows)),
        k(descriptor_k_major(ring)),
        v(descriptor_mn_major(ring + KV_TILE_BYTES<HALVES>, KV_TILE * 128)) {}

  __device__ __forceinline__ void issue_scores(float (&s)[64], int slot) const {
    const uint64_t stage = descriptor_at(k, slot * STAGE_UNITS);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < HALVES * 4; i++) {
      const uint32_t at = ((i >> 2) * 128 * 128 + (i & 3) * 32) / 16;
      Wgmma<KV_TILE>::shared(s, descriptor_at(q, at), descriptor_at(stage, at), i != 0);
    }
    wgmma_commit();
  }

  __device__ __forceinline__ void issue_values(float (&acc)[HALVES * 32], const uint32_t (&packed)[8][4], int slot, bool fresh) const {
    const uint64_t stage = descriptor_at(v, slot * STAGE_UNITS);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < KV_TILE / 16; i++) Wgmma<SHAPE::D>::registers(acc, packed[i], descriptor_at(stage, i * (16 * 128 / 16)), i != 0 || !fresh);
    wgmma_commit();
  }
};

// The warpgroups take turns at the tensor cores, so that one makes products while the other makes probabilities: in step,
// both would wait for products and then both for the other units. Barrier 2 + w is warpgroup w's turn.
__device__ __forceinline__ void wait_for_turn(int warpgroup) { asm volatile("bar.sync %0, 256;" ::"r"(2 + warpgroup) : "memory"); }
__device__ __forceinline__ void pass_turn(int warpgroup) { asm volatile("bar.arrive %0, 256;" ::"r"(3 - warpgroup) : "memory"); }

// Waits for P·V. The text differs, so that two waits are not made one.
template <bool BOUNDARY, int COUNT>
__device__ __forceinline__ void values_done(float (&acc)[COUNT]) {
  if constexpr (BOUNDARY)
    asm volatile("wgmma.wait_group.sync.aligned 0; // a split ends" ::: "memory");
  else
    asm volatile("wgmma.wait_group.sync.aligned 0; // a split goes on" ::: "memory");
#pragma unroll
  for (int e = 0; e < COUNT; e++) asm volatile("" : "+f"(acc[e])::"memory");
}

// Packed rows of q into swizzled shared memory; rows past the block and dimensions past the head become zero.
template <int HALVES>
__device__ __forceinline__ void load_query(const AttentionParams &p, const QueryBlock &block, unsigned head, uint32_t shared) {
#pragma unroll
  for (int n = 0; n < ROWS * HALVES * 8 / 256; n++) {
    const unsigned i = threadIdx.x + n * 256, unit = i % (HALVES * 8), row = i / (HALVES * 8), token = row / p.group;
    const bool inside = token < block.rows && unit * 8 < p.kv.head_dim;
    const size_t at = (static_cast<size_t>(block.first_row + token) * p.q_heads + head * p.group + row % p.group) * p.kv.head_dim + unit * 8;
    copy_async_16(shared + (unit >> 3) * ROWS * 128 + row * 128 + (((unit & 7) ^ (row & 7)) << 4), p.q + (inside ? at : 0), inside);
  }
  copy_async_commit();
  copy_async_wait<0>();
  proxy_fence();
  asm volatile("bar.sync 1, 256;" ::: "memory");
}

template <int HALVES>
__device__ __forceinline__ void attention_prefill(const AttentionParams &p) {
  using SHAPE = PrefillShape<HALVES>;
  extern __shared__ uint8_t dynamic_shared[];
  __shared__ uint64_t barriers[4 * SHAPE::STAGES];
  const uint32_t q_tile = (shared_address(dynamic_shared) + 1023) & ~1023u, ring = q_tile + SHAPE::Q_BYTES;
  const uint32_t full_k = shared_address(barriers), full_v = full_k + 8 * SHAPE::STAGES, empty_k = full_v + 8 * SHAPE::STAGES,
                 empty_v = empty_k + 8 * SHAPE::STAGES;
  // The shuffle tells the compiler that a warp's number is one value, so that descriptors live in uniform registers.
  const int warp = __shfl_sync(~0u, threadIdx.x >> 5, 0), lane = threadIdx.x & 31;
  // Blocks of one sequence ascend in position, so the last ones have the most tiles.
  const unsigned head = blockIdx.x % p.kv.kv_heads, index = p.block_count - 1 - blockIdx.x / p.kv.kv_heads;
  if (threadIdx.x == 0) {
    for (int i = 0; i < SHAPE::STAGES; i++) {
      barrier_init(full_k + 8 * i, KV_LOADED_ARRIVALS);
      barrier_init(full_v + 8 * i, KV_LOADED_ARRIVALS);
      barrier_init(empty_k + 8 * i, 2);
      barrier_init(empty_v + 8 * i, 2);
    }
    barrier_init_fence();
  }
  __syncthreads();
  let_successor_start();
  wait_for_predecessor();
  const QueryBlock block = p.blocks[index];
  const Span span(block, p);
  const unsigned tile_first = span.low / KV_TILE, tiles = (span.high - 1) / KV_TILE - tile_first + 1;
  if (warp >= 8) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    const unsigned value = (warp >> 1) & 1, part = warp & 1;
    const uint32_t full = value ? full_v : full_k, empty = value ? empty_v : empty_k;
    int slot = 0;
    uint32_t parity = 1;
    for (unsigned i = 0; i < tiles; i++) {
      barrier_wait(empty + 8 * slot, parity);
      load_kv_value<HALVES>(ring + (slot * 2 + value) * KV_TILE_BYTES<HALVES>, p.kv, p.tables + block.table_offset, head, value, part,
                           (tile_first + i) * KV_TILE, span.low, span.high, full + 8 * slot, lane);
      if (++slot == SHAPE::STAGES) slot = 0, parity ^= 1;
    }
    return;
  }
  asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
  load_query<HALVES>(p, block, head, q_tile);
  const int warpgroup = warp >> 2, row = warpgroup * 64 + (warp & 3) * 16 + (lane >> 2);
  const bool signals = (threadIdx.x & 127) == 0;
  const Products<HALVES> products(q_tile + warpgroup * 64 * 128, ring);
  Rows<HALVES, 256> rows{p,
                         ring + SHAPE::STAGES * 2 * KV_TILE_BYTES<HALVES> + threadIdx.x * 16,
                         {block.first_position + row / p.group, block.first_position + (row + 8) / p.group},
                         lane & 3};
  float s[64], acc[HALVES * 32], alpha[2];
  uint32_t packed[8][4];
  barrier_wait(full_k, 0);
  products.issue_scores(s, 0);
  wgmma_wait<0>();
  if (signals) barrier_arrive(empty_k);
  rows.softmax(s, tile_first * KV_TILE, alpha);
  rows.pack(s, packed);
  bool fresh = true;
  int slot = 0, next_slot = 1 % SHAPE::STAGES;
  uint32_t parity = 0, next_parity = SHAPE::STAGES == 1 ? 1 : 0;
  const unsigned tiles_per_split = p.kv_split / KV_TILE;
  unsigned split = tile_first / tiles_per_split, left = tiles_per_split - tile_first % tiles_per_split;
  const unsigned tile_end = tile_first + tiles;
  if (warpgroup == 1 && tiles > 1) pass_turn(warpgroup);
  for (unsigned next_tile = tile_first + 1; next_tile < tile_end; next_tile++) {
    barrier_wait(full_k + 8 * next_slot, next_parity);
    barrier_wait(full_v + 8 * slot, parity);
    wait_for_turn(warpgroup);
    products.issue_scores(s, next_slot);
    products.issue_values(acc, packed, slot, fresh);
    // The last turn of all is passed to nobody.
    if (warpgroup == 0 || next_tile + 1 < tile_end) pass_turn(warpgroup);
    wgmma_wait<1>();
    if (signals) barrier_arrive(empty_k + 8 * next_slot);
    const bool boundary = --left == 0;
    const RowState ended[2] = {rows.state[0], rows.state[1]};
    if (boundary) rows.state[0] = RowState(), rows.state[1] = RowState();
    rows.softmax(s, next_tile * KV_TILE, alpha);
    // The wait stands in both branches: before the branch the compiler would move it in front of the exponentials, to use the
    // registers of P, and P·V would run while nothing else does.
    if (boundary) {
      values_done<true>(acc);
      if (signals) barrier_arrive(empty_v + 8 * slot);
      rows.merge(acc, ended, split++, false);
      left = tiles_per_split;
    } else {
      values_done<false>(acc);
      if (signals) barrier_arrive(empty_v + 8 * slot);
      rows.rescale(acc, alpha);
    }
    fresh = boundary;
    rows.pack(s, packed);
    slot = next_slot;
    parity = next_parity;
    if (++next_slot == SHAPE::STAGES) next_slot = 0, next_parity ^= 1;
  }
  barrier_wait(full_v + 8 * slot, parity);
  products.issue_values(acc, packed, slot, fresh);
  wgmma_wait<0>();
#pragma unroll
  for (int e = 0; e < HALVES * 32; e++) asm volatile("" : "+f"(acc[e])::"memory");
  rows.merge(acc, rows.state, split, true);
  rows.store(acc, block, head, row);
}

}  // namespace

#define PREFILL_VARIANT(NAME, HALVES) \
  extern "C" __global__ void __launch_bounds__(384, 1) NAME(const AttentionParams p) { attention_prefill<HALVES>(p); }

PREFILL_VARIANT(attention_prefill_d64, 1)
PREFILL_VARIANT(attention_prefill_d128, 2)
