#pragma once
// Where the elements of our logical parameters lie in the tensors of `transformers` folders. Mostly each parameter is a
// tensor of its own name. But each expert is stored separately, and some families fuse several matrices into one tensor
// or store them transposed (FileForm, arch/parameter.h).

#include <string>
#include <vector>

#include "arch/parameter.h"
#include "checkpoint/dtype.h"
#include "config/model_config.h"

namespace athanor::inline checkpoint {

inline constexpr const char* kHfConfigName = "config.json";
inline constexpr const char* kHfWeightsName = "model.safetensors";
inline constexpr const char* kHfIndexName = "model.safetensors.index.json";

/// Elements of a parameter, row-major from `first` on, as a block in a tensor of a folder: element (r, c) of the block
/// is element at + r · row_stride + c · column_stride of the tensor.
struct HfPart {
  std::string tensor;  ///< the tensor's name
  Shape shape;         ///< the tensor's, not the block's
  int64_t first = 0;
  int64_t rows = 0, columns = 0;
  int64_t at = 0, row_stride = 0, column_stride = 1;

  int64_t count() const { return rows * columns; }
  /// True if the elements lie one after the other in the tensor, in the same order.
  bool is_contiguous() const { return column_stride == 1 && (row_stride == columns || rows == 1); }
};

/// Returns the parts that make up a parameter, one after the other: one for each expert of an expert parameter
/// ("...experts.7.gate_proj.weight", or a part of the tensor that FileForm::stacked names), otherwise one for each run
/// of outputs that lie together there, too. This is the form in which folders are written.
std::vector<HfPart> hf_parts(const ParameterSpec& parameter);

/// Returns the parts of a parameter of experts in a folder that stacks them: E experts with intermediate size F and
/// hidden size D are "...experts.gate_up_proj" [E, 2F, D] and "...experts.down_proj" [E, D, F]. Nothing for other
/// parameters.
std::vector<HfPart> hf_stacked_parts(const ParameterSpec& parameter);

/// Returns the tensors of files, [experts] each, that have the biases of routers (router_rows.h), in the order of the
/// sparse layers; nothing if the files of the model's family have none.
std::vector<std::string> hf_router_biases(const ModelConfig& model);

}  // namespace athanor::inline checkpoint
