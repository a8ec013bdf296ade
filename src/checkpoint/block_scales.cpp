#include "checkpoint/block_scales.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "checkpoint/json_members.h"

namespace athanor::inline checkpoint {
namespace {

int64_t blocks(int64_t size, int64_t of) { return (size + of - 1) / of; }

void read_sizes(const nlohmann::json& given, BlockSize& size, std::vector<std::string>& problems) {
  const auto is_size = [](const nlohmann::json& each) {
    return each.is_number_integer() && each >= 1 && each <= kMaxSize;
  };
  if (!given.is_array() || given.size() != 2 || !std::ranges::all_of(given, is_size)) {
    problems.push_back(fmt::format("quantization_config: weight_block_size = {} is not supported, only two sizes",
                                   JsonMembers::shown(given)));
    return;
  }
  size.rows = given[0], size.columns = given[1];
}

}  // namespace

Shape BlockSize::scales_of(const Shape& matrix) const {
  ATHANOR_ASSERT(matrix.size() == 2);
  return {blocks(matrix[0], rows), blocks(matrix[1], columns)};
}

Quantization read_quantization(const nlohmann::json& config, bool stacks_experts, std::vector<std::string>& problems) {
  const auto* given = JsonMembers(config, problems).find("quantization_config");
  if (!given) return {};
  const auto method = given->is_object() ? given->value("quant_method", nlohmann::json()) : nlohmann::json();
  if (method == "mxfp4" && stacks_experts)
    return {.fp8 = {}, .mxfp4 = true};  // whatever is packed, the tensors' names tell
  if (method != "fp8") {
    problems.push_back(fmt::format("quantization_config with quant_method = {} is not supported, only {}",
                                   JsonMembers::shown(method), stacks_experts ? "\"mxfp4\" and \"fp8\"" : "\"fp8\""));
    return {};
  }
  std::vector<std::string> inside;
  JsonMembers members(*given, inside);
  for (const auto& [key, only] : {std::pair{"fmt", "e4m3"}, {"scale_fmt", "float"}, {"expert_dtype", "fp8"}})
    members.only(key, only);
  for (std::string& each : inside) problems.push_back("quantization_config: " + std::move(each));
  BlockSize size;
  if (const auto* sizes = members.find("weight_block_size")) read_sizes(*sizes, size, problems);
  return {.fp8 = size};
}

void multiply_by_scales(const BlockScales& scales, int64_t first, std::span<float> values) {
  if (values.empty()) return;
  const auto& [file, tensor, block, width] = scales;
  const int64_t last = first + std::ssize(values) - 1, row_blocks = blocks(width, block.columns);
  const int64_t first_block = first / width / block.rows, last_block = last / width / block.rows;
  std::vector<float> factors(static_cast<size_t>((last_block - first_block + 1) * row_blocks));
  file->read_floats(tensor, first_block * row_blocks, factors);
  for (int64_t at = first; at <= last;) {  // the elements of one row that are in one block
    const int64_t row = at / width, column = at % width;
    const int64_t end = std::min({last + 1, row * width + width, at + block.columns - column % block.columns});
    const float factor =
        factors[static_cast<size_t>((row / block.rows - first_block) * row_blocks + column / block.columns)];
    for (; at < end; ++at) values[static_cast<size_t>(at - first)] *= factor;
  }
}

}  // namespace athanor::inline checkpoint
