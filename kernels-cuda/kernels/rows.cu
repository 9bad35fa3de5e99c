// Operators whose reduction stays inside one row or that only move rows: rmsnorm, gather (and embedding), the fused QKV
// stage, fill.
//
// tree     RmsNormTree of reduction-tree: 256 lanes of 16-byte vectors, then a pairwise tree of neighbours
// launch   one block a row (rmsnorm), one warp a head (QKV stage), one block of 256 threads a row (gather)
// bytes    each row once in, once out; the second pass of rmsnorm reads registers
// rounding f32 as written, one rounding to bf16 at the store
#include "common.cuh"
#include "scalar.cuh"

using namespace sametree;

namespace {

constexpr int LANES = 256;
constexpr int VECTOR = 8;
constexpr int VECTORS_MAX = 8;  // 16-byte vectors a thread keeps in registers: rows of up to 16384 elements

__device__ __forceinline__ float square_into(float acc, uint4 v) {
  const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
  for (int i = 0; i < 4; i++) {
    acc = __fmaf_rn(low_f32(words[i]), low_f32(words[i]), acc);
    acc = __fmaf_rn(high_f32(words[i]), high_f32(words[i]), acc);
  }
  return acc;
}

__device__ __forceinline__ uint32_t scale_pair(uint32_t x, float r, uint32_t weight) {
  return pack_bf16(__fmul_rn(__fmul_rn(low_f32(x), r), low_f32(weight)), __fmul_rn(__fmul_rn(high_f32(x), r), high_f32(weight)));
}

// The pairwise tree of neighbours over the 32 lanes of a warp.
__device__ __forceinline__ float warp_tree(float sum) {
#pragma unroll
  for (int step = 1; step < 32; step *= 2) sum = __fadd_rn(sum, __shfl_xor_sync(~0u, sum, step));
  return sum;
}

// The pairwise tree of neighbours over 256 threads.
__device__ __forceinline__ float block_tree(float sum, float *scratch) {
  sum = warp_tree(sum);
  if ((threadIdx.x & 31) == 0) scratch[threadIdx.x >> 5] = sum;
  __syncthreads();
  return __fadd_rn(__fadd_rn(__fadd_rn(scratch[0], scratch[1]), __fadd_rn(scratch[2], scratch[3])),
                   __fadd_rn(__fadd_rn(scratch[4], scratch[5]), __fadd_rn(scratch[6], scratch[7])));
}

__device__ __forceinline__ float inverse_rms(float sum, unsigned d, float eps) {
  return rsqrt_tree(__fadd_rn(__fdiv_rn(sum, static_cast<float>(d)), eps));
}

}  // namespace

// Rows whose length is a multiple of 8, up to 16384 elements.
extern "C" __global__ void __launch_bounds__(256) rmsnorm_vector(const RmsNormParams p) {
  __shared__ float scratch[8];
  let_successor_start();
  const unsigned vectors = p.d / VECTOR;
  uint4 weight[2];
  // The first weights do not depend on the predecessor.
#pragma unroll
  for (int i = 0; i < 2; i++)
    if (threadIdx.x + i * LANES < vectors) weight[i] = reinterpret_cast<const uint4 *>(p.weight)[threadIdx.x + i * LANES];
  wait_for_predecessor();
  const uint4 *x = reinterpret_cast<const uint4 *>(p.x + static_cast<size_t>(blockIdx.x) * p.d);
  uint4 *out = reinterpret_cast<uint4 *>(p.out + static_cast<size_t>(blockIdx.x) * p.d);
  uint4 kept[VECTORS_MAX];
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < VECTORS_MAX; i++)
    if (threadIdx.x + i * LANES < vectors) kept[i] = x[threadIdx.x + i * LANES];
#pragma unroll
  for (int i = 0; i < VECTORS_MAX; i++)
    if (threadIdx.x + i * LANES < vectors) sum = square_into(sum, kept[i]);
  const float r = inverse_rms(block_tree(sum, scratch), p.d, p.eps);
#pragma unroll
  for (int i = 0; i < VECTORS_MAX; i++) {
    const unsigned at = threadIdx.x + i * LANES;
    if (at >= vectors) break;
    const uint4 w = i < 2 ? weight[i < 2 ? i : 0] : reinterpret_cast<const uint4 *>(p.weight)[at];
    out[at] = make_uint4(scale_pair(kept[i].x, r, w.x), scale_pair(kept[i].y, r, w.y), scale_pair(kept[i].z, r, w.z), scale_pair(kept[i].w, r, w.w));
  }
}

// Any row length.
extern "C" __global__ void __launch_bounds__(256) rmsnorm_any(const RmsNormParams p) {
  __shared__ float scratch[8];
  let_successor_start();
  wait_for_predecessor();
  const uint16_t *x = p.x + static_cast<size_t>(blockIdx.x) * p.d;
  float sum = 0.0f;
  for (unsigned first = threadIdx.x * VECTOR; first < p.d; first += LANES * VECTOR)
    for (unsigned i = first; i < min(first + VECTOR, p.d); i++) sum = __fmaf_rn(bf16_to_f32(x[i]), bf16_to_f32(x[i]), sum);
  const float r = inverse_rms(block_tree(sum, scratch), p.d, p.eps);
  for (unsigned i = threadIdx.x; i < p.d; i += LANES)
    p.out[static_cast<size_t>(blockIdx.x) * p.d + i] = f32_to_bf16(__fmul_rn(__fmul_rn(bf16_to_f32(x[i]), r), bf16_to_f32(p.weight[i])));
}

// Rows are copied 16 bytes at a time where both sides allow it.
extern "C" __global__ void __launch_bounds__(256) gather_rows(const GatherParams p) {
  let_successor_start();
  wait_for_predecessor();
  const uint16_t *from = p.table + static_cast<size_t>(p.index[blockIdx.x]) * p.table_pitch;
  uint16_t *to = p.out + static_cast<size_t>(blockIdx.x) * p.d;
  if (((p.d | p.table_pitch) & 7) == 0) {
    for (unsigned i = threadIdx.x; i < p.d / 8; i += 256) reinterpret_cast<uint4 *>(to)[i] = reinterpret_cast<const uint4 *>(from)[i];
  } else {
    for (unsigned i = threadIdx.x; i < p.d; i += 256) to[i] = from[i];
  }
}

extern "C" __global__ void __launch_bounds__(256) fill_bf16(uint16_t *out, size_t count, unsigned value) {
  let_successor_start();
  wait_for_predecessor();
  for (size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x; i < count; i += static_cast<size_t>(gridDim.x) * blockDim.x)
    out[i] = static_cast<uint16_t>(value);
}

namespace {

// Two neighbouring pairs of the rotation, 2l and 2l + 1, belong to thread l of a warp; their four elements are two 32-bit
// words of the head.
struct HeadWords {
  unsigned first, second;  // elements at which the words begin
  bool used;
  __device__ __forceinline__ HeadWords(unsigned head_dim, bool interleaved, int lane)
      : first(interleaved ? lane * 4 : lane * 2), second(interleaved ? lane * 4 + 2 : lane * 2 + head_dim / 2), used(lane * 4u < head_dim) {}
};

// Lane g of RmsNormTree is a 16-byte vector of the head; thread g of the warp computes it.
__device__ __forceinline__ float head_inverse_rms(const uint16_t *head, unsigned head_dim, float eps, int lane) {
  float sum = 0.0f;
  for (unsigned i = lane * VECTOR; i < min(lane * VECTOR + VECTOR, head_dim); i++)
    sum = __fmaf_rn(bf16_to_f32(head[i]), bf16_to_f32(head[i]), sum);
  return inverse_rms(warp_tree(sum), head_dim, eps);
}

// Halves of a word that are not finite become +0.
__device__ __forceinline__ uint32_t finite_or_zero(uint32_t word, bool &fault) {
  const bool low = (word & 0x7f80) != 0x7f80, high = (word & 0x7f800000) != 0x7f800000;
  fault = fault || !low || !high;
  return (low ? word & 0xffff : 0) | (high ? word & 0xffff0000u : 0);
}

__device__ __forceinline__ uint32_t word_at(const uint16_t *elements, unsigned at) {
  return *reinterpret_cast<const uint32_t *>(elements + at);
}

}  // namespace

// One warp a head of a row: q heads, then k heads, then v heads; head_dim is a multiple of 16 up to 128. Cells of the cache
// are padded with zeros to 64 * halves elements and their 16-byte units permuted by the position (params.h).
extern "C" __global__ void __launch_bounds__(128) qkv_stage(const QkvStageParams p) {
  let_successor_start();
  const unsigned heads = p.q_heads + 2 * p.kv.kv_heads, d = p.kv.head_dim;
  const size_t index = static_cast<size_t>(blockIdx.x) * 4 + (threadIdx.x >> 5);
  const int lane = threadIdx.x & 31;
  wait_for_predecessor();
  if (index >= static_cast<size_t>(p.rows) * heads) return;
  const unsigned row = index / heads, head = index % heads;
  const uint16_t *from = p.qkv + static_cast<size_t>(row) * heads * d + static_cast<size_t>(head) * d;
  const unsigned position = p.positions[row];
  const bool is_q = head < p.q_heads, is_v = head >= p.q_heads + p.kv.kv_heads;
  const HeadWords words(d, p.interleaved, lane);
  uint32_t first = 0, second = 0;
  if (words.used) first = word_at(from, words.first), second = word_at(from, words.second);
  if (!is_v) {
    const uint16_t *weight = is_q ? p.q_weight : p.k_weight;
    const float r = weight ? head_inverse_rms(from, d, is_q ? p.eps_q : p.eps_k, lane) : 1.0f;
    if (words.used) {
      float e[4] = {low_f32(first), high_f32(first), low_f32(second), high_f32(second)};
      if (weight) {
        const uint32_t w0 = word_at(weight, words.first), w1 = word_at(weight, words.second);
        const float w[4] = {low_f32(w0), high_f32(w0), low_f32(w1), high_f32(w1)};
#pragma unroll
        for (int i = 0; i < 4; i++) e[i] = __fmul_rn(__fmul_rn(e[i], r), w[i]);
      }
      const size_t at = static_cast<size_t>(position) * (d / 2) + lane * 2;
      const float2 cos = *reinterpret_cast<const float2 *>(p.cos + at), sin = *reinterpret_cast<const float2 *>(p.sin + at);
      // Pair 2l is (e0, e2) in halves and (e0, e1) interleaved.
      const float a0 = e[0], b0 = p.interleaved ? e[1] : e[2], a1 = p.interleaved ? e[2] : e[1], b1 = e[3];
      const float x0 = __fmaf_rn(a0, cos.x, -__fmul_rn(b0, sin.x)), y0 = __fmaf_rn(b0, cos.x, __fmul_rn(a0, sin.x));
      const float x1 = __fmaf_rn(a1, cos.y, -__fmul_rn(b1, sin.y)), y1 = __fmaf_rn(b1, cos.y, __fmul_rn(a1, sin.y));
      first = p.interleaved ? pack_bf16(x0, y0) : pack_bf16(x0, x1);
      second = p.interleaved ? pack_bf16(x1, y1) : pack_bf16(y0, y1);
    }
  }
  if (is_q) {
    uint16_t *to = p.q + (static_cast<size_t>(row) * p.q_heads + head) * d;
    if (words.used) {
      *reinterpret_cast<uint32_t *>(to + words.first) = first;
      *reinterpret_cast<uint32_t *>(to + words.second) = second;
    }
    return;
  }
  bool fault = false;
  const unsigned slot = p.slots[row], kv_head = is_v ? head - p.q_heads - p.kv.kv_heads : head - p.q_heads;
  const size_t page = slot / p.kv.page_tokens, in_page = slot % p.kv.page_tokens;
  const size_t plane = ((page * p.kv.kv_heads + kv_head) * 2 + (is_v ? 1 : 0)) * p.kv.halves;
  auto store = [&](unsigned element, uint32_t word) {
    const unsigned half = element >> 6, unit = (element >> 3) & 7;
    uint16_t *cell = p.kv.base + ((plane + half) * p.kv.page_tokens + in_page) * 64 + ((unit ^ (position & 7)) << 3) + (element & 7);
    *reinterpret_cast<uint32_t *>(cell) = word;
  };
  if (words.used) {
    store(words.first, finite_or_zero(first, fault));
    store(words.second, finite_or_zero(second, fault));
  }
  for (unsigned element = d + lane * 2; element < p.kv.halves * 64; element += 64) store(element, 0);
  if (fault) p.faults[row] = 1;
}
