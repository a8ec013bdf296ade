#pragma once
// The safetensors file format: read by mapping, written as a stream.
//
// A file is: the header's length (u64, little-endian), the header (JSON: name → {dtype, shape, data_offsets}, and
// "__metadata__": text → text), then the tensors' bytes, row-major, without holes. Everything here assumes a
// little-endian machine, as the format does.

#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/files.h"
#include "checkpoint/dtype.h"

namespace athanor {

struct TensorEntry {
  Dtype dtype;
  Shape shape;
  int64_t num_elements;
  uint64_t begin, end;  // bytes in the file
};

/// A file whose header has been checked whole: every byte after it belongs to exactly one tensor, and each tensor has
/// as many bytes as its dtype and shape say.
class SafetensorsFile {
 public:
  /// @throws CheckpointError naming file, tensor and byte; IoError if it cannot be read.
  static SafetensorsFile open(const std::filesystem::path& path);
  /// The same for bytes in memory, which must outlive the result; `where` stands for the path in messages.
  static SafetensorsFile parse(std::span<const std::byte> bytes, std::string where);

  const std::map<std::string, TensorEntry>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::string& where() const { return where_; }

  /// @throws CheckpointError if there is no such tensor.
  const TensorEntry& entry(const std::string& name) const;
  /// The tensor's bytes. The format promises no alignment: read elements by memcpy or `read_floats`.
  std::span<const std::byte> data(const std::string& name) const;
  /// Elements [first, first + out.size()) as fp32, from F32, BF16, F16 or F64. Of a file, no more stays in memory than
  /// `out`.
  /// @throws CheckpointError for another dtype or a range outside the tensor.
  void read_floats(const std::string& name, int64_t first, std::span<float> out) const;

 private:
  SafetensorsFile() = default;
  void parse_header();

  std::string where_;
  std::unique_ptr<MappedFile> file_;
  std::span<const std::byte> bytes_;
  std::map<std::string, TensorEntry> tensors_;
  std::map<std::string, std::string> metadata_;
};

struct TensorSpec {
  std::string name;
  Dtype dtype;
  Shape shape;
};

/// The header's bytes (length, JSON, padding to a multiple of 8) for tensors that follow in this order.
/// Offsets in it are counted from its end, as in the format.
std::string safetensors_header(const std::vector<TensorSpec>& tensors,
                               const std::map<std::string, std::string>& metadata);

/// Writes one file: all names first, then the data, in order and in pieces of any size. Without `commit` nothing stays.
class SafetensorsWriter {
 public:
  SafetensorsWriter(const std::filesystem::path& path, const std::vector<TensorSpec>& tensors,
                    const std::map<std::string, std::string>& metadata = {});
  /// Where the next byte goes in the file: right after construction, the first tensor's place.
  uint64_t position() const { return file_.size(); }
  void append(const void* data, size_t num_bytes);
  /// Narrows fp32 values to `dtype` (F32 or BF16, to nearest, ties to even) on the way.
  void append_floats(Dtype dtype, std::span<const float> values);
  /// Syncs and renames. Exactly as many bytes as announced must have been appended.
  void commit();

 private:
  AtomicFile file_;
  uint64_t expected_size_;
};

}  // namespace athanor
