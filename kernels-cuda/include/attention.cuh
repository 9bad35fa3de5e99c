// What decode and prefill attention share: which tokens a block of query rows sees, where KV cells lie, and the merge of
// splits. AttentionTree of reduction-tree is the definition.
#pragma once
#include "common.cuh"
#include "scalar.cuh"

namespace sametree {

constexpr int KV_TILE = 128;

// Tokens that any row of a block sees, and the splits and tiles that hold them.
struct Span {
  unsigned low, high;  // first token, one past the last
  unsigned split_first, split_count;
  __device__ __forceinline__ Span(const QueryBlock &block, const AttentionParams &p) {
    high = block.first_position + block.rows;
    low = p.window && block.first_position + 1 > p.window ? block.first_position + 1 - p.window : 0;
    split_first = low / p.kv_split;
    split_count = (high - 1) / p.kv_split - split_first + 1;
  }
};

// Whether the row at `position` sees token `token`.
__device__ __forceinline__ bool row_sees(unsigned position, unsigned token, unsigned window) {
  return token <= position && (window == 0 || token + window > position);
}
// Whether it sees any token of [first, first + count).
__device__ __forceinline__ bool row_sees_any(unsigned position, unsigned first, unsigned count, unsigned window) {
  return first <= position && (window == 0 || first + count - 1 + window > position);
}

__device__ __forceinline__ const uint16_t *kv_run(const KvLayer &kv, unsigned page, unsigned head, unsigned value, unsigned half,
                                                  unsigned slot) {
  const size_t plane = ((static_cast<size_t>(page) * kv.kv_heads + head) * 2 + value) * kv.halves + half;
  return kv.base + (plane * kv.page_tokens + slot) * 64;
}

// The state of a split, or of the splits so far: scaled maximum and denominator.
struct SoftmaxState {
  float c, l;
};
// Weights of the merge of `next` into `total`, which it updates: A = fma(acc, b, A * a).
__device__ __forceinline__ void merge_weights(SoftmaxState &total, const SoftmaxState &next, float &a, float &b) {
  const float c = fmaxf(total.c, next.c);
  a = exp2_tree(__fsub_rn(total.c, c));
  b = exp2_tree(__fsub_rn(next.c, c));
  total.l = __fmaf_rn(next.l, b, __fmul_rn(total.l, a));
  total.c = c;
}

}  // namespace sametree
