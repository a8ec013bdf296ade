#pragma once
// Reads the instances of a split of a prepared folder, by row.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/file_reader.h"
#include "dataset/manifest.h"
#include "dataset/shard_access.h"

namespace athanor::inline dataset {

/// One file of a split.
struct DataFile {
  std::filesystem::path path;
  /// Size in bytes that the manifest implies; 1 for the tokenizer, whose size the manifest does not have.
  uint64_t num_bytes = 0;
  /// True if reading a row compares its block with a checksum (Dataset::read), so that the whole file need not be read.
  bool has_blocks = false;
};

/// Copies share their open files; any number of threads may read one object concurrently.
class Dataset {
 public:
  /// Opens the split ("train" or "validation") that the folder's manifest describes. A shard is opened at its first
  /// read, and then compared with the manifest; check_file() and verify_file() check any file at any time.
  /// @throws DataError if the folder or the split does not exist, the split has no instances, or the manifest
  ///         contradicts itself; IoError.
  static Dataset open(const std::filesystem::path& folder, const std::string& split);
  /// Opens a split by a manifest that was read before. Datasets may share open shards and the blocks read last.
  static Dataset open(const std::filesystem::path& folder, const std::string& split,
                      std::shared_ptr<const DataManifest> manifest, std::shared_ptr<ShardAccess> access);

  int64_t num_instances() const;
  /// Tokens per instance; seq_len - 1 of them are targets.
  int64_t seq_len() const;
  uint32_t vocab_size() const;
  uint32_t eos_id() const;
  const DataManifest& manifest() const;
  const std::filesystem::path& folder() const;
  /// Returns a hash of the split's instances in their order, computed from the checksums in the manifest, not from the
  /// files. It identifies the data wherever it is stored.
  const std::string& content_hash() const;
  /// Returns the number of instances that the split had when its content_hash() was `hash`, before files were added to
  /// the folder; all instances if `hash` is the present one; none if it was never `hash`.
  std::optional<int64_t> instances_when(const std::string& hash) const;
  /// Returns the number of the split's rows in each part of the folder, one part after another.
  std::vector<int64_t> rows_of_parts() const;
  const std::string& split() const;
  /// Path of the tokenizer that the data was made with.
  std::filesystem::path tokenizer_file() const;

  /// Copies the seq_len ids of row `row`, from 0 to num_instances() - 1, to `out`. If the folder has checksums of
  /// blocks (block_checksums.h), the first read of a block compares all of it with its checksum.
  /// @throws DataError naming shard and rows if a block differs from its checksum, an id is beyond the vocabulary, or
  /// the
  ///         shard differs from the manifest;
  ///         IoError naming shard and byte if it cannot be read.
  void read(int64_t row, int32_t* out) const;

  /// Returns the tokenizer's file, then the split's shards, then the files of checksums.
  const std::vector<DataFile>& files() const;
  /// Returns whether file `index` of files() is a shard.
  bool is_shard(size_t index) const;
  /// Checks that file `index` of files() exists; a shard must have the header and the size that the manifest states,
  /// and a file of checksums its own checksum.
  /// @throws DataError, IoError naming the file.
  void check_file(size_t index) const;
  /// Reads file `index` of files() and compares it with its checksum. @throws DataError, IoError naming the file.
  void verify_file(size_t index, const Worked& worked = {}) const;
  /// Verifies all files. @throws as verify_file() does, for the first file that differs.
  void verify() const;

 private:
  struct Impl;
  explicit Dataset(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

/// Adds to counts[id] the number of times that `id` is a target (positions 1 to seq_len - 1) in rows [begin, end).
/// `counts` has vocab_size elements; `worked` gets the bytes of each row. @throws as Dataset::read does.
void count_targets(const Dataset& dataset, int64_t begin, int64_t end, std::vector<int64_t>& counts,
                   const Worked& worked = {});

/// Returns the entropy of such counts, in nats: the loss of a model that knows only how often each token occurs. At
/// least one count must be above 0.
double unigram_entropy(const std::vector<int64_t>& counts);

}  // namespace athanor::inline dataset
