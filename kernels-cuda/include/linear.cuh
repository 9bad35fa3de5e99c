// The tail of every linear kernel: epilogue in f32, one rounding, store.
#pragma once
#include "common.cuh"
#include "scalar.cuh"

namespace sametree {

// One output element from its sum. For silu·mul `sum` is the gate and `up` the other sum.
__device__ __forceinline__ float linear_epilogue(const LinearParams &p, unsigned row, unsigned column, float sum, float up) {
  if (p.epilogue == SAMETREE_EPILOGUE_BIAS) return __fadd_rn(sum, bf16_to_f32(p.bias[column]));
  if (p.epilogue == SAMETREE_EPILOGUE_RESIDUAL)
    return __fadd_rn(sum, bf16_to_f32(p.residual[static_cast<size_t>(row) * p.n_out + column]));
  if (p.epilogue == SAMETREE_EPILOGUE_SILU_MUL) return __fmul_rn(silu_tree(sum), up);
  return sum;
}

__device__ __forceinline__ void linear_store(const LinearParams &p, unsigned row, unsigned column, float value) {
  const size_t at = static_cast<size_t>(row) * p.n_out + column;
  if (p.store_f32)
    static_cast<float *>(p.y)[at] = value;
  else
    static_cast<uint16_t *>(p.y)[at] = f32_to_bf16(value);
}

// Two neighbouring columns, `column` even; the host launches kernels that use it only for even n_out.
__device__ __forceinline__ void linear_finish_pair(const LinearParams &p, unsigned row, unsigned column, float a, float b,
                                                   float up_a, float up_b) {
  if (row >= p.m || column >= p.n_out) return;
  const size_t at = static_cast<size_t>(row) * p.n_out + column;
  if (p.epilogue == SAMETREE_EPILOGUE_SILU_MUL) {
    a = __fmul_rn(silu_tree(a), up_a);
    b = __fmul_rn(silu_tree(b), up_b);
  } else if (p.epilogue != SAMETREE_EPILOGUE_NONE) {
    const uint32_t pair = *reinterpret_cast<const uint32_t *>(p.epilogue == SAMETREE_EPILOGUE_BIAS ? p.bias + column : p.residual + at);
    a = __fadd_rn(a, low_f32(pair));
    b = __fadd_rn(b, high_f32(pair));
  }
  if (p.store_f32)
    *reinterpret_cast<float2 *>(static_cast<float *>(p.y) + at) = make_float2(a, b);
  else
    *reinterpret_cast<uint32_t *>(static_cast<uint16_t *>(p.y) + at) = pack_bf16(a, b);
}

}  // namespace sametree
