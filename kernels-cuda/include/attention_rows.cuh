// Online softmax and the ordered merge of splits for rows that lie in the accumulator layout of the tensor core: a thread
// holds columns 2t and 2t + 1 of every eight, of two rows. wgmma and mma.sync share it.
#pragma once
#include "attention.cuh"

namespace sametree {

struct RowState {
  float c = -INFINITY, l[2] = {0.0f, 0.0f};
  // Adds the eight lanes, two here and the others in the quad, by the pairwise tree.
  __device__ __forceinline__ SoftmaxState close() const {
    float sum = __fadd_rn(l[0], l[1]);
    sum = __fadd_rn(sum, __shfl_xor_sync(~0u, sum, 1));
    sum = __fadd_rn(sum, __shfl_xor_sync(~0u, sum, 2));
    return {c, sum};
  }
};

// The two rows of a thread. The total of the splits so far waits in 16-byte slots of shared memory, THREADS slots apart.
template <int HALVES, int THREADS>
struct Rows {
  const AttentionParams &p;
  uint32_t total_slot;
  unsigned position[2];
  int t;
  RowState state[2];
  SoftmaxState total[2];
  bool total_valid[2] = {false, false};

  // Turns scores into probabilities in place and advances the rows' states; gives the factor of the accumulators.
  __device__ __forceinline__ void softmax(float (&s)[64], unsigned first, float (&alpha)[2]) {
    const bool whole = first + KV_TILE - 1 <= position[0] && (p.window == 0 || first + p.window > position[1]);
    if (!__all_sync(~0u, whole)) {
#pragma unroll
      for (int i = 0; i < 64; i++)
        if (!row_sees(position[(i >> 1) & 1], first + (i >> 2) * 8 + t * 2 + (i & 1), p.window)) s[i] = -INFINITY;
    }
    // Both rows side by side, four maxima each: one after the other they would wait for themselves. The order of maxima is free.
    float high[2][4];
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
      for (int h = 0; h < 2; h++) high[h][i] = fmaxf(s[i * 4 + h * 2], s[i * 4 + h * 2 + 1]);
#pragma unroll
    for (int i = 4; i < 16; i++)
#pragma unroll
      for (int h = 0; h < 2; h++) high[h][i & 3] = fmaxf(high[h][i & 3], fmaxf(s[i * 4 + h * 2], s[i * 4 + h * 2 + 1]));
    float next[2];
#pragma unroll
    for (int h = 0; h < 2; h++) next[h] = fmaxf(fmaxf(high[h][0], high[h][1]), fmaxf(high[h][2], high[h][3]));
#pragma unroll
    for (int exchange = 1; exchange <= 2; exchange *= 2)
#pragma unroll
      for (int h = 0; h < 2; h++) next[h] = fmaxf(next[h], __shfl_xor_sync(~0u, next[h], exchange));
#pragma unroll
    for (int h = 0; h < 2; h++) {
      next[h] = fmaxf(state[h].c, __fmul_rn(next[h], p.scale_log2));
      const float factor = exp2_tree(__fsub_rn(state[h].c, next[h]));
      alpha[h] = row_sees_any(position[h], first, KV_TILE, p.window) ? factor : 1.0f;
      state[h].c = next[h];
    }
    // Row by row, so that the compiler mixes the instructions of no more elements than it has registers for: the branch in
    // between is one that it cannot move them over.
#pragma unroll
    for (int h = 0; h < 2; h++) probabilities(s, h, next[h], alpha[h]);
  }

  // One row's scores into probabilities, added to its denominator.
  __device__ __forceinline__ void probabilities(float (&s)[64], int h, float c, float alpha) {
    // A score times the scale exceeds its row's `c` by half a unit in the last place of `c` at most: by less than 128 where
    // |c| is below 2^32. Elsewhere the exponents are clamped here and stand for themselves below: x * 1 - 0.
    float scale = p.scale_log2;
    if (!__all_sync(~0u, fabsf(c) < 4294967296.0f)) {
#pragma unroll
      for (int i = 0; i < 64; i++)
        if (((i >> 1) & 1) == h) s[i] = fminf(fmaxf(__fmaf_rn(s[i], scale, -c), -127.0f), 128.0f);
      scale = 1.0f;
      c = 0.0f;
    }
#pragma unroll
    for (int e = 0; e < 2; e++) {
      float l = __fmul_rn(state[h].l[e], alpha);
#pragma unroll
      for (int k = 0; k < 8; k++) {
        float &a = s[k * 8 + h * 2 + e], &b = s[k * 8 + 4 + h * 2 + e];
        a = exp2_tree<true>(__fmaf_rn(a, scale, -c));
        b = exp2_tree<true>(__fmaf_rn(b, scale, -c));
        l = __fadd_rn(l, __fadd_rn(a, b));
      }
      state[h].l[e] = l;
    }
#pragma unroll
    for (int i = 0; i < 64; i++)
      if (((i >> 1) & 1) == h) asm volatile("" : "+f"(s[i]));
  }

  // acc * alpha. Where no row of the warp has a new maximum every factor is exactly 1.
  __device__ __forceinline__ static void rescale(float (&acc)[HALVES * 32], const float (&alpha)[2]) {
    if (__all_sync(~0u, alpha[0] == 1.0f && alpha[1] == 1.0f)) return;
#pragma unroll
    for (int i = 0; i < HALVES * 32; i++) acc[i] = __fmul_rn(acc[i], alpha[(i >> 1) & 1]);
  }

  __device__ __forceinline__ static void pack(const float (&s)[64], uint32_t (&packed)[8][4]) {
#pragma unroll
    for (int k = 0; k < 8; k++)
#pragma unroll
      for (int i = 0; i < 4; i++) packed[k][i] = pack_bf16(s[k * 8 + i * 2], s[k * 8 + i * 2 + 1]);
  }

  // Merges the split that just ended into the total, which lives in shared memory between splits.
  __device__ __forceinline__ void merge(float (&acc)[HALVES * 32], const RowState (&ended)[2], unsigned split, bool last) {
    float a[2], b[2];
    bool sees[2], first[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
      sees[h] = row_sees_any(position[h], split * p.kv_split, p.kv_split, p.window);
      first[h] = !total_valid[h];
      const SoftmaxState next = ended[h].close();
      SoftmaxState merged = total[h];
      merge_weights(merged, next, a[h], b[h]);
      if (sees[h]) total[h] = first[h] ? next : merged;
      total_valid[h] = total_valid[h] || sees[h];
    }
    // What nearly all warps do: rows that see the split and have a total.
    if (__all_sync(~0u, sees[0] && sees[1] && !first[0] && !first[1])) {
#pragma unroll
      for (int i = 0; i < HALVES * 8; i++) {
        float old[4];
        load_total(i, old);
#pragma unroll
        for (int e = 0; e < 4; e++) acc[i * 4 + e] = __fmaf_rn(acc[i * 4 + e], b[e >> 1], __fmul_rn(old[e], a[e >> 1]));
        if (!last) store_total(i, &acc[i * 4]);
      }
      return;
    }
    const bool has_total = !(first[0] && first[1]);
#pragma unroll
    for (int i = 0; i < HALVES * 8; i++) {
      float old[4] = {0.0f, 0.0f, 0.0f, 0.0f};
      if (has_total) load_total(i, old);
#pragma unroll
      for (int e = 0; e < 4; e++) {
        const int h = e >> 1;
        const float now = acc[i * 4 + e], merged = __fmaf_rn(now, b[h], __fmul_rn(old[e], a[h]));
        acc[i * 4 + e] = sees[h] ? (first[h] ? now : merged) : old[e];
      }
      if (!last) store_total(i, &acc[i * 4]);
    }
  }

  __device__ __forceinline__ void load_total(int i, float (&v)[4]) const {
    asm volatile("ld.shared.v4.f32 {%0,%1,%2,%3}, [%4];" : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3]) : "r"(total_slot + i * THREADS * 16) : "memory");
  }
  __device__ __forceinline__ void store_total(int i, const float *v) const {
    asm volatile("st.shared.v4.f32 [%0], {%1,%2,%3,%4};" ::"r"(total_slot + i * THREADS * 16), "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3]) : "memory");
  }

  __device__ __forceinline__ void store(float (&acc)[HALVES * 32], const QueryBlock &block, unsigned head, int row) const {
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const unsigned packed_row = row + h * 8, token = packed_row / p.group;
      const bool inside = token < block.rows;
      const size_t at = (static_cast<size_t>(block.first_row + token) * p.q_heads + head * p.group + packed_row % p.group) * p.kv.head_dim;
      const float r = __frcp_rn(total[h].l);
#pragma unroll
      for (int j = 0; j < HALVES * 8; j += 4) {
        uint32_t v[4];
#pragma unroll
        for (int u = 0; u < 4; u++) v[u] = pack_bf16(__fmul_rn(acc[(j + u) * 4 + h * 2], r), __fmul_rn(acc[(j + u) * 4 + h * 2 + 1], r));
        transpose_quad(v, t);
        const unsigned d = j * 8 + t * 8;
        if (inside && d < p.kv.head_dim) *reinterpret_cast<uint4 *>(p.out + at + d) = make_uint4(v[0], v[1], v[2], v[3]);
      }
    }
  }
};

}  // namespace sametree
