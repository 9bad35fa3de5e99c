// Choosing one token a row: log-sum-exp, argmax, and the sampler of reduction-tree's `evaluate::sample`, step by step.
//
// tree     LogSumExpTree: chunks of 16384, 1024 lanes a chunk, pairwise tree of neighbours, chunks left to right
// launch   one block of 1024 threads a row
// bytes    the row about six times for greedy rows' two passes and the others' threshold searches; it stays in L2
// rounding as the definition says; top-k and top-p find thresholds by counting and by integer sums, which have no order
#include "common.cuh"
#include "scalar.cuh"

using namespace sametree;

namespace {

constexpr unsigned CHUNK = 16384;
constexpr int THREADS = 1024;
typedef unsigned long long u64;

// A key that orders IEEE values as unsigned integers, with -0 equal to +0.
__device__ __forceinline__ uint32_t order_key(float x) {
  const uint32_t bits = x == 0.0f ? 0 : __float_as_uint(x);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ float from_key(uint32_t key) {
  return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}

struct Scratch {
  float lanes[32];
  float best_value[32];
  unsigned best_index[32];
  u64 sums[32];
  unsigned counts[32];
};

__device__ __forceinline__ u64 block_sum(u64 value, Scratch &scratch) {
#pragma unroll
  for (int step = 1; step < 32; step *= 2) value += __shfl_xor_sync(~0u, value, step);
  __syncthreads();
  if ((threadIdx.x & 31) == 0) scratch.sums[threadIdx.x >> 5] = value;
  __syncthreads();
  u64 sum = 0;
  for (int i = 0; i < 32; i++) sum += scratch.sums[i];
  return sum;
}

// The lowest index among the largest values, by (value descending, index ascending). NaN and candidates that were never set
// have index ~0.
__device__ __forceinline__ void block_best(float &value, unsigned &index, Scratch &scratch) {
  auto take = [&](float v, unsigned i) {
    if (i != ~0u && (index == ~0u || v > value || (v == value && i < index))) value = v, index = i;
  };
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const float v = __shfl_xor_sync(~0u, value, step);
    const unsigned i = __shfl_xor_sync(~0u, index, step);
    take(v, i);
  }
  __syncthreads();
  if ((threadIdx.x & 31) == 0) scratch.best_value[threadIdx.x >> 5] = value, scratch.best_index[threadIdx.x >> 5] = index;
  __syncthreads();
  for (int i = 0; i < 32; i++) take(scratch.best_value[i], scratch.best_index[i]);
}

__device__ __forceinline__ float sum_of_exponentials(const float *logits, unsigned vocab, float max, Scratch &scratch) {
  float total = 0.0f;
  for (unsigned first = 0; first < vocab; first += CHUNK) {
    float lane = 0.0f;
    const unsigned end = min(first + CHUNK, vocab);
#pragma unroll 4
    for (unsigned i = first + threadIdx.x; i < end; i += THREADS) lane = __fadd_rn(lane, exp2_tree(__fmul_rn(__fsub_rn(logits[i], max), __uint_as_float(LOG2_E))));
#pragma unroll
    for (int step = 1; step < 32; step *= 2) lane = __fadd_rn(lane, __shfl_xor_sync(~0u, lane, step));
    __syncthreads();
    if ((threadIdx.x & 31) == 0) scratch.lanes[threadIdx.x >> 5] = lane;
    __syncthreads();
    float sum = scratch.lanes[threadIdx.x & 31];
#pragma unroll
    for (int step = 1; step < 32; step *= 2) sum = __fadd_rn(sum, __shfl_xor_sync(~0u, sum, step));
    total = first == 0 ? sum : __fadd_rn(total, sum);
  }
  return total;
}

// The largest key t such that `enough(sum of weight over keys >= t)`, found bit by bit; 0 when none is.
template <class WEIGHT>
__device__ __forceinline__ uint32_t largest_threshold(const float *logits, unsigned vocab, u64 need, Scratch &scratch, WEIGHT weight) {
  uint32_t key = 0;
  for (int bit = 31; bit >= 0; bit--) {
    const uint32_t candidate = key | 1u << bit;
    u64 sum = 0;
    for (unsigned i = threadIdx.x; i < vocab; i += THREADS) {
      const float x = logits[i];
      if (x == x && order_key(x) >= candidate) sum += weight(x);
    }
    if (block_sum(sum, scratch) >= need) key = candidate;
  }
  return key;
}

// ceil(a * b / 2^32) of a < 2^33 and b < 2^63; saturates instead of wrapping.
__device__ __forceinline__ u64 scaled_ceil(u64 a, u64 b) {
  const u64 low = a * b, high = __umul64hi(a, b);
  const u64 quotient = high << 32 | low >> 32;
  return quotient + ((low & 0xffffffffu) != 0);
}

}  // namespace

extern "C" __global__ void __launch_bounds__(1024) sample_rows(const SampleParamsGpu p) {
  __shared__ Scratch scratch;
  let_successor_start();
  wait_for_predecessor();
  const float *logits = p.logits + static_cast<size_t>(blockIdx.x) * p.vocab;
  const SampleRow row = p.rows[blockIdx.x];
  const float infinity = __uint_as_float(0x7f800000);
  float max = -infinity;
  unsigned token = ~0u;
  for (unsigned i = threadIdx.x; i < p.vocab; i += THREADS)
    if (logits[i] > max) max = logits[i], token = i;
  block_best(max, token, scratch);
  if (token == ~0u) max = -infinity, token = 0;
  const float sum = sum_of_exponentials(logits, p.vocab, max, scratch);
  const bool warm = row.temperature >= 1.17549435e-38f;
  if (warm && max < infinity && max > -infinity) {
    const float r = __frcp_rn(row.temperature);
    auto scaled = [&](float x) { return __fmul_rn(__fsub_rn(x, max), r); };
    auto relative = [&](float x) { return exp2_tree(__fmul_rn(scaled(x), __uint_as_float(LOG2_E))); };
    auto mass = [&](float x) -> u64 { return __float2ull_rz(__fmul_rn(relative(x), 1099511627776.0f)); };
    float threshold = -infinity;
    if (row.top_k > 0) {
      u64 numbers = 0;
      for (unsigned i = threadIdx.x; i < p.vocab; i += THREADS) numbers += logits[i] == logits[i];
      if (row.top_k < block_sum(numbers, scratch))
        threshold = from_key(largest_threshold(logits, p.vocab, row.top_k, scratch, [](float) -> u64 { return 1; }));
    }
    if (row.top_p < 1.0f) {
      u64 all = 0;
      for (unsigned i = threadIdx.x; i < p.vocab; i += THREADS)
        if (logits[i] >= threshold) all += mass(logits[i]);
      const u64 need = scaled_ceil(__float2ull_rz(__fmul_rn(fmaxf(row.top_p, 0.0f), 4294967296.0f)), block_sum(all, scratch));
      // Every logit that the sum may still count is at or above the top-k threshold, so the threshold only rises.
      if (need == 0)
        threshold = max;
      else
        threshold = from_key(largest_threshold(logits, p.vocab, need, scratch, [&](float x) -> u64 { return x >= threshold ? mass(x) : 0; }));
    }
    float best = -infinity;
    unsigned chosen = ~0u;
    const unsigned groups = (p.vocab + 3) / 4;
    for (unsigned group = threadIdx.x; group < groups; group += THREADS) {
      const uint4 block = philox(make_uint4(group, row.position, 0, 0), make_uint2(row.seed_low, row.seed_high));
      const uint32_t words[4] = {block.x, block.y, block.z, block.w};
#pragma unroll
      for (int e = 0; e < 4; e++) {
        const unsigned i = group * 4 + e;
        if (i >= p.vocab) break;
        const float x = logits[i];
        if (!(x >= threshold) || !(relative(x) >= row.min_p)) continue;
        const float score = __fadd_rn(scaled(x), gumbel(words[e]));
        if (chosen == ~0u || score > best) best = score, chosen = i;
      }
    }
    block_best(best, chosen, scratch);
    if (chosen != ~0u) token = chosen;
  }
  if (threadIdx.x == 0) {
    p.token[blockIdx.x] = token;
    p.logprob[blockIdx.x] = __fsub_rn(__fsub_rn(logits[token], max), __fmul_rn(log2_tree(sum), __uint_as_float(LN_2)));
  }
}
