// Bulk loads of one KV tile of a paged cache into swizzled shared memory, by one warp.
#pragma once
#include "attention.cuh"
#include "sm90.cuh"

namespace sametree {

// Bytes of K or of V of one tile.
template <int HALVES>
constexpr uint32_t KV_TILE_BYTES = HALVES * KV_TILE * 128;

// Warps that load: two for K and two for V. A bulk copy takes a warp tens of cycles to issue and a page of 16 tokens is
// two or four of them, so one warp could not keep up with the tensor cores.
constexpr int KV_LOADERS = 4;

// One loading warp's half of the copies of tokens [first, first + 128) of K (value = 0) or V that lie in [low, high). The
// first warp of the two also zeroes the other rows, so that stale memory is never multiplied, and announces all bytes to
// `barrier`; copies of the second that land before that only make the count negative for a moment.
template <int HALVES>
__device__ __forceinline__ void load_kv_tile(uint32_t shared, const KvLayer &kv, const unsigned *table, unsigned head,
                                             unsigned value, unsigned part, unsigned first, unsigned low, unsigned high,
                                             uint32_t barrier, int lane) {
  const unsigned begin = max(first, low), end = min(first + KV_TILE, high);
  const unsigned before = begin - first, after = first + KV_TILE - end;
  if (part == 0) {
    if (before + after > 0) {
      for (unsigned i = lane; i < (before + after) * HALVES * 8; i += 32) {
        const unsigned unit = i & 7, half = (i >> 3) % HALVES, index = (i >> 3) / HALVES;
        const unsigned row = index < before ? index : end - first + (index - before);
        asm volatile("st.shared.v4.b32 [%0], {%1,%1,%1,%1};" ::"r"(shared + half * KV_TILE * 128 + row * 128 + unit * 16), "r"(0) : "memory");
      }
      proxy_fence();
      __syncwarp();
    }
    if (lane == 0) barrier_expect(barrier, (end - begin) * 128 * HALVES);
    __syncwarp();
  }
  const unsigned page_first = begin / kv.page_tokens, runs = (end - 1) / kv.page_tokens - page_first + 1;
  // Each warp takes neighbouring pages whole, since the halves of a page are neighbours in memory.
  const unsigned middle = (runs + 1) / 2 * HALVES;
  for (unsigned i = (part ? middle : 0) + lane; i < (part ? runs * HALVES : middle); i += 32) {
    const unsigned page = page_first + i / HALVES, half = i % HALVES;
    const unsigned run_begin = max(begin, page * kv.page_tokens), run_end = min(end, (page + 1) * kv.page_tokens);
    bulk_copy(shared + half * KV_TILE * 128 + (run_begin - first) * 128,
              kv_run(kv, table[page], head, value, half, run_begin - page * kv.page_tokens), (run_end - run_begin) * 128, barrier);
  }
}

}  // namespace sametree
