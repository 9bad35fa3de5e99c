// Linear layers of few tokens on Hopper: the variants of include/linear_stream.cuh. One name, one tile.
#include "linear_stream.cuh"

using namespace sametree;

#define STREAM_VARIANT(NAME, CONSUMER, ROWS, TOKENS, LOCAL, CLUSTER, STEP)                                          \
  extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1)                                                        \
      __launch_bounds__(StreamShape<CONSUMER, ROWS, TOKENS, LOCAL, CLUSTER, STEP>::THREADS, 1)                      \
          NAME(const __grid_constant__ CUtensorMap weight, const __grid_constant__ CUtensorMap x, const LinearParams p) { \
    linear_stream<CONSUMER, ROWS, TOKENS, LOCAL, CLUSTER, STEP>(weight, x, p);                                      \
  }

// Up to 16 tokens. Two chunks in one block's warps.
STREAM_VARIANT(linear_mma_r32_t8_c2, Consumer::MmaSync, 32, 8, 2, 1, 2)
STREAM_VARIANT(linear_mma_r32_t16_c2, Consumer::MmaSync, 32, 16, 2, 1, 2)
STREAM_VARIANT(linear_mma_r48_t8_c2, Consumer::MmaSync, 48, 8, 2, 1, 2)
STREAM_VARIANT(linear_mma_r48_t16_c2, Consumer::MmaSync, 48, 16, 2, 1, 2)
STREAM_VARIANT(linear_mma_r112_t8_c1, Consumer::MmaSync, 112, 8, 1, 1, 2)
STREAM_VARIANT(linear_mma_r112_t16_c1, Consumer::MmaSync, 112, 16, 1, 1, 2)
STREAM_VARIANT(linear_mma_r112_t32_c1, Consumer::MmaSync, 112, 32, 1, 1, 2)
STREAM_VARIANT(linear_mma_r32_t16_c1, Consumer::MmaSync, 32, 16, 1, 1, 4)
// Up to 64 tokens, and tiles of 128. Two chunks in two blocks of a cluster.
STREAM_VARIANT(linear_wgmma_r64_t64_c2, Consumer::Wgmma, 64, 64, 1, 2, 1)
STREAM_VARIANT(linear_wgmma_r96_t64_c2, Consumer::Wgmma, 96, 64, 1, 2, 1)
STREAM_VARIANT(linear_wgmma_r64_t64_c2_s2, Consumer::Wgmma, 64, 64, 1, 2, 2)
STREAM_VARIANT(linear_wgmma_r96_t64_c2_s2, Consumer::Wgmma, 96, 64, 1, 2, 2)
STREAM_VARIANT(linear_wgmma_r112_t64_c1, Consumer::Wgmma, 112, 64, 1, 1, 1)
STREAM_VARIANT(linear_wgmma_r64_t64_c1, Consumer::Wgmma, 64, 64, 1, 1, 1)
STREAM_VARIANT(linear_wgmma_r64_t128_c2, Consumer::Wgmma, 64, 128, 1, 2, 1)
STREAM_VARIANT(linear_wgmma_r96_t128_c2, Consumer::Wgmma, 96, 128, 1, 2, 1)
STREAM_VARIANT(linear_wgmma_r128_t128_c2, Consumer::Wgmma, 128, 128, 1, 2, 1)
STREAM_VARIANT(linear_wgmma_r224_t128_c1, Consumer::Wgmma, 224, 128, 1, 1, 1)
STREAM_VARIANT(linear_wgmma_r192_t128_c1, Consumer::Wgmma, 192, 128, 1, 1, 1)
