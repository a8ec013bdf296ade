#pragma once
// The safetensors file format: files are read by mapping and written as a stream.
//
// A file consists of the header's length (u64, little-endian), the header (JSON: name → {dtype, shape, data_offsets},
// and "__metadata__": text → text), then the tensors' bytes, row-major, without holes. Everything here assumes a
// little-endian machine, as the format does.

#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/files.h"
#include "checkpoint/dtype.h"

namespace athanor::inline checkpoint {

struct TensorEntry {
  Dtype dtype;
  Shape shape;
  int64_t num_elements;
  uint64_t begin, end;  // positions in the file, in bytes
};

/// A file whose header has been checked as a whole: every byte after it belongs to exactly one tensor, and each tensor
/// has as many bytes as its dtype and shape require.
class SafetensorsFile {
 public:
  /// Opens and checks a file. @throws CheckpointError naming file, tensor and byte; IoError if it cannot be read.
  static SafetensorsFile open(const std::filesystem::path& path);
  /// Checks a file's bytes in memory, which must outlive the result; `where` replaces the path in messages.
  static SafetensorsFile parse(std::span<const std::byte> bytes, std::string where);

  const std::map<std::string, TensorEntry>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::string& where() const { return where_; }

  /// @throws CheckpointError if there is no such tensor.
  const TensorEntry& entry(const std::string& name) const;
  /// Returns the tensor's bytes. The format does not promise alignment: read elements by memcpy or `read_floats`.
  std::span<const std::byte> data(const std::string& name) const;
  /// Reads elements [first, first + out.size()) as fp32, from F32, BF16, F16, F64 or F8_E4M3. The pages of a mapped
  /// file are released afterwards.
  /// @throws CheckpointError for another dtype or a range outside the tensor.
  void read_floats(const std::string& name, int64_t first, std::span<float> out) const;
  /// Reads `count` runs of `length` elements, of which the first begins at element `first` and each next one `stride`
  /// elements later, one after the other into `out` [count, length]. Otherwise as read_floats.
  void read_runs(const std::string& name, int64_t first, int64_t stride, int64_t count, int64_t length,
                 std::span<float> out) const;
  /// Reads elements [first, first + out.size()) of a tensor of U8. Otherwise as read_floats.
  void read_bytes(const std::string& name, int64_t first, std::span<uint8_t> out) const;

 private:
  /// Returns where `count` elements begin. @throws as read_floats.
  const std::byte* find(const std::string& name, int64_t first, int64_t count) const;
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

/// Returns the header's bytes (length, JSON, padding to a multiple of 8) for tensors that follow in this order. As in
/// the format, offsets are counted from the header's end.
std::string safetensors_header(const std::vector<TensorSpec>& tensors,
                               const std::map<std::string, std::string>& metadata);

/// Writes one file: all names are given first, then the data, in the order of the names and in pieces of any size.
/// Without `commit` no file is left. Every function throws IoError if the file cannot be written.
class SafetensorsWriter {
 public:
  /// Writes the header. @throws CheckpointError for two tensors of one name, or an impossible shape.
  SafetensorsWriter(const std::filesystem::path& path, const std::vector<TensorSpec>& tensors,
                    const std::map<std::string, std::string>& metadata = {});
  /// Returns the file position of the next byte; right after construction, that of the first tensor.
  uint64_t position() const { return file_.size(); }
  void append(const void* data, size_t num_bytes);
  /// Appends fp32 values, narrowed to `dtype` (F32 or BF16, to nearest, ties to even).
  void append_floats(Dtype dtype, std::span<const float> values);
  /// Syncs and renames the file. Exactly as many bytes as announced must have been appended.
  void commit();

 private:
  AtomicFile file_;
  uint64_t expected_size_;
};

}  // namespace athanor::inline checkpoint
