// Operators whose reduction stays inside one row or that only move rows: rmsnorm, residual addition with it and alone, gather
// (and embedding), the fused QKV stage, fill.
//
// tree     RmsNormTree of reduction-tree: 256 lanes of 16-byte vectors, then a pairwise tree of neighbours
// launch   one block a row (rmsnorm, gather), head_dim / 16 threads a head (QKV stage), 256 threads
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

namespace {

__device__ __forceinline__ uint32_t add_pair(uint32_t a, uint32_t b) {
  return pack_bf16(__fadd_rn(low_f32(a), low_f32(b)), __fadd_rn(high_f32(a), high_f32(b)));
}
__device__ __forceinline__ uint4 add_vectors(uint4 a, uint4 b) {
  return make_uint4(add_pair(a.x, b.x), add_pair(a.y, b.y), add_pair(a.z, b.z), add_pair(a.w, b.w));
}

// One row. With ADD the row is x + residual, rounded to bf16 and stored to `sum` on the way.
template <bool ADD>
__device__ __forceinline__ void rmsnorm_by_vectors(const RmsNormParams &p) {
  __shared__ float scratch[8];
  let_successor_start();
  const unsigned vectors = p.d / VECTOR;
  uint4 weight[2];
  // The first weights do not depend on the predecessor.
#pragma unroll
  for (int i = 0; i < 2; i++)
    if (threadIdx.x + i * LANES < vectors) weight[i] = reinterpret_cast<const uint4 *>(p.weight)[threadIdx.x + i * LANES];
  wait_for_predecessor();
  const size_t row = static_cast<size_t>(blockIdx.x) * p.d;
  const uint4 *x = reinterpret_cast<const uint4 *>(p.x + row), *residual = reinterpret_cast<const uint4 *>(p.residual + row);
  uint4 *out = reinterpret_cast<uint4 *>(p.out + row), *stored = reinterpret_cast<uint4 *>(p.sum + row);
  uint4 kept[VECTORS_MAX], added[ADD ? VECTORS_MAX : 1];
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < VECTORS_MAX; i++) {
    const unsigned at = threadIdx.x + i * LANES;
    if (at >= vectors) continue;
    kept[i] = x[at];
    if (ADD) added[ADD ? i : 0] = residual[at];
  }
#pragma unroll
  for (int i = 0; i < VECTORS_MAX; i++) {
    const unsigned at = threadIdx.x + i * LANES;
    if (at >= vectors) continue;
    if (ADD) stored[at] = kept[i] = add_vectors(kept[i], added[ADD ? i : 0]);
    sum = square_into(sum, kept[i]);
  }
  const float r = inverse_rms(block_tree(sum, scratch), p.d, p.eps);
#pragma unroll
  for (int i = 0; i < VECTORS_MAX; i++) {
    const unsigned at = threadIdx.x + i * LANES;
    if (at >= vectors) break;
    const uint4 w = i < 2 ? weight[i < 2 ? i : 0] : reinterpret_cast<const uint4 *>(p.weight)[at];
    out[at] = make_uint4(scale_pair(kept[i].x, r, w.x), scale_pair(kept[i].y, r, w.y), scale_pair(kept[i].z, r, w.z), scale_pair(kept[i].w, r, w.w));
  }
}

template <bool ADD>
__device__ __forceinline__ void rmsnorm_by_elements(const RmsNormParams &p) {
  __shared__ float scratch[8];
  let_successor_start();
  wait_for_predecessor();
  const size_t row = static_cast<size_t>(blockIdx.x) * p.d;
  auto element = [&](unsigned i) {
    const float x = bf16_to_f32(p.x[row + i]);
    return ADD ? bf16_to_f32(f32_to_bf16(__fadd_rn(x, bf16_to_f32(p.residual[row + i])))) : x;
  };
  float sum = 0.0f;
  for (unsigned first = threadIdx.x * VECTOR; first < p.d; first += LANES * VECTOR)
    for (unsigned i = first; i < min(first + VECTOR, p.d); i++) {
      const float x = element(i);
      sum = __fmaf_rn(x, x, sum);
    }
  const float r = inverse_rms(block_tree(sum, scratch), p.d, p.eps);
  for (unsigned i = threadIdx.x; i < p.d; i += LANES) {
    const float x = element(i);
    if (ADD) p.sum[row + i] = f32_to_bf16(x);
    p.out[row + i] = f32_to_bf16(__fmul_rn(__fmul_rn(x, r), bf16_to_f32(p.weight[i])));
  }
}

}  // namespace

// Rows whose length is a multiple of 8, up to 16384 elements; then any row length. The second of each adds a residual first.
extern "C" __global__ void __launch_bounds__(256) rmsnorm_vector(const RmsNormParams p) { rmsnorm_by_vectors<false>(p); }
extern "C" __global__ void __launch_bounds__(256) add_rmsnorm_vector(const RmsNormParams p) { rmsnorm_by_vectors<true>(p); }
extern "C" __global__ void __launch_bounds__(256) rmsnorm_any(const RmsNormParams p) { rmsnorm_by_elements<false>(p); }
extern "C" __global__ void __launch_bounds__(256) add_rmsnorm_any(const RmsNormParams p) { rmsnorm_by_elements<true>(p); }

// out = a + b, element by element.
extern "C" __global__ void __launch_bounds__(256) residual_add(const uint16_t *a, const uint16_t *b, uint16_t *out, size_t count) {
  let_successor_start();
  wait_for_predecessor();
  const size_t step = static_cast<size_t>(gridDim.x) * blockDim.x, first = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x;
  for (size_t i = first; i < count / VECTOR; i += step)
    reinterpret_cast<uint4 *>(out)[i] = add_vectors(reinterpret_cast<const uint4 *>(a)[i], reinterpret_cast<const uint4 *>(b)[i]);
  for (size_t i = count / VECTOR * VECTOR + first; i < count; i += step)
    out[i] = f32_to_bf16(__fadd_rn(bf16_to_f32(a[i]), bf16_to_f32(b[i])));
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

// tokens[row] = chosen[sample] for each pair (row, sample): what a step takes over from the step before it.
extern "C" __global__ void __launch_bounds__(256) take_tokens(uint32_t *tokens, const uint2 *pairs, const uint32_t *chosen, unsigned count) {
  let_successor_start();
  wait_for_predecessor();
  const unsigned i = blockIdx.x * 256 + threadIdx.x;
  if (i < count) tokens[pairs[i].x] = chosen[pairs[i].y];
}

// Rows of one token become NaN, for tests.
extern "C" __global__ void __launch_bounds__(256) poison_rows(const uint32_t *tokens, unsigned token, uint16_t *x, unsigned d) {
  let_successor_start();
  wait_for_predecessor();
  if (tokens[blockIdx.x] != token) return;
  for (unsigned i = threadIdx.x; i < d; i += 256) x[blockIdx.x * static_cast<size_t>(d) + i] = 0x7fc0;
}

extern "C" __global__ void __launch_bounds__(256) fill_bf16(uint16_t *out, size_t count, unsigned value) {
  let_successor_start();
  wait_for_predecessor();
  for (size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x; i < count; i += static_cast<size_t>(gridDim.x) * blockDim.x)
    out[i] = static_cast<uint16_t>(value);
}

namespace {

// Halves of a word that are not finite become +0.
__device__ __forceinline__ uint32_t finite_or_zero(uint32_t word, bool &fault) {
  const bool low = (word & 0x7f80) != 0x7f80, high = (word & 0x7f800000) != 0x7f800000;
  fault = fault || !low || !high;
  return (low ? word & 0xffff : 0) | (high ? word & 0xffff0000u : 0);
}
__device__ __forceinline__ uint4 finite_or_zero(uint4 v, bool &fault) {
  return make_uint4(finite_or_zero(v.x, fault), finite_or_zero(v.y, fault), finite_or_zero(v.z, fault), finite_or_zero(v.w, fault));
}

__device__ __forceinline__ void unpack(uint4 v, float (&e)[8]) {
  const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
  for (int i = 0; i < 4; i++) e[2 * i] = low_f32(words[i]), e[2 * i + 1] = high_f32(words[i]);
}
__device__ __forceinline__ uint4 pack(const float (&e)[8]) {
  return make_uint4(pack_bf16(e[0], e[1]), pack_bf16(e[2], e[3]), pack_bf16(e[4], e[5]), pack_bf16(e[6], e[7]));
}
__device__ __forceinline__ uint4 vector_at(const uint16_t *elements, unsigned vector) { return reinterpret_cast<const uint4 *>(elements)[vector]; }
__device__ __forceinline__ void rotate(float &a, float &b, float cos, float sin) {
  const float x = __fmaf_rn(a, cos, -__fmul_rn(b, sin)), y = __fmaf_rn(b, cos, __fmul_rn(a, sin));
  a = x, b = y;
}

constexpr int QKV_THREADS = 256;
constexpr int HEADS_A_THREAD = 2;
constexpr int HEAD_VECTORS_MAX = 16;

// Two 16-byte vectors of a head, in its two halves: elements that rotate together are in one thread for either pairing.
struct HeadPart {
  unsigned row, head, position;
  uint4 low, high;
};

struct QkvStage {
  const QkvStageParams &p;
  unsigned threads, part;  // threads of a head, and which of them this is

  __device__ __forceinline__ unsigned heads() const { return p.q_heads + 2 * p.kv.kv_heads; }
  __device__ __forceinline__ bool is_q(unsigned head) const { return head < p.q_heads; }
  __device__ __forceinline__ bool is_v(unsigned head) const { return head >= p.q_heads + p.kv.kv_heads; }

  // Lane g of RmsNormTree is vector g of the head; the pairwise tree of neighbours ends with lanes that are zero.
  __device__ __forceinline__ float inverse_norm(const float *sums, float eps) const {
    float lanes[HEAD_VECTORS_MAX];
#pragma unroll
    for (int i = 0; i < HEAD_VECTORS_MAX; i++) lanes[i] = i < 2 * threads ? sums[i] : 0.0f;
#pragma unroll
    for (int width = HEAD_VECTORS_MAX / 2; width >= 1; width /= 2)
#pragma unroll
      for (int i = 0; i < width; i++) lanes[i] = __fadd_rn(lanes[2 * i], lanes[2 * i + 1]);
    return inverse_rms(lanes[0], p.kv.head_dim, eps);
  }

  // Norm of q or k, and the rotation.
  __device__ __forceinline__ void turn(HeadPart &h, const float *sums) const {
    float a[8], b[8], w[8];
    unpack(h.low, a);
    unpack(h.high, b);
    const uint16_t *weight = is_q(h.head) ? p.q_weight : p.k_weight;
    if (weight) {
      const float r = inverse_norm(sums, is_q(h.head) ? p.eps_q : p.eps_k);
      unpack(vector_at(weight, part), w);
#pragma unroll
      for (int i = 0; i < 8; i++) a[i] = __fmul_rn(__fmul_rn(a[i], r), w[i]);
      unpack(vector_at(weight, threads + part), w);
#pragma unroll
      for (int i = 0; i < 8; i++) b[i] = __fmul_rn(__fmul_rn(b[i], r), w[i]);
    }
    // Pairs 8 part .. 8 part + 8 in halves; interleaved, 4 part .. in the low vector and head_dim / 4 further in the high one.
    const size_t table = static_cast<size_t>(h.position) * (p.kv.head_dim / 2);
    const size_t first = table + part * (p.interleaved ? 4 : 8), second = p.interleaved ? first + p.kv.head_dim / 4 : first + 4;
    float cos[8], sin[8];
    *reinterpret_cast<float4 *>(cos) = *reinterpret_cast<const float4 *>(p.cos + first);
    *reinterpret_cast<float4 *>(cos + 4) = *reinterpret_cast<const float4 *>(p.cos + second);
    *reinterpret_cast<float4 *>(sin) = *reinterpret_cast<const float4 *>(p.sin + first);
    *reinterpret_cast<float4 *>(sin + 4) = *reinterpret_cast<const float4 *>(p.sin + second);
    if (p.interleaved) {
#pragma unroll
      for (int i = 0; i < 4; i++) rotate(a[2 * i], a[2 * i + 1], cos[i], sin[i]), rotate(b[2 * i], b[2 * i + 1], cos[4 + i], sin[4 + i]);
    } else {
#pragma unroll
      for (int i = 0; i < 8; i++) rotate(a[i], b[i], cos[i], sin[i]);
    }
    h.low = pack(a);
    h.high = pack(b);
  }

  __device__ __forceinline__ void store(const HeadPart &h) const {
    if (is_q(h.head)) {
      uint4 *to = reinterpret_cast<uint4 *>(p.q + (static_cast<size_t>(h.row) * p.q_heads + h.head) * p.kv.head_dim);
      to[part] = h.low;
      to[threads + part] = h.high;
      return;
    }
    bool fault = false;
    const unsigned slot = p.slots[h.row], kv_head = is_v(h.head) ? h.head - p.q_heads - p.kv.kv_heads : h.head - p.q_heads;
    const size_t page = slot / p.kv.page_tokens, in_page = slot % p.kv.page_tokens;
    const size_t plane = ((page * p.kv.kv_heads + kv_head) * 2 + (is_v(h.head) ? 1 : 0)) * p.kv.halves;
    auto put = [&](unsigned vector, uint4 value) {
      uint16_t *cell = p.kv.base + ((plane + (vector >> 3)) * p.kv.page_tokens + in_page) * 64;
      reinterpret_cast<uint4 *>(cell)[(vector & 7) ^ (h.position & 7)] = value;
    };
    put(part, finite_or_zero(h.low, fault));
    put(threads + part, finite_or_zero(h.high, fault));
    for (unsigned vector = 2 * threads + part; vector < p.kv.halves * 8; vector += threads) put(vector, make_uint4(0, 0, 0, 0));
    if (fault) p.faults[h.row] = 1;
  }
};

}  // namespace

// head_dim / 16 threads a head of a row (q heads, then k heads, then v heads), two heads a thread; head_dim is a multiple of 16
// up to 128. Cells of the cache are padded with zeros to 64 * halves elements and their 16-byte units permuted by the position
// (params.h).
extern "C" __global__ void __launch_bounds__(256) qkv_stage(const QkvStageParams p) {
  __shared__ float sums[HEADS_A_THREAD][QKV_THREADS * 2];
  let_successor_start();
  const unsigned threads = p.kv.head_dim / 16, heads_a_pass = QKV_THREADS / threads, local = threadIdx.x / threads;
  const QkvStage stage{p, threads, threadIdx.x % threads};
  const unsigned total = p.rows * stage.heads();
  wait_for_predecessor();
  HeadPart part[HEADS_A_THREAD];
  bool active[HEADS_A_THREAD];
#pragma unroll
  for (int i = 0; i < HEADS_A_THREAD; i++) {
    const unsigned index = (blockIdx.x * HEADS_A_THREAD + i) * heads_a_pass + local;
    active[i] = local < heads_a_pass && index < total;
    if (!active[i]) continue;
    const uint16_t *from = p.qkv + static_cast<size_t>(index) * p.kv.head_dim;
    part[i].low = vector_at(from, stage.part);
    part[i].high = vector_at(from, threads + stage.part);
    part[i].row = index / stage.heads();
    part[i].head = index % stage.heads();
    part[i].position = p.positions[part[i].row];
  }
  if (p.q_weight) {
#pragma unroll
    for (int i = 0; i < HEADS_A_THREAD; i++)
      if (active[i]) {
        sums[i][local * 2 * threads + stage.part] = square_into(0.0f, part[i].low);
        sums[i][local * 2 * threads + threads + stage.part] = square_into(0.0f, part[i].high);
      }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < HEADS_A_THREAD; i++)
    if (active[i]) {
      if (!stage.is_v(part[i].head)) stage.turn(part[i], sums[i] + local * 2 * threads);
      stage.store(part[i]);
    }
}
