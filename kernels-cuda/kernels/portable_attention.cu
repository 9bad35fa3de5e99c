// Paged attention on any card from Ampere on: mma.sync and cp.async, for few and many query rows alike.
//
// math     out = softmax(q · Kᵀ * scale) · V over the tokens that each row sees
// shapes   q, out [rows, q_heads, head_dim]; a block is up to 128 packed rows: tokens x query heads of one KV head's group
// tree     AttentionTree of reduction-tree; splits one after the other
// tile     16 packed rows a warp by 128 tokens; four warps, two passes for blocks of more than 64 rows
// launch   one block per (query block, KV head)
// shared   one K and one V tile, the total of the splits so far
// bytes    K and V once a pass, q once a tile from L1, out once
// rounding score steps, exp2, l additions, P to bf16, P·V steps, merge, out to bf16
#include "attention_rows.cuh"

using namespace sametree;

namespace {

// K (value = 0) or V of tokens [first, first + 128); tokens outside [low, high) become zero.
template <int HALVES>
__device__ __forceinline__ void load_tile(uint32_t shared, const KvLayer &kv, const unsigned *table, unsigned head, unsigned value,
                                          unsigned first, unsigned low, unsigned high) {
  for (unsigned i = threadIdx.x; i < KV_TILE * HALVES * 8; i += 128) {
    const unsigned unit = i & 7, row = (i >> 3) % KV_TILE, half = (i >> 3) / KV_TILE, token = first + row;
    const bool valid = token >= low && token < high;
    const uint16_t *from = valid ? kv_run(kv, table[token / kv.page_tokens], head, value, half, token % kv.page_tokens) + unit * 8 : kv.base;
    copy_async_16(shared + half * KV_TILE * 128 + row * 128 + unit * 16, from, valid);
  }
}

template <int HALVES>
struct Products {
  const AttentionParams &p;
  const uint16_t *q[2];  // this thread's two rows, or null
  int lane, t;

  __device__ __forceinline__ void scores(float (&s)[64], uint32_t k_tile) const {
#pragma unroll
    for (int i = 0; i < 64; i++) s[i] = 0.0f;
#pragma unroll
    for (int k = 0; k < HALVES * 4; k++) {
      uint32_t a[4];
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const unsigned at = k * 16 + (i >> 1) * 8 + t * 2;
        a[i] = q[i & 1] && at < p.kv.head_dim ? *reinterpret_cast<const uint32_t *>(q[i & 1] + at) : 0;
      }
#pragma unroll
      for (int j = 0; j < 8; j++) {
        uint32_t b[4];
        const int row = j * 16 + (lane & 7) + ((lane >> 4) << 3), unit = (k & 3) * 2 + ((lane >> 3) & 1);
        load_matrix_x4(b, k_tile + (k >> 2) * KV_TILE * 128 + row * 128 + ((unit ^ (row & 7)) << 4));
        mma_k16(reinterpret_cast<float(&)[4]>(s[j * 8]), a, b[0], b[1]);
        mma_k16(reinterpret_cast<float(&)[4]>(s[j * 8 + 4]), a, b[2], b[3]);
      }
    }
  }

  __device__ __forceinline__ void values(float (&acc)[HALVES * 32], const uint32_t (&packed)[8][4], uint32_t v_tile) const {
#pragma unroll
    for (int k = 0; k < KV_TILE / 16; k++)
#pragma unroll
      for (int j = 0; j < HALVES * 4; j++) {
        uint32_t b[4];
        const int row = k * 16 + (lane & 7) + (((lane >> 3) & 1) << 3), unit = (j & 3) * 2 + (lane >> 4);
        load_matrix_x4_trans(b, v_tile + (j >> 2) * KV_TILE * 128 + row * 128 + ((unit ^ (row & 7)) << 4));
        mma_k16(reinterpret_cast<float(&)[4]>(acc[j * 8]), packed[k], b[0], b[1]);
        mma_k16(reinterpret_cast<float(&)[4]>(acc[j * 8 + 4]), packed[k], b[2], b[3]);
      }
  }
};

template <int HALVES>
__device__ __forceinline__ void attention_portable(const AttentionParams &p) {
  extern __shared__ __align__(128) uint8_t dynamic_shared[];
  const uint32_t k_tile = static_cast<uint32_t>(__cvta_generic_to_shared(dynamic_shared));
  const uint32_t v_tile = k_tile + HALVES * KV_TILE * 128, slots = v_tile + HALVES * KV_TILE * 128;
  wait_for_predecessor();
  let_successor_start();
  const unsigned head = blockIdx.x % p.kv.kv_heads;
  const QueryBlock block = p.blocks[blockIdx.x / p.kv.kv_heads];
  const Span span(block, p);
  const unsigned *table = p.tables + block.table_offset;
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  const unsigned packed_rows = block.rows * p.group, tiles_per_split = p.kv_split / KV_TILE;
  for (unsigned first_row = 0; first_row < packed_rows; first_row += 64) {
    const unsigned row = first_row + warp * 16 + (lane >> 2);
    const bool active = first_row + warp * 16 < packed_rows;
    Products<HALVES> products{p, {nullptr, nullptr}, lane, lane & 3};
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const unsigned at = row + h * 8;
      if (at < packed_rows)
        products.q[h] = p.q + (static_cast<size_t>(block.first_row + at / p.group) * p.q_heads + head * p.group + at % p.group) * p.kv.head_dim;
    }
    Rows<HALVES, 128> rows{p, slots + threadIdx.x * 16, {block.first_position + row / p.group, block.first_position + (row + 8) / p.group}, lane & 3};
    float acc[HALVES * 32];
#pragma unroll
    for (int i = 0; i < HALVES * 32; i++) acc[i] = 0.0f;
    for (unsigned tile = span.low / KV_TILE; tile <= (span.high - 1) / KV_TILE; tile++) {
      __syncthreads();
      load_tile<HALVES>(k_tile, p.kv, table, head, 0, tile * KV_TILE, span.low, span.high);
      load_tile<HALVES>(v_tile, p.kv, table, head, 1, tile * KV_TILE, span.low, span.high);
      copy_async_commit();
      copy_async_wait<0>();
      __syncthreads();
      if (!active) continue;
      float s[64], alpha[2];
      products.scores(s, k_tile);
      rows.softmax(s, tile * KV_TILE, alpha);
      uint32_t packed[8][4];
      rows.pack(s, packed);
      rows.rescale(acc, alpha);
      products.values(acc, packed, v_tile);
      const bool last = tile == (span.high - 1) / KV_TILE;
      if (!last && (tile + 1) % tiles_per_split != 0) continue;
      rows.merge(acc, rows.state, tile / tiles_per_split, last);
      if (last) break;
      rows.state[0] = RowState(), rows.state[1] = RowState();
#pragma unroll
      for (int i = 0; i < HALVES * 32; i++) acc[i] = 0.0f;
    }
    if (active) rows.store(acc, block, head, row);
  }
}

}  // namespace

#define PORTABLE_VARIANT(NAME, HALVES) \
  extern "C" __global__ void __launch_bounds__(128, 1) NAME(const AttentionParams p) { attention_portable<HALVES>(p); }

PORTABLE_VARIANT(attention_portable_d64, 1)
PORTABLE_VARIANT(attention_portable_d128, 2)
