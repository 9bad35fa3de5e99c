// Bulk loads of one KV tile of a paged cache into swizzled shared memory, by one warp.
#pragma once
#include "attention.cuh"
#include "sm90.cuh"

namespace sametree {

// Bytes of K or of V of one tile.
template <int HALVES>
constexpr uint32_t KV_TILE_BYTES = HALVES * KV_TILE * 128;

// Where a decode tile's cells lie in shared memory. Pages that divide a tile lie as they do in global memory, K and V of one
// head together, so that a whole page is one copy; other pages are taken apart into planes of 128 tokens.
struct KvPages {
  unsigned run;  // tokens of a plane: a power of two from 8 to 128
  __device__ __forceinline__ explicit KvPages(unsigned page_tokens)
      : run(page_tokens >= 8 && page_tokens < KV_TILE && KV_TILE % page_tokens == 0 ? page_tokens : KV_TILE) {}
  // Byte offset of a plane: K (value = 0) or V, and its 64-element half.
  __device__ __forceinline__ uint32_t plane(unsigned value, unsigned half, unsigned halves) const { return (value * halves + half) * run * 128; }
  // Byte offset of a token's cell in its plane.
  template <int HALVES>
  __device__ __forceinline__ uint32_t token(unsigned row) const {
    return (row + (row & ~(run - 1)) * (2 * HALVES - 1)) * 128;
  }
};

// Arrivals that complete a loaded tile: the lanes of the warp that announces its bytes.
constexpr uint32_t KV_LOADED_ARRIVALS = 32;

// Zeroes the rows of a tile outside [begin, end), so that stale memory is never multiplied.
template <int HALVES>
__device__ __forceinline__ void zero_rows(uint32_t shared, unsigned before, unsigned after, int lane) {
  for (unsigned i = lane; i < (before + after) * HALVES * 8; i += 32) {
    const unsigned unit = i & 7, half = (i >> 3) % HALVES, index = (i >> 3) / HALVES;
    const unsigned row = index < before ? index : KV_TILE - after + (index - before);
    asm volatile("st.shared.v4.b32 [%0], {%1,%1,%1,%1};" ::"r"(shared + half * KV_TILE * 128 + row * 128 + unit * 16), "r"(0) : "memory");
  }
  proxy_fence();
}

// For prefill, where two warps load K and two V, since a bulk copy takes a warp tens of cycles to issue: one warp's half of the
// copies of tokens [first, first + 128) of K (value = 0) or V that lie in [low, high). K can be loaded while V of the tile
// before is still read. Part 0 also zeroes the other rows and announces the bytes to `barrier`; copies of part 1 that land
// before that only make the count negative for a moment.
template <int HALVES>
__device__ __forceinline__ void load_kv_value(uint32_t shared, const KvLayer &kv, const unsigned *table, unsigned head,
                                              unsigned value, unsigned part, unsigned first, unsigned low, unsigned high,
                                              uint32_t barrier, int lane) {
  const unsigned begin = max(first, low), end = min(first + KV_TILE, high);
  if (part == 0) {
    if (end - begin < KV_TILE) zero_rows<HALVES>(shared, begin - first, first + KV_TILE - end, lane);
    // Every lane arrives, since every lane may have zeroed rows; the first announces the bytes.
    if (lane == 0)
      barrier_expect(barrier, (end - begin) * 128 * HALVES);
    else
      barrier_arrive(barrier);
  }
  const unsigned page_first = begin / kv.page_tokens, runs = (end - 1) / kv.page_tokens - page_first + 1;
  for (unsigned i = lane * 2 + part; i < runs * HALVES; i += 64) {
    const unsigned page = page_first + i / HALVES, half = i % HALVES;
    const unsigned run_begin = max(begin, page * kv.page_tokens), run_end = min(end, (page + 1) * kv.page_tokens);
    bulk_copy(shared + half * KV_TILE * 128 + (run_begin - first) * 128,
              kv_run(kv, table[page], head, value, half, run_begin - page * kv.page_tokens), (run_end - run_begin) * 128, barrier);
  }
}

// Loads tokens [first, first + 128) of K and V that lie in [low, high) as one stage of the decode ring, and zeroes the others,
// so that stale memory is never multiplied. One warp.
template <int HALVES>
__device__ __forceinline__ void load_kv_tile(uint32_t shared, const KvLayer &kv, const KvPages &pages, const unsigned *table, unsigned head,
                                             unsigned first, unsigned low, unsigned high, uint32_t barrier, int lane) {
  constexpr unsigned PLANES = 2 * HALVES;
  const unsigned begin = max(first, low), end = min(first + KV_TILE, high), outside = KV_TILE - (end - begin);
  for (unsigned i = lane; i < outside * PLANES * 8; i += 32) {
    const unsigned unit = i & 7, plane = (i >> 3) % PLANES, index = (i >> 3) / PLANES;
    const unsigned row = index < begin - first ? index : KV_TILE - outside + index;
    asm volatile("st.shared.v4.b32 [%0], {%1,%1,%1,%1};" ::"r"(shared + plane * pages.run * 128 + pages.token<HALVES>(row) + unit * 16), "r"(0) : "memory");
  }
  if (outside > 0) proxy_fence();
  // Every lane arrives, since every lane may have zeroed rows; the first announces the bytes.
  if (lane == 0)
    barrier_expect(barrier, (end - begin) * PLANES * 128);
  else
    barrier_arrive(barrier);
  const unsigned page_first = begin / kv.page_tokens, runs = (end - 1) / kv.page_tokens - page_first + 1;
  for (unsigned i = lane; i < runs * PLANES; i += 32) {
    const unsigned page = page_first + i / PLANES, plane = i % PLANES, page_begin = page * kv.page_tokens;
    const unsigned run_begin = max(begin, page_begin), run_end = min(end, page_begin + kv.page_tokens);
    const bool whole = pages.run == kv.page_tokens && run_end - run_begin == pages.run;
    if (whole && plane > 0) continue;
    const uint32_t to = shared + plane * pages.run * 128 + pages.token<HALVES>(run_begin - first);
    bulk_copy(to, kv_run(kv, table[page], head, plane / HALVES, plane % HALVES, run_begin - page_begin),
              (run_end - run_begin) * 128 * (whole ? PLANES : 1), barrier);
  }
}

}  // namespace sametree
