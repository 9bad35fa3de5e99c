// Linear layers of many tokens on Hopper: the variants of include/linear_tiled.cuh. One name, one tile.
#include "linear_tiled.cuh"

using namespace sametree;

#define TILED_VARIANT(NAME, COLUMNS, CHUNKED, STAGES, TAIL, STAGED, CLUSTER_M, CLUSTER_N)                               \
  extern "C" __global__ void __cluster_dims__(CLUSTER_M * CLUSTER_N, 1, 1) __launch_bounds__(384, 1)                    \
      NAME(const __grid_constant__ CUtensorMap weight, const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap y, \
           const __grid_constant__ CUtensorMap residual, const LinearParams p) {                                        \
    linear_tiled<COLUMNS, CHUNKED, STAGES, Tail::TAIL, STAGED, CLUSTER_M, CLUSTER_N>(weight, x, y, residual, p);        \
  }

// m2: two tiles of tokens share W.
TILED_VARIANT(linear_tiled_n256, 256, false, 4, Bf16, false, 1, 1)
TILED_VARIANT(linear_tiled_n128, 128, false, 6, Bf16, true, 1, 2)
TILED_VARIANT(linear_tiled_n256_f32, 256, false, 4, F32, false, 1, 1)
TILED_VARIANT(linear_tiled_n256_f32_m2, 256, false, 4, F32, false, 2, 1)
TILED_VARIANT(linear_tiled_n128_f32, 128, false, 6, F32, false, 1, 1)
TILED_VARIANT(linear_tiled_n128_chunked_f32, 128, true, 6, F32, false, 1, 1)
TILED_VARIANT(linear_tiled_n256_silu, 256, false, 4, SiluMul, false, 1, 1)
TILED_VARIANT(linear_tiled_n256_silu_m2, 256, false, 4, SiluMul, false, 2, 1)
TILED_VARIANT(linear_tiled_n224_silu, 224, false, 4, SiluMul, false, 1, 1)
TILED_VARIANT(linear_tiled_n224_silu_m2, 224, false, 4, SiluMul, false, 2, 1)
TILED_VARIANT(linear_tiled_n128_silu, 128, false, 6, SiluMul, false, 1, 1)
TILED_VARIANT(linear_tiled_n192_chunked, 192, true, 5, Bf16, false, 1, 2)
TILED_VARIANT(linear_tiled_n192_chunked_m2, 192, true, 5, Bf16, false, 2, 1)
TILED_VARIANT(linear_tiled_n128_chunked, 128, true, 6, Bf16, true, 1, 2)
TILED_VARIANT(linear_tiled_n128_chunked_m2, 128, true, 6, Bf16, true, 2, 1)
TILED_VARIANT(linear_tiled_n96_chunked, 96, true, 7, Bf16, true, 1, 1)
TILED_VARIANT(linear_tiled_n96_chunked_m2, 96, true, 7, Bf16, true, 2, 1)
TILED_VARIANT(linear_tiled_n64_chunked, 64, true, 8, Bf16, true, 1, 1)
TILED_VARIANT(linear_tiled_n128_chunked_silu, 128, true, 6, SiluMul, false, 1, 1)
