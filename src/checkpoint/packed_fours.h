#pragma once
// Weights of experts that lie in files as numbers of 4 bits with a power of two for each 32 of a row (OCP Microscaling
// Formats 1.0, MXFP4; gpt-oss, `quantization_config` with quant_method "mxfp4").

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "arch/parameter.h"
#include "checkpoint/hf_layout.h"
#include "checkpoint/safetensors.h"

namespace athanor::inline checkpoint {

/// The tensors of all experts: `blocks` [experts, outputs, inputs / 32, 16] U8 and `scales` [experts, outputs, inputs /
/// 32] U8. Unlike those of bf16 they are not transposed.
struct PackedFours {
  std::string blocks, scales;
  Shape blocks_shape, scales_shape;
};

/// Returns the tensors that a parameter of experts has where it is packed; nothing for others, and where rows are no
/// whole blocks.
std::optional<PackedFours> packed_fours(const ParameterSpec& parameter);
/// Returns the parts of such a parameter, in the elements [experts, outputs, inputs].
std::vector<HfPart> packed_parts(const ParameterSpec& parameter);

/// Reads elements [first, first + out.size()), row-major: exact in fp32.
void read_packed_fours(const SafetensorsFile& blocks_file, const SafetensorsFile& scales_file,
                       const PackedFours& tensors, int64_t first, std::span<float> out);

}  // namespace athanor::inline checkpoint
