// Compares two checkpoints: first what they hold in addition to tensors, then the tensors.

#include "checkpoint/diff.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "base/console.h"
#include "base/error.h"
#include "base/files.h"
#include "base/parallel_for.h"
#include "base/text.h"
#include "checkpoint/json_members.h"
#include "config/changes.h"

namespace athanor::inline checkpoint {
namespace {

using Json = nlohmann::json;

constexpr const char* kConfigPath = "state.config";

void diff_json(const std::string& path, const Json& a, const Json& b, std::vector<ValueDifference>& found);

/// Compares a member or an item that only one side may have: then the other is null here.
void diff_either(const std::string& path, const Json* a, const Json* b, std::vector<ValueDifference>& found) {
  if (a && b) return diff_json(path, *a, *b, found);
  found.push_back({path, a ? JsonMembers::shown(*a) : "absent", b ? JsonMembers::shown(*b) : "absent"});
}

void diff_configs(const std::string& a, const std::string& b, std::vector<ValueDifference>& found) {
  for (const auto& each : config_text_differences(a, b))
    found.push_back({kConfigPath + (": " + each.name), each.a, each.b});
}

void diff_json(const std::string& path, const Json& a, const Json& b, std::vector<ValueDifference>& found) {
  if (path == kConfigPath && a.is_string() && b.is_string()) {
    diff_configs(a.get_ref<const std::string&>(), b.get_ref<const std::string&>(), found);
  } else if (a.is_object() && b.is_object()) {
    std::set<std::string> keys;
    for (const Json* side : {&a, &b})
      for (const auto& [key, value] : side->items()) keys.insert(key);
    for (const auto& key : keys) {
      const auto in_a = a.find(key), in_b = b.find(key);
      diff_either(path + "." + key, in_a == a.end() ? nullptr : &*in_a, in_b == b.end() ? nullptr : &*in_b, found);
    }
  } else if (a.is_array() && b.is_array()) {
    for (size_t i = 0; i < std::max(a.size(), b.size()); ++i)
      diff_either(fmt::format("{}[{}]", path, i), i < a.size() ? &a[i] : nullptr, i < b.size() ? &b[i] : nullptr,
                  found);
  } else if (a.type() != b.type() || a.dump() != b.dump()) {  // as text: 0.0 and -0.0 are equal as numbers
    found.push_back({path, JsonMembers::shown(a), JsonMembers::shown(b)});
  }
}

// Returns the values of `model` and `state` that differ, in the order of their paths. The configuration, a text, is
// compared field by field.
std::vector<ValueDifference> diff_values(const Manifest& a, const Manifest& b) {
  std::vector<ValueDifference> found;
  diff_json("model", a.model, b.model, found);
  diff_json("state", a.state, b.state, found);
  return found;
}

constexpr int64_t kDiffWindow = 512 << 10;  // elements; 2 MiB of each side

/// Numbers the windows of all tensors. Nothing is allocated for a window: a damaged manifest may claim 2^60 elements.
class Windows {
 public:
  explicit Windows(const std::vector<TensorDifference>& tensors) {
    for (const auto& each : tensors) {
      first_.push_back(count_);
      count_ += each.num_elements / kDiffWindow + (each.num_elements % kDiffWindow > 0);
    }
  }
  int64_t count() const { return count_; }
  size_t tensor_of(int64_t window) const {  // the last one that begins there or before: others have no windows
    return static_cast<size_t>(std::upper_bound(first_.begin(), first_.end(), window) - first_.begin()) - 1;
  }
  /// Returns the window's first element in its tensor.
  int64_t begin_of(int64_t window) const { return (window - first_[tensor_of(window)]) * kDiffWindow; }

 private:
  std::vector<int64_t> first_;
  int64_t count_ = 0;
};

void add_element(TensorDifference& sum, int64_t position, float a, float b) {
  ++sum.num_differing;
  if (sum.first < 0) {
    sum.first = position;
    sum.first_a = a;
    sum.first_b = b;
  }
  if (std::isnan(a) || std::isnan(b)) {
    ++(std::isnan(a) && std::isnan(b) ? sum.num_nan_bits : sum.num_nan_on_one_side);
    return;
  }
  if (a == b) {  // other bits of an equal number
    ++sum.num_signs_of_zero;
    return;
  }
  const double x = a, y = b, distance = std::abs(x - y);
  const double relative = std::isinf(distance) ? distance : distance / std::max(std::abs(x), std::abs(y));
  sum.largest_absolute = std::max(sum.largest_absolute, distance);
  sum.largest_relative = std::max(sum.largest_relative, relative);
}

/// Adds a part of the same tensor. The result does not depend on the order of the parts.
void add_part(TensorDifference& sum, const TensorDifference& part) {
  sum.num_differing += part.num_differing;
  sum.num_signs_of_zero += part.num_signs_of_zero;
  sum.num_nan_bits += part.num_nan_bits;
  sum.num_nan_on_one_side += part.num_nan_on_one_side;
  sum.largest_absolute = std::max(sum.largest_absolute, part.largest_absolute);
  sum.largest_relative = std::max(sum.largest_relative, part.largest_relative);
  if (part.first < 0 || (sum.first >= 0 && sum.first < part.first)) return;
  sum.first = part.first;
  sum.first_a = part.first_a;
  sum.first_b = part.first_b;
}

void read_window(const CheckpointReader& reader, const TensorDifference& tensor, int64_t begin, std::vector<float>& out,
                 ProgressBar& progress) {
  Slice slice = whole_slice(tensor.shape_a);
  slice.flat_begin = begin;
  slice.flat_end = begin + std::min(kDiffWindow, tensor.num_elements - begin);
  out.resize(static_cast<size_t>(slice.num_elements()));
  reader.load({{tensor.name, slice, out.data()}}, &progress);
}

/// Returns the tensors of both that the pattern names, in the order of their names, without their elements compared.
std::vector<TensorDifference> pair_tensors(const Manifest& a, const Manifest& b, const std::string& pattern) {
  std::map<std::string, TensorDifference> pairs;
  const auto enter = [&](const TensorTable& table, Shape TensorDifference::*shape, TensorDifference::Kind alone) {
    for (const auto& [name, its_shape] : table) {
      if (!matches_wildcard(pattern, name)) continue;
      const auto [pair, is_new] = pairs.try_emplace(name);
      pair->second.name = name;
      pair->second.*shape = its_shape;
      pair->second.kind = is_new ? alone : TensorDifference::Kind::kElements;
    }
  };
  enter(a.tensors, &TensorDifference::shape_a, TensorDifference::Kind::kOnlyInA);
  enter(b.tensors, &TensorDifference::shape_b, TensorDifference::Kind::kOnlyInB);
  std::vector<TensorDifference> result;
  for (auto& [name, pair] : pairs) {
    if (pair.kind == TensorDifference::Kind::kElements && pair.shape_a != pair.shape_b)
      pair.kind = TensorDifference::Kind::kShape;
    result.push_back(std::move(pair));
  }
  return result;
}

void compare_elements(const CheckpointReader& a, const CheckpointReader& b, std::vector<TensorDifference>& tensors,
                      int num_threads) {
  uint64_t num_bytes = 0;
  for (auto& each : tensors) {
    if (each.kind != TensorDifference::Kind::kElements) continue;
    each.num_elements = *num_elements(each.shape_a);
    num_bytes += 2 * sizeof(float) * static_cast<uint64_t>(each.num_elements);
  }
  const Windows windows(tensors);
  ProgressBar progress("comparing", num_bytes, "B", kLongWork_s);
  std::mutex mutex;
  parallel_for(num_threads, windows.count(), [&](int64_t window) {
    thread_local std::vector<float> of_a, of_b;
    TensorDifference& tensor = tensors[windows.tensor_of(window)];
    const int64_t begin = windows.begin_of(window);
    read_window(a, tensor, begin, of_a, progress);
    read_window(b, tensor, begin, of_b, progress);
    TensorDifference part;
    for (size_t i = 0; i < of_a.size(); ++i) {
      if (std::bit_cast<uint32_t>(of_a[i]) != std::bit_cast<uint32_t>(of_b[i]))
        add_element(part, begin + static_cast<int64_t>(i), of_a[i], of_b[i]);
    }
    const std::lock_guard lock(mutex);
    add_part(tensor, part);
  });
}

}  // namespace

Shape TensorDifference::first_index() const { return global_index(whole_slice(shape_a), first); }

CheckpointDifference diff_checkpoints(const CheckpointReader& a, const CheckpointReader& b,
                                      const DiffOptions& options) {
  return with_io_errors([&] {
    CheckpointDifference found;
    found.tensors = pair_tensors(a.manifest(), b.manifest(), options.tensors);
    found.num_tensors = static_cast<int64_t>(found.tensors.size());
    const bool named = options.tensors != "*";
    ATHANOR_CHECK_CHECKPOINT(
        found.num_tensors > 0 || !named,
        "no tensor has a name that {} matches; there are {} such as {}, and * and ? match any text", options.tensors,
        a.manifest().tensors.size(), a.manifest().tensors.empty() ? "none" : a.manifest().tensors.begin()->first);
    compare_elements(a, b, found.tensors, options.num_threads);
    std::erase_if(found.tensors, [](const TensorDifference& each) {
      return each.kind == TensorDifference::Kind::kElements && each.num_differing == 0;
    });
    if (options.values) found.values = diff_values(a.manifest(), b.manifest());
    return found;
  });
}

}  // namespace athanor::inline checkpoint
