#pragma once
// Weights that lie in files as numbers of 8 bits with a factor for each block of rows and columns (DeepSeek-V3, §3.3.2;
// `quantization_config` with quant_method "fp8").

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"

namespace athanor::inline checkpoint {

/// The rows and columns that have one factor. Blocks at the end of a matrix may be smaller.
struct BlockSize {
  int64_t rows = 128, columns = 128;

  /// Returns the shape of the factors of a matrix [rows, columns].
  Shape scales_of(const Shape& matrix) const;
};

/// What `quantization_config` says of a folder's weights.
struct Quantization {
  std::optional<BlockSize> fp8;  ///< where matrices may be F8_E4M3, with factors of these blocks
  bool mxfp4 = false;            ///< experts may be packed (packed_fours.h)
};

/// Reads `quantization_config`. Faults, such as another method, go to `problems`.
/// @param stacks_experts  whether the family has the experts that mxfp4 packs.
Quantization read_quantization(const nlohmann::json& config, bool stacks_experts, std::vector<std::string>& problems);

/// The factors of a matrix.
struct BlockScales {
  const SafetensorsFile* file = nullptr;
  std::string tensor;  ///< their name there
  BlockSize block;
  int64_t width = 0;  ///< columns of the matrix
};

/// Multiplies elements [first, first + values.size()), row-major, of the matrix by their factors: products in fp32.
void multiply_by_scales(const BlockScales& scales, int64_t first, std::span<float> values);

}  // namespace athanor::inline checkpoint
