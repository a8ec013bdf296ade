#include "checkpoint/packed_fours.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"

namespace athanor::inline checkpoint {
namespace {

constexpr int64_t kNumbersOfScale = 32;  // numbers with one scale
constexpr int64_t kBytesOfScale = 16;    // two numbers each, the first in the low bits
constexpr int kScaleBias = 127;
constexpr int kNoScale = 255;  // E8M0's only NaN

// E2M1: sign, two bits of exponent, one of mantissa.
constexpr std::array<float, 16> kValues = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                           -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

}  // namespace

std::optional<PackedFours> packed_fours(const ParameterSpec& parameter) {
  const FileForm& form = parameter.form;
  if (!form.stacked || parameter.shape.size() != 3 || parameter.shape[2] % kNumbersOfScale != 0) return std::nullopt;
  const int64_t experts = parameter.shape[0], blocks = parameter.shape[2] / kNumbersOfScale;
  return PackedFours{form.fused + "_blocks",
                     form.fused + "_scales",
                     {experts, form.rows, blocks, kBytesOfScale},
                     {experts, form.rows, blocks}};
}

std::vector<HfPart> packed_parts(const ParameterSpec& parameter) {
  ParameterSpec plain = parameter;
  plain.form.transposed = false;
  return hf_parts(plain);
}

void read_packed_fours(const SafetensorsFile& blocks_file, const SafetensorsFile& scales_file,
                       const PackedFours& tensors, int64_t first, std::span<float> out) {
  if (out.empty()) return;
  const int64_t end = first + std::ssize(out), first_block = first / kNumbersOfScale,
                blocks = (end - 1) / kNumbersOfScale + 1 - first_block;
  std::vector<uint8_t> bytes(static_cast<size_t>(blocks * kBytesOfScale)), scales(static_cast<size_t>(blocks));
  blocks_file.read_bytes(tensors.blocks, first_block * kBytesOfScale, bytes);
  scales_file.read_bytes(tensors.scales, first_block, scales);
  for (int64_t i = first; i < end; ++i) {
    const auto in_blocks = static_cast<size_t>(i - first_block * kNumbersOfScale);
    const uint8_t pair = bytes[in_blocks / 2], four = in_blocks % 2 == 0 ? pair & 0x0F : pair >> 4;
    const int scale = scales[in_blocks / kNumbersOfScale];
    ATHANOR_CHECK_CHECKPOINT(
        scale != kNoScale,
        "{}: the scale of numbers {} to {} is no number (byte 255); fetch the file again, or give a folder in "
        "bf16",
        tensors.scales, i / kNumbersOfScale * kNumbersOfScale,
        i / kNumbersOfScale * kNumbersOfScale + kNumbersOfScale - 1);
    out[static_cast<size_t>(i - first)] = std::ldexp(kValues[four], scale - kScaleBias);
  }
}

}  // namespace athanor::inline checkpoint
