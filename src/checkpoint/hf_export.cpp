#include "checkpoint/hf_export.h"

#include <algorithm>
#include <cerrno>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fault.h"
#include "base/file_moves.h"
#include "base/files.h"
#include "base/text.h"
#include "checkpoint/hf_layout.h"
#include "checkpoint/hf_tokenizer.h"
#include "checkpoint/safetensors.h"
#include "config/families.h"

namespace athanor::inline checkpoint {
namespace fs = std::filesystem;
namespace {

/// A tensor of the files, and the parts of parameters that it has, or its values.
struct StoredTensor {
  struct Piece {
    const ParameterSpec* parameter;
    HfPart part;
  };
  std::string name;
  Shape shape;
  Dtype dtype;
  std::vector<Piece> pieces = {};
  std::vector<float> values = {};

  int64_t count() const { return num_elements(shape).value(); }
  /// The elements in a row; a vector has rows of one.
  int64_t width() const { return shape.size() > 1 ? shape.back() : 1; }
};

/// Weights have the type `dtype`; biases of routers are F32, as the class keeps them.
std::vector<StoredTensor> list_tensors(const std::vector<ParameterSpec>& parameters, const HfConfig& config,
                                       Dtype dtype) {
  std::vector<StoredTensor> tensors;
  std::map<std::string, size_t> known;
  for (const auto& parameter : parameters) {
    for (HfPart& part : hf_parts(parameter)) {
      const auto [found, is_new] = known.try_emplace(part.tensor, tensors.size());
      if (is_new) tensors.push_back({part.tensor, part.shape, dtype});
      tensors[found->second].pieces.push_back({&parameter, std::move(part)});
    }
  }
  const std::vector<std::string> biases = hf_router_biases(config.model);
  const std::vector<float> zeros(static_cast<size_t>(config.model.num_experts), 0.0f);
  for (size_t i = 0; i < biases.size(); ++i)
    tensors.push_back({.name = biases[i],
                       .shape = {config.model.num_experts},
                       .dtype = Dtype::kF32,
                       .values = config.router_bias.empty() ? zeros : config.router_bias.at(i)});
  return tensors;
}

/// Returns consecutive tensors, as many as fit into a file.
std::vector<std::span<const StoredTensor>> plan_shards(std::span<const StoredTensor> tensors, uint64_t max_bytes) {
  std::vector<std::span<const StoredTensor>> shards;
  size_t begin = 0;
  uint64_t held = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const uint64_t bytes = static_cast<uint64_t>(tensors[i].count()) * dtype_size(tensors[i].dtype);
    if (i > begin && held + bytes > max_bytes) {
      shards.push_back(tensors.subspan(begin, i - begin));
      begin = i;
      held = 0;
    }
    held += bytes;
  }
  shards.push_back(tensors.subspan(begin));
  return shards;
}

/// Elements [first, first + out.size()) of a tensor, which are whole rows of it.
struct Block {
  int64_t first;
  std::span<float> out;

  int64_t end() const { return first + std::ssize(out); }
  /// Returns the place of `count` elements of the tensor from `at` on.
  std::span<float> at(int64_t at, int64_t count) const {
    return out.subspan(static_cast<size_t>(at - first), static_cast<size_t>(count));
  }
};

/// Reads those elements of a block that a part has. This one lies in the tensor as it does in the parameter.
void read_run(const ParameterSpec& parameter, const HfPart& part, const Block& block, const ParameterReader& read) {
  const int64_t from = std::max(block.first, part.at), to = std::min(block.end(), part.at + part.count());
  if (from < to) read(parameter, part.first + from - part.at, block.at(from, to - from));
}

/// This one has rows between which there are others.
void read_spread_rows(const ParameterSpec& parameter, const HfPart& part, const Block& block,
                      const ParameterReader& read) {
  const int64_t skipped = block.first > part.at ? (block.first - part.at + part.row_stride - 1) / part.row_stride : 0;
  for (int64_t r = skipped; r < part.rows && part.at + r * part.row_stride < block.end(); ++r)
    read(parameter, part.first + r * part.columns, block.at(part.at + r * part.row_stride, part.columns));
}

/// This one is transposed: its outputs are columns of the tensor, whose rows have `width` elements.
void read_transposed(const ParameterSpec& parameter, const HfPart& part, int64_t width, const Block& block,
                     const ParameterReader& read) {
  const int64_t first_row = part.at / width, first_column = part.at % width;
  const int64_t from = std::max(block.first / width, first_row),
                to = std::min(block.end() / width, first_row + part.columns);
  if (from >= to) return;
  std::vector<float> run(static_cast<size_t>(to - from));
  for (int64_t output = 0; output < part.rows; ++output) {
    read(parameter, part.first + output * part.columns + from - first_row, run);
    for (int64_t row = from; row < to; ++row)
      block.at(row * width + first_column + output * part.row_stride, 1)[0] = run[static_cast<size_t>(row - from)];
  }
}

/// Reads a block of a tensor that is not one part as it lies. A row may have elements of several parts, or of one part
/// in another order.
void read_rows(const StoredTensor& tensor, const Block& block, const ParameterReader& read) {
  for (const auto& [parameter, part] : tensor.pieces) {
    if (part.is_contiguous())
      read_run(*parameter, part, block, read);
    else if (part.column_stride == 1)
      read_spread_rows(*parameter, part, block, read);
    else
      read_transposed(*parameter, part, tensor.width(), block, read);
  }
}

/// Returns how many elements of a tensor are read at once: some four megabytes, in whole rows if it has several parts.
int64_t elements_at_once(const StoredTensor& tensor) {
  constexpr int64_t kBlockElements = 1 << 20;
  if (tensor.pieces.empty() || (tensor.pieces.size() == 1 && tensor.pieces[0].part.is_contiguous()))
    return kBlockElements;
  const int64_t width = tensor.width();
  return std::max<int64_t>(1, kBlockElements / width) * width;
}

/// Reads elements [first, first + out.size()) of a tensor; unless it is one part as it lies, whole rows.
void read_elements(const StoredTensor& tensor, int64_t first, std::span<float> out, const ParameterReader& read) {
  if (tensor.pieces.empty()) {
    std::copy_n(tensor.values.begin() + first, out.size(), out.begin());
  } else if (const auto& [parameter, part] = tensor.pieces[0]; tensor.pieces.size() == 1 && part.is_contiguous()) {
    read(*parameter, part.first + first, out);
  } else {
    read_rows(tensor, {first, out}, read);
  }
}

void write_shard(const fs::path& path, std::span<const StoredTensor> tensors, const ParameterReader& read,
                 const Worked& worked) {
  std::vector<TensorSpec> specs;
  for (const auto& tensor : tensors) specs.push_back({tensor.name, tensor.dtype, tensor.shape});
  SafetensorsWriter writer(path, specs, {{"format", "pt"}});  // without it, transformers refuses the file
  std::vector<float> block;
  for (const auto& tensor : tensors) {
    const int64_t at_once = elements_at_once(tensor), count = tensor.count();
    for (int64_t at = 0; at < count; at += at_once) {
      block.resize(static_cast<size_t>(std::min(at_once, count - at)));
      read_elements(tensor, at, block, read);
      if (const int injected = fault_errno("export.block")) {
        errno = injected;
        fail_errno("cannot write", path.string());
      }
      writer.append_floats(tensor.dtype, block);
      if (worked) worked(static_cast<int64_t>(block.size() * dtype_size(tensor.dtype)));
    }
  }
  writer.commit();
}

/// The files of a model's weights; every member of a team plans them in the same way.
struct WeightFiles {
  std::vector<StoredTensor> tensors;
  std::vector<std::span<const StoredTensor>> shards;  // shards of tensors

  WeightFiles(const std::vector<ParameterSpec>& parameters, const HfConfig& config, const HfExportOptions& options)
      : tensors(list_tensors(parameters, config, options.dtype)),
        shards(plan_shards(tensors, options.max_shard_bytes)) {}

  std::string name(size_t i) const {
    return shards.size() == 1 ? kHfWeightsName : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
  }
};

/// Writes every team.size-th file.
void write_own_weights(const fs::path& folder, const WeightFiles& files, const ParameterReader& read,
                       const Team& team) {
  for (size_t i = static_cast<size_t>(team.index); i < files.shards.size(); i += static_cast<size_t>(team.size))
    write_shard(folder / files.name(i), files.shards[i], read, team.worked);
}

/// Writes which tensor is in which file; a single file needs no index.
void write_index(const fs::path& folder, const WeightFiles& files) {
  if (files.shards.size() == 1) return;
  nlohmann::json weight_map = nlohmann::json::object();
  uint64_t total_size = 0;
  for (size_t i = 0; i < files.shards.size(); ++i) {
    for (const auto& tensor : files.shards[i]) {
      weight_map[tensor.name] = files.name(i);
      total_size += static_cast<uint64_t>(tensor.count()) * dtype_size(tensor.dtype);
    }
  }
  const nlohmann::json index{{"metadata", {{"total_size", total_size}}}, {"weight_map", weight_map}};
  write_file_atomically(folder / kHfIndexName, index.dump(2) + "\n");
}

void refuse_beyond_family(const HfConfig& config) {
  ATHANOR_CHECK_CHECKPOINT(!family_of(config.model).architecture.empty(),
                           "cannot export: transformers has no class for family {}", config.model.family);
  auto beyond = beyond_family(config.model);
  if (any_nonzero(config.router_bias) && family_of(config.model).names.router_bias.empty())
    beyond.push_back("a router bias (moe.bias_update_rate)");
  ATHANOR_CHECK_CHECKPOINT(
      beyond.empty(),
      "cannot export: the model has {}, and the class of family {} in transformers ({}) nothing of "
      "the kind",
      join(beyond), config.model.family, family_of(config.model).architecture);
}

/// Writes what the model's folder had; the tokens that end a text are the model's own if training has changed them.
void write_generation_config(const fs::path& folder, const HfConfig& config) {
  const auto eos = config.eos_token_id();
  nlohmann::json json{{"_from_model_config", true}};
  if (!config.generation.text.empty()) {
    json = nlohmann::json::parse(config.generation.text);
    const auto& there = config.generation.eos_token_ids;
    if (!eos || there.empty() || std::ranges::find(there, *eos) != there.end())
      return write_file_atomically(folder / kHfGenerationName, config.generation.text);
  }
  if (config.bos_token_id) json["bos_token_id"] = *config.bos_token_id;
  if (eos) {
    json["eos_token_id"] =
        config.eos_token_ids.size() > 1 ? nlohmann::json(config.eos_token_ids) : nlohmann::json(*eos);
    // generate() needs one, and warns if it is missing
    json["pad_token_id"] = config.pad_token_id.value_or(*eos);
  }
  write_file_atomically(folder / kHfGenerationName, json.dump(2) + "\n");
}

/// Returns whether there is a folder of weights that will be replaced.
bool check_place(const fs::path& folder, bool overwrite) {
  const bool taken = fs::exists(folder) && !(fs::is_directory(folder) && fs::is_empty(folder));
  ATHANOR_CHECK_CHECKPOINT(!taken || fs::is_regular_file(folder / kHfConfigName),
                           "{}: is not a transformers folder (it has no {}) and will not be overwritten; choose "
                           "another folder",
                           folder.string(), kHfConfigName);
  ATHANOR_CHECK_CHECKPOINT(!taken || overwrite, "{}: is there already; choose another folder or overwrite it",
                           folder.string());
  return taken;
}

void write_small_files(const fs::path& folder, const HfConfig& config, const HfExportOptions& options) {
  write_file_atomically(folder / kHfConfigName, hf_config_text(config, options.dtype));
  write_generation_config(folder, config);
  if (!options.tokenizer.empty()) write_hf_tokenizer(folder, options.tokenizer, config);
  for (const auto& [name, text] : options.extra_files) write_file_atomically(folder / name, text);
}

}  // namespace

void export_hf_folder(const fs::path& folder, const HfConfig& config, const ParameterReader& read,
                      const HfExportOptions& options, const Team& team) {
  ATHANOR_ASSERT(options.dtype == Dtype::kBF16 || options.dtype == Dtype::kF32);
  bool taken = false;
  MovedAside predecessor(folder);
  std::optional<AtomicFolder> staged;
  const std::string staging = team.from_first([&] {
    refuse_beyond_family(config);
    taken = check_place(folder, options.overwrite);
    staged.emplace(folder);
    write_small_files(staged->staging(), config, options);
    return staged->staging().string();
  });
  const auto parameters = make_inventory(config.model);
  const WeightFiles files(parameters, config, options);
  team.on_all([&] { write_own_weights(staging, files, read, team); });
  team.on_first([&] {
    write_index(staging, files);
    if (taken) predecessor.move_now();
    fault_point("export.before_commit");
    staged->commit();
  });
}

}  // namespace athanor::inline checkpoint
