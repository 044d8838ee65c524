// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cublasLt.h>

#include <array>
#include <cstdint>

namespace ballast::kernels {

// Configurations of cublasLt's kernels for Hopper that were the fastest, or near it, for some
// product of a step on an H200, of some thousands that it has; it names few of them by itself
// (benchmarks/results/dense_step_2026-11-18.md).
struct Configuration {
  cublasLtMatmulTile_t tile;
  uint32_t custom;
  cublasLtClusterShape_t cluster;
};
constexpr int kAlgorithmOfHopper = 66;
constexpr std::array<Configuration, 20> kConfigurations = {{
    {CUBLASLT_MATMUL_TILE_128x128, 1, CUBLASLT_CLUSTER_SHAPE_2x1x1},
    {CUBLASLT_MATMUL_TILE_128x128, 3, CUBLASLT_CLUSTER_SHAPE_1x2x1},
    {CUBLASLT_MATMUL_TILE_128x128, 3, CUBLASLT_CLUSTER_SHAPE_2x4x1},
    {CUBLASLT_MATMUL_TILE_128x136, 1, CUBLASLT_CLUSTER_SHAPE_1x1x1},
    {CUBLASLT_MATMUL_TILE_128x136, 1, CUBLASLT_CLUSTER_SHAPE_2x1x1},
    {CUBLASLT_MATMUL_TILE_128x136, 3, CUBLASLT_CLUSTER_SHAPE_1x1x1},
    {CUBLASLT_MATMUL_TILE_128x136, 3, CUBLASLT_CLUSTER_SHAPE_2x1x1},
    {CUBLASLT_MATMUL_TILE_128x136, 3, CUBLASLT_CLUSTER_SHAPE_1x2x1},
    {CUBLASLT_MATMUL_TILE_128x144, 1, CUBLASLT_CLUSTER_SHAPE_2x1x1},
    {CUBLASLT_MATMUL_TILE_128x144, 3, CUBLASLT_CLUSTER_SHAPE_1x2x1},
    {CUBLASLT_MATMUL_TILE_128x160, 1, CUBLASLT_CLUSTER_SHAPE_1x1x1},
    {CUBLASLT_MATMUL_TILE_128x160, 1, CUBLASLT_CLUSTER_SHAPE_2x1x1},
    {CUBLASLT_MATMUL_TILE_128x160, 3, CUBLASLT_CLUSTER_SHAPE_2x1x1},
    {CUBLASLT_MATMUL_TILE_128x168, 1, CUBLASLT_CLUSTER_SHAPE_2x1x1},
    {CUBLASLT_MATMUL_TILE_128x200, 5, CUBLASLT_CLUSTER_SHAPE_2x1x1},
    {CUBLASLT_MATMUL_TILE_128x256, 4, CUBLASLT_CLUSTER_SHAPE_2x1x1},
    {CUBLASLT_MATMUL_TILE_168x128, 2, CUBLASLT_CLUSTER_SHAPE_1x2x1},
    {CUBLASLT_MATMUL_TILE_192x96, 3, CUBLASLT_CLUSTER_SHAPE_1x1x1},
    {CUBLASLT_MATMUL_TILE_256x128, 4, CUBLASLT_CLUSTER_SHAPE_1x2x1},
    {CUBLASLT_MATMUL_TILE_256x128, 7, CUBLASLT_CLUSTER_SHAPE_1x2x1},
}};

// False: the library does not know it.
inline bool configure(cublasLtMatmulAlgo_t& algorithm, const Configuration& configuration) {
  const auto put = [&](cublasLtMatmulAlgoConfigAttributes_t attribute, auto value) {
    return cublasLtMatmulAlgoConfigSetAttribute(&algorithm, attribute, &value, sizeof(value)) ==
           CUBLAS_STATUS_SUCCESS;
  };
  return put(CUBLASLT_ALGO_CONFIG_TILE_ID, static_cast<uint32_t>(configuration.tile)) &&
         put(CUBLASLT_ALGO_CONFIG_STAGES_ID, uint32_t{CUBLASLT_MATMUL_STAGES_64xAUTO}) &&
         put(CUBLASLT_ALGO_CONFIG_SPLITK_NUM, int32_t{1}) &&
         put(CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, uint32_t{CUBLASLT_REDUCTION_SCHEME_NONE}) &&
         put(CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, configuration.custom) &&
         put(CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, static_cast<uint16_t>(configuration.cluster));
}

}  // namespace ballast::kernels
