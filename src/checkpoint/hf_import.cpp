#include "checkpoint/hf_import.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "checkpoint/hf_layout.h"
#include "checkpoint/strict_json.h"
#include "config/families.h"

namespace athanor::inline checkpoint {
namespace fs = std::filesystem;
namespace {

/// Returns the files that the index names, each with the tensors that must be in it.
std::map<std::string, std::vector<std::string>> read_index(const fs::path& path) {
  const std::string index = path.string();
  const auto json = parse_strict_json(read_file(path), index);
  const auto& weight_map = json_member(json, "weight_map", index);
  ATHANOR_CHECK_CHECKPOINT(weight_map.is_object(), "{}: weight_map must be an object", path.string());
  std::map<std::string, std::vector<std::string>> files;
  for (const auto& [tensor, file] : weight_map.items()) {
    ATHANOR_CHECK_CHECKPOINT(file.is_string(), "{}: weight_map \"{}\" must be a file's name", path.string(), tensor);
    const auto name = file.get<std::string>();
    ATHANOR_CHECK_CHECKPOINT(!name.empty() && name == fs::path(name).filename() && !name.starts_with('.'),
                             "{}: weight_map \"{}\": \"{}\" is not the name of a file in this folder", path.string(),
                             tensor, name);
    files[name].push_back(tensor);
  }
  return files;
}

std::string embedding_of(const ModelConfig& model) { return family_of(model).names.embedding + ".weight"; }
std::string output_of(const ModelConfig& model) { return family_of(model).names.head + ".weight"; }

/// Returns the beginning of the names of tensors that the class leaves out; "" if it reads all.
std::string left_out_prefix(const ModelConfig& model) {
  const Family& family = family_of(model);
  if (!family.layer_left_out || model.num_hidden_layers > *family.layer_left_out) return "";
  return fmt::format("{}.{}.", family.names.layers, *family.layer_left_out);
}

/// Accepts buffers that older versions stored and every version can compute, an output layer that is the embedding, and
/// what the class leaves out.
bool may_be_ignored(const std::string& name, const ModelConfig& model) {
  const auto& buffers = family_of(model).buffers;
  if (const std::string left_out = left_out_prefix(model); !left_out.empty() && name.starts_with(left_out)) return true;
  return std::ranges::any_of(buffers, [&](const std::string& buffer) { return name.ends_with(buffer); }) ||
         (model.tie_word_embeddings && name == output_of(model));
}

/// Returns true if two tensors of the same shape have the same values, bit by bit in fp32.
bool have_same_values(const SafetensorsFile& file_a, const std::string& a, const SafetensorsFile& file_b,
                      const std::string& b, int64_t count) {
  constexpr int64_t kBlock = 1 << 20;
  std::vector<float> of_a(kBlock), of_b(kBlock);
  for (int64_t first = 0; first < count; first += kBlock) {
    const auto length = static_cast<size_t>(std::min(kBlock, count - first));
    file_a.read_floats(a, first, std::span(of_a).first(length));
    file_b.read_floats(b, first, std::span(of_b).first(length));
    if (std::memcmp(of_a.data(), of_b.data(), length * sizeof(float)) != 0) return false;
  }
  return true;
}

}  // namespace

bool is_hf_folder(const fs::path& folder) { return fs::is_regular_file(folder / kHfConfigName); }

bool has_weights(const fs::path& folder) {
  constexpr const char* kSigns[] = {"*.safetensors*", "pytorch_model*", "*.bin",     "*.pt",   "*.pth",
                                    "*.ckpt",         "*.h5",           "*.msgpack", "*.gguf", "athanor.json"};
  return std::ranges::any_of(fs::directory_iterator(folder), [&](const fs::directory_entry& entry) {
    const std::string name = entry.path().filename().string();  // a link counts, wherever it leads
    return std::ranges::any_of(kSigns, [&](const char* sign) { return matches_wildcard(sign, name); });
  });
}

HfFolder HfFolder::open(const fs::path& folder) {
  ATHANOR_CHECK_CHECKPOINT(is_hf_folder(folder),
                           "{}: not a transformers folder: it has no {}; name a folder with it and with safetensors",
                           folder.string(), kHfConfigName);
  HfFolder opened;
  opened.config_ = read_hf_config(folder / kHfConfigName);
  opened.config_.generation = read_hf_generation(folder);
  opened.open_files(folder);
  opened.rename_parts();
  opened.add_prefix();
  opened.settle_output_layer();
  opened.parameters_ = make_inventory(opened.config_.model);
  opened.locate_parameters(folder.string());
  return opened;
}

void HfFolder::open_files(const fs::path& folder) {
  std::map<std::string, std::vector<std::string>> names;
  if (fs::exists(folder / kHfWeightsName)) {
    names[kHfWeightsName];
  } else if (fs::exists(folder / kHfIndexName)) {
    names = read_index(folder / kHfIndexName);
  } else {
    const bool pickled =
        fs::exists(folder / "pytorch_model.bin") || fs::exists(folder / "pytorch_model.bin.index.json");
    fail<CheckpointError>("{}: has neither {} nor {}{}", folder.string(), kHfWeightsName, kHfIndexName,
                          pickled ? "; pytorch_model.bin is not read, save it again with safe_serialization=True" : "");
  }
  // The index of a tied model may list an output layer that is not stored.
  const auto may_lack = [&](const std::string& tensor) { return may_be_ignored(tensor, config_.model); };
  for (const auto& [name, tensors] : names) {
    if (!fs::exists(folder / name) && !tensors.empty() && std::ranges::all_of(tensors, may_lack)) continue;
    ATHANOR_CHECK_CHECKPOINT(fs::exists(folder / name), "{}: the file {} is missing, which {} names", folder.string(),
                             name, kHfIndexName);
    const auto& file = files_.emplace(name, SafetensorsFile::open(folder / name)).first->second;
    for (const auto& tensor : tensors) {
      if (!may_lack(tensor)) file.entry(tensor);  // throws if the index is wrong
    }
    for (const auto& [tensor, entry] : file.tensors()) {
      ATHANOR_CHECK_CHECKPOINT(stored_.emplace(tensor, Stored{&file, tensor}).second, "{}: tensor {} is in two files",
                               folder.string(), tensor);
    }
  }
}

// `transformers` can save the names that its classes have, and reads both. A tensor that has both keeps its own name,
// which is unexpected then.
void HfFolder::rename_parts() {
  for (const auto& [of_class, in_files] : family_of(config_.model).names_of_class) {
    std::map<std::string, Stored> renamed;
    for (auto& [name, stored] : stored_) {
      std::string now = name;
      if (const size_t at = now.find(of_class); at != std::string::npos) now.replace(at, of_class.size(), in_files);
      if (!renamed.emplace(now, stored).second) renamed.emplace(name, stored);
    }
    stored_ = std::move(renamed);
  }
}

// The class of a model without an output layer stores its tensors without the name that this model has for it:
// "layers.0.…" for "model.layers.0.…". `transformers` reads these, too.
void HfFolder::add_prefix() {
  const std::string embedding = embedding_of(config_.model), prefix = embedding.substr(0, embedding.find('.') + 1);
  const bool has_prefix =
      std::ranges::any_of(stored_, [&](const auto& each) { return each.first.starts_with(prefix); });
  if (has_prefix) return;
  std::map<std::string, Stored> renamed;
  for (auto& [name, stored] : stored_) renamed.emplace(name == output_of(config_.model) ? name : prefix + name, stored);
  stored_ = std::move(renamed);
}

void HfFolder::settle_output_layer() {
  const auto output = stored_.find(output_of(config_.model));
  if (!config_.model.tie_word_embeddings || output == stored_.end()) return;
  const std::string embedding_name = embedding_of(config_.model);
  const auto embedding = stored_.find(embedding_name);
  if (embedding == stored_.end()) {
    auto both = stored_.extract(output);
    both.key() = embedding_name;
    stored_.insert(std::move(both));
    return;
  }
  const Stored &a = embedding->second, &b = output->second;
  const auto &entry = a.file->entry(a.tensor), &other = b.file->entry(b.tensor);
  const bool readable =
      widen_to_float(entry.dtype, nullptr, 0, nullptr) && widen_to_float(other.dtype, nullptr, 0, nullptr);
  if (entry.dtype == Dtype::kF8E4M3 || other.dtype == Dtype::kF8E4M3) {  // their factors may differ: both are read
    config_.model.tie_word_embeddings = false;
    return;
  }
  if (entry.shape != other.shape || !readable) return;  // the embedding is checked later, and the other one is not read
  config_.model.tie_word_embeddings =
      have_same_values(*a.file, a.tensor, *b.file, b.tensor, num_elements(entry.shape).value_or(0));
}

const HfFolder::Stored* HfFolder::claim(const HfPart& part, std::vector<std::string>& problems,
                                        std::optional<Dtype> only) {
  const auto add = [&](std::string problem) {  // once for all parts of a tensor
    if (std::ranges::find(problems, problem) == problems.end()) problems.push_back(std::move(problem));
    return nullptr;
  };
  const auto found = stored_.find(part.tensor);
  if (found == stored_.end()) return add(part.tensor + " is missing");
  found->second.used = true;
  const auto& entry = found->second.file->entry(found->second.tensor);
  if (entry.shape != part.shape)
    return add(fmt::format("{} has shape {}, expected {}", found->second.tensor, shape_text(entry.shape),
                           shape_text(part.shape)));
  if (only && entry.dtype != *only)
    return add(fmt::format("{} is {}, expected {}", found->second.tensor, dtype_name(entry.dtype), dtype_name(*only)));
  if (!only && !widen_to_float(entry.dtype, nullptr, 0, nullptr))
    return add(fmt::format("{} is {}, expected F32, BF16, F16 or F64", found->second.tensor, dtype_name(entry.dtype)));
  if (entry.dtype == Dtype::kF8E4M3 &&
      (!config_.quantization.fp8 || entry.shape.size() != 2 || part.column_stride != 1))
    return add(fmt::format("{} is F8_E4M3, which only a matrix may be that is not transposed, with quantization_config",
                           found->second.tensor));
  return &found->second;
}

std::optional<BlockScales> HfFolder::claim_scales(const HfPart& part, const Stored& stored,
                                                  std::vector<std::string>& problems) {
  if (stored.file->entry(stored.tensor).dtype != Dtype::kF8E4M3) return std::nullopt;
  const auto* scales =
      claim({.tensor = part.tensor + "_scale_inv", .shape = config_.quantization.fp8->scales_of(part.shape)}, problems);
  if (!scales) return std::nullopt;
  if (const Dtype dtype = scales->file->entry(scales->tensor).dtype; dtype == Dtype::kF8E4M3)
    problems.push_back(fmt::format("{} is {}, expected F32, BF16, F16 or F64", scales->tensor, dtype_name(dtype)));
  return BlockScales{scales->file, scales->tensor, *config_.quantization.fp8, part.shape.back()};
}

std::optional<HfFolder::Located> HfFolder::locate_packed(const ParameterSpec& parameter,
                                                         std::vector<std::string>& problems) {
  const auto tensors = config_.quantization.mxfp4 ? packed_fours(parameter) : std::nullopt;
  if (!tensors || !stored_.contains(tensors->blocks)) return std::nullopt;
  const auto *blocks = claim({.tensor = tensors->blocks, .shape = tensors->blocks_shape}, problems, Dtype::kU8),
             *scales = claim({.tensor = tensors->scales, .shape = tensors->scales_shape}, problems, Dtype::kU8);
  Located located;
  located.num_elements = parameter.num_elements();
  if (!blocks || !scales) return located;
  for (HfPart& part : packed_parts(parameter))
    located.segments.push_back({.file = blocks->file,
                                .tensor = blocks->tensor,
                                .part = std::move(part),
                                .packed = PackedFile{scales->file, {blocks->tensor, scales->tensor, {}, {}}}});
  return located;
}

HfFolder::Located HfFolder::locate(const ParameterSpec& parameter, std::vector<std::string>& problems) {
  if (auto packed = locate_packed(parameter, problems)) return std::move(*packed);
  auto parts = hf_stacked_parts(parameter);
  if (parts.empty() || !stored_.contains(parts[0].tensor)) parts = hf_parts(parameter);
  Located located;
  located.num_elements = parameter.num_elements();
  for (HfPart& part : parts) {
    const auto* stored = claim(part, problems);
    if (!stored) continue;
    auto scales = claim_scales(part, *stored, problems);
    located.segments.push_back({stored->file, stored->tensor, std::move(part), std::move(scales)});
  }
  return located;
}

void HfFolder::read_router_bias(std::vector<std::string>& problems) {
  for (const std::string& tensor : hf_router_biases(config_.model)) {
    const auto* stored = claim({.tensor = tensor, .shape = {config_.model.num_experts}}, problems);
    if (!stored) continue;
    auto& row = config_.router_bias.emplace_back(static_cast<size_t>(config_.model.num_experts));
    stored->file->read_floats(stored->tensor, 0, row);
    if (!std::ranges::all_of(row, [](float value) { return std::isfinite(value); }))
      problems.push_back(tensor + " is not finite");
  }
}

void HfFolder::locate_parameters(const std::string& where) {
  std::vector<std::string> problems;
  for (const auto& parameter : parameters_) located_[parameter.name] = locate(parameter, problems);
  read_router_bias(problems);
  const std::string left_out = left_out_prefix(config_.model);
  const auto is_left_out = [&](const auto& each) { return each.first.starts_with(left_out); };
  if (const auto count = left_out.empty() ? 0 : std::ranges::count_if(stored_, is_left_out); count > 0)
    config_.left_out = fmt::format("{} ({} tensors)", left_out.substr(0, left_out.size() - 1), count);
  for (const auto& [name, stored] : stored_) {
    if (!stored.used && !may_be_ignored(name, config_.model)) problems.push_back(stored.tensor + " is unexpected");
  }
  if (problems.empty()) return;
  fail<CheckpointError>("{}: the weights do not fit config.json: {}", where, join_first(problems, 8, "; "));
}

std::shared_ptr<const HfFolder::Slab> HfFolder::slab(const Segment& segment, int64_t first_row, int64_t rows) const {
  constexpr size_t kKept = 4;  // a few threads may read different parts
  const std::lock_guard lock(slabs_->mutex);
  auto& last = slabs_->last;
  const auto found = std::ranges::find_if(
      last, [&](const auto& each) { return each->of == &segment && each->first_row == first_row; });
  if (found != last.end()) return *found;
  const HfPart& part = segment.part;
  const int64_t run = (rows - 1) * part.row_stride + 1;  // with what lies between the rows
  std::vector<float> stored(static_cast<size_t>(run * part.columns)), values(static_cast<size_t>(rows * part.columns));
  segment.file->read_runs(segment.tensor, part.at + first_row * part.row_stride, part.column_stride, part.columns, run,
                          stored);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < part.columns; ++column)
      values[static_cast<size_t>(row * part.columns + column)] =
          stored[static_cast<size_t>(column * run + row * part.row_stride)];
  }
  last.push_front(std::make_shared<const Slab>(Slab{&segment, first_row, std::move(values)}));
  if (last.size() > kKept) last.pop_back();
  return last.front();
}

void HfFolder::read_tensor(const Segment& segment, int64_t first, std::span<float> out) const {
  if (segment.packed)
    return read_packed_fours(*segment.file, *segment.packed->scales, segment.packed->tensors, first, out);
  segment.file->read_floats(segment.tensor, first, out);
  if (segment.scales) multiply_by_scales(*segment.scales, first, out);
}

void HfFolder::read(const Segment& segment, int64_t first, std::span<float> out) const {
  constexpr int64_t kSlabElements = 1 << 20;
  const HfPart& part = segment.part;
  if (part.is_contiguous()) return read_tensor(segment, part.at + first, out);
  if (part.column_stride == 1) {  // there are other rows between its rows
    while (!out.empty()) {
      const int64_t row = first / part.columns, column = first % part.columns,
                    count = std::min<int64_t>(part.columns - column, std::ssize(out));
      read_tensor(segment, part.at + row * part.row_stride + column, out.first(static_cast<size_t>(count)));
      first += count;
      out = out.subspan(static_cast<size_t>(count));
    }
    return;
  }
  // It is stored transposed.
  const int64_t at_once = std::clamp<int64_t>(kSlabElements / (part.columns * part.row_stride), 1, part.rows);
  while (!out.empty()) {
    const int64_t begin = first / part.columns / at_once * at_once, rows = std::min(at_once, part.rows - begin);
    const int64_t skip = first - begin * part.columns, count = std::min(rows * part.columns - skip, std::ssize(out));
    const auto here = slab(segment, begin, rows);
    std::copy_n(here->values.begin() + skip, count, out.begin());
    first += count;
    out = out.subspan(static_cast<size_t>(count));
  }
}

void HfFolder::read(const std::string& name, int64_t first, std::span<float> out) const {
  const auto found = located_.find(name);
  ATHANOR_CHECK_CHECKPOINT(found != located_.end(), "the model has no parameter {}", name);
  const auto& [total, segments] = found->second;
  ATHANOR_ASSERT(first >= 0 && static_cast<int64_t>(out.size()) <= total - first);
  for (const auto& segment : segments) {
    if (out.empty()) return;
    const int64_t skip = first - segment.part.first;
    if (skip >= segment.part.count()) continue;
    const auto count = std::min<int64_t>(segment.part.count() - skip, std::ssize(out));
    read(segment, skip, out.first(static_cast<size_t>(count)));
    out = out.subspan(static_cast<size_t>(count));
    first += count;
  }
}

void HfFolder::read(const std::string& name, float* out) const {
  const auto found = located_.find(name);
  ATHANOR_CHECK_CHECKPOINT(found != located_.end(), "the model has no parameter {}", name);
  read(name, 0, {out, static_cast<size_t>(found->second.num_elements)});
}

}  // namespace athanor::inline checkpoint
