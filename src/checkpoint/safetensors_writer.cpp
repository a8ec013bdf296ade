// The part of safetensors.h that writes.

#include <algorithm>
#include <array>
#include <cstring>
#include <set>

#include "base/error.h"
#include "base/half.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/strict_json.h"

namespace athanor::inline checkpoint {
namespace {

uint64_t spec_bytes(const TensorSpec& tensor) {
  const auto count = num_elements(tensor.shape);
  ATHANOR_CHECK_CHECKPOINT(count.has_value(), "cannot write tensor \"{}\": shape {} is impossible", tensor.name,
                           shape_text(tensor.shape));
  return static_cast<uint64_t>(*count) * dtype_size(tensor.dtype);
}

}  // namespace

std::string safetensors_header(const std::vector<TensorSpec>& tensors,
                               const std::map<std::string, std::string>& metadata) {
  // The header is written by hand so that it has the order of the data, which a person who reads it expects.
  const auto quoted = [](const std::string& text) { return nlohmann::json(text).dump(); };
  std::string json = "{";
  if (!metadata.empty()) json += "\"__metadata__\":" + nlohmann::json(metadata).dump();
  std::set<std::string> names{"__metadata__"};
  uint64_t at = 0;
  for (const auto& tensor : tensors) {
    ATHANOR_CHECK_CHECKPOINT(names.insert(tensor.name).second, "cannot write two tensors named \"{}\" into one file",
                             tensor.name);
    const uint64_t end = at + spec_bytes(tensor);
    json += (json.size() > 1 ? "," : "") + quoted(tensor.name) + ":{\"dtype\":\"" + dtype_name(tensor.dtype) +
            "\",\"shape\":" + nlohmann::json(tensor.shape).dump() + ",\"data_offsets\":[" + std::to_string(at) + "," +
            std::to_string(end) + "]}";
    at = end;
  }
  json += "}";
  json.resize((json.size() + 7) / 8 * 8, ' ');  // the data starts at a multiple of 8
  const uint64_t length = json.size();
  std::string header(sizeof(length), '\0');
  std::memcpy(header.data(), &length, sizeof(length));
  return header + json;
}

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path, const std::vector<TensorSpec>& tensors,
                                     const std::map<std::string, std::string>& metadata)
    : file_(path, AtomicFile::Bytes::kLong) {
  file_.write(safetensors_header(tensors, metadata));
  expected_size_ = file_.size();
  for (const auto& tensor : tensors) expected_size_ += spec_bytes(tensor);
}

void SafetensorsWriter::append(const void* data, size_t num_bytes) {
  ATHANOR_ASSERT(num_bytes <= expected_size_ - file_.size());
  if (num_bytes > 0) file_.write(data, num_bytes);
}

void SafetensorsWriter::append_floats(Dtype dtype, std::span<const float> values) {
  if (dtype == Dtype::kF32) return append(values.data(), values.size_bytes());
  ATHANOR_ASSERT(dtype == Dtype::kBF16);
  constexpr size_t kChunk = 1 << 19;  // elements; 1 MiB of bf16 stays in the second-level cache
  std::vector<uint16_t> narrow(std::min(values.size(), kChunk));
  for (size_t first = 0; first < values.size(); first += kChunk) {
    const size_t count = std::min(kChunk, values.size() - first);
    for (size_t i = 0; i < count; ++i) narrow[i] = bf16_from_float(values[first + i]);
    append(narrow.data(), count * sizeof(uint16_t));
  }
}

void SafetensorsWriter::commit() {
  ATHANOR_ASSERT(file_.size() == expected_size_);
  file_.commit();
}

}  // namespace athanor::inline checkpoint
