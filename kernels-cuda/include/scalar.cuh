// Scalar functions from IEEE operations only, line by line as the documentation of reduction-tree's `scalar` and `noise`
// defines them.
#pragma once
#include <stdint.h>
#include "constants.cuh"

namespace sametree {

// Horner's rule in FMA from the highest power; the coefficients are reduction-tree's, written by build.rs.
template <int COUNT>
__device__ __forceinline__ float polynomial(float f, const uint32_t (&coefficients)[COUNT]) {
  float p = __uint_as_float(coefficients[COUNT - 1]);
#pragma unroll
  for (int i = COUNT - 2; i >= 0; i--) p = __fmaf_rn(f, p, __uint_as_float(coefficients[i]));
  return p;
}

// 2^x. Clamped to [-127, 128], where the result is +0 and +infinity; NaN gives +0. Splitting by 1.5 * 2^23 leaves a
// fraction in [-0.5, 0.5]; integers are exact.
template <bool BELOW_128 = false>
__device__ __forceinline__ float exp2_tree(float x) {
  // BELOW_128: the caller knows that x is at most 128 or NaN, where the upper clamp changes nothing.
  const float clamped = BELOW_128 ? fmaxf(x, -127.0f) : fminf(fmaxf(x, -127.0f), 128.0f);
  const float shifted = __fadd_rn(clamped, 12582912.0f);
  const float f = __fsub_rn(clamped, __fsub_rn(shifted, 12582912.0f));
  const float p = polynomial<6>(f, EXP2_POLYNOMIAL);
  return __uint_as_float(__float_as_uint(p) + (__float_as_uint(shifted) << 23));
}

// fma(f, P(f), e) for 1 + f in [sqrt(1/2), sqrt(2)).
__device__ __forceinline__ float log2_reduced(float f, float e) {
  const float p = polynomial<9>(f, LOG2_POLYNOMIAL);
  return __fmaf_rn(f, p, e);
}
__device__ __forceinline__ int split_log2(float x, float &f) {
  const int i = __float_as_int(x) - 0x3f3504f3;
  f = __fsub_rn(__int_as_float((i & 0x7fffff) + 0x3f3504f3), 1.0f);
  return i >> 23;
}
__device__ __forceinline__ float log2_tree(float x) {
  const bool tiny = x < 1.17549435e-38f;
  float f;
  const int e = split_log2(tiny ? __fmul_rn(x, 8388608.0f) : x, f);
  float y = log2_reduced(f, static_cast<float>(e - (tiny ? 23 : 0)));
  const float infinity = __uint_as_float(0x7f800000);
  y = x == infinity ? x : y;
  y = x == 0.0f ? -infinity : y;
  return x >= 0.0f ? y : __uint_as_float(0x7fffffff);
}
// -ln(1 - v) for v in (0, 1).
__device__ __forceinline__ float exponential_tree(float v) {
  float f;
  const int e = split_log2(__fsub_rn(1.0f, v), f);
  return __fmul_rn(log2_reduced(e == 0 ? -v : f, static_cast<float>(e)), -__uint_as_float(LN_2));
}

__device__ __forceinline__ float silu_tree(float x) {
  return __fmul_rn(x, __frcp_rn(__fadd_rn(1.0f, exp2_tree(__fmul_rn(x, -__uint_as_float(LOG2_E))))));
}
__device__ __forceinline__ float rsqrt_tree(float x) { return __frcp_rn(__fsqrt_rn(x)); }

// Philox-4x32 with ten rounds.
__device__ __forceinline__ uint4 philox(uint4 counter, uint2 key) {
#pragma unroll
  for (int round = 0; round < 10; round++) {
    if (round > 0) key.x += 0x9e3779b9u, key.y += 0xbb67ae85u;
    const uint32_t high_a = __umulhi(counter.x, 0xd2511f53u), low_a = counter.x * 0xd2511f53u;
    const uint32_t high_b = __umulhi(counter.z, 0xcd9e8d57u), low_b = counter.z * 0xcd9e8d57u;
    counter = make_uint4(high_b ^ counter.y ^ key.x, low_b, high_a ^ counter.w ^ key.y, low_a);
  }
  return counter;
}
// A standard Gumbel variate from a uniform word.
__device__ __forceinline__ float gumbel(uint32_t u) {
  const float v = fminf(__fmaf_rn(__uint2float_rn(u >> 1), __uint_as_float(0x30000000), __uint_as_float(0x2f800000)),
                        __uint_as_float(0x3f7fffff));
  return __fmul_rn(log2_tree(exponential_tree(v)), -__uint_as_float(LN_2));
}

}  // namespace sametree
