// Linear layers of many tokens on Hopper: the variants of include/linear_tiled.cuh. One name, one tile.
#include "linear_tiled.cuh"

using namespace sametree;

#define TILED_VARIANT(NAME, COLUMNS, CHUNKED, STAGES, PARKED, TAIL)                                                    \
  extern "C" __global__ void __launch_bounds__(384, 1)                                                                 \
      NAME(const __grid_constant__ CUtensorMap weight, const __grid_constant__ CUtensorMap x, const LinearParams p) {   \
    linear_tiled<COLUMNS, CHUNKED, STAGES, PARKED, Tail::TAIL>(weight, x, p);                                                \
  }

TILED_VARIANT(linear_tiled_n256, 256, false, 4, 0, Bf16)
TILED_VARIANT(linear_tiled_n128, 128, false, 6, 0, Bf16)
TILED_VARIANT(linear_tiled_n256_f32, 256, false, 4, 0, F32)
TILED_VARIANT(linear_tiled_n128_f32, 128, false, 6, 0, F32)
TILED_VARIANT(linear_tiled_n128_chunked_f32, 128, true, 6, 0, F32)
TILED_VARIANT(linear_tiled_n256_silu, 256, false, 4, 0, SiluMul)
TILED_VARIANT(linear_tiled_n224_silu, 224, false, 4, 0, SiluMul)
TILED_VARIANT(linear_tiled_n128_silu, 128, false, 6, 0, SiluMul)
TILED_VARIANT(linear_tiled_n192_chunked, 192, true, 5, 0, Bf16)
TILED_VARIANT(linear_tiled_n128_chunked, 128, true, 6, 0, Bf16)
TILED_VARIANT(linear_tiled_n96_chunked, 96, true, 7, 0, Bf16)
TILED_VARIANT(linear_tiled_n64_chunked, 64, true, 8, 0, Bf16)
TILED_VARIANT(linear_tiled_n128_chunked_silu, 128, true, 6, 0, SiluMul)
