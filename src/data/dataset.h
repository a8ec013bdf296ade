#pragma once
// The instances of a prepared folder's split, by row.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/file_reader.h"
#include "data/manifest.h"
#include "data/open_shards.h"

namespace athanor {

/// A file that a split is read from.
struct DataFile {
  std::filesystem::path path;
  uint64_t num_bytes = 0;  ///< as the manifest has it
};

/// Copies share their open files; any number of threads may read one at a time.
class Dataset {
 public:
  /// Of the split ("train" or "validation"), as the folder's manifest has it. Shards are opened when they are first
  /// read, and then held against the manifest; to look at all of them is what check_file and verify_file are for.
  /// @throws DataError: no such folder, a manifest that contradicts itself, a split that is not there.
  static Dataset open(const std::filesystem::path& folder, const std::string& split);
  /// Of a manifest that was read before; datasets may share one set of open shards.
  static Dataset open(const std::filesystem::path& folder, const std::string& split,
                      std::shared_ptr<const DataManifest> manifest, std::shared_ptr<OpenShards> shards);

  int64_t num_instances() const;
  /// Tokens of an instance; seq_len - 1 of them are targets.
  int64_t seq_len() const;
  uint32_t vocab_size() const;
  uint32_t eos_id() const;
  const DataManifest& manifest() const;
  const std::filesystem::path& folder() const;
  /// Of the split's instances in their order, as the manifest's checksums tell it: what the data is, wherever it lies.
  const std::string& content_hash() const;
  /// How many instances it had when its content_hash() was `hash`, before files were added to the folder; all of them
  /// if it is the hash of now; none if it never was.
  std::optional<int64_t> instances_when(const std::string& hash) const;
  const std::string& split() const;
  /// The tokenizer.json the data was made with.
  std::filesystem::path tokenizer_file() const;

  /// Copies the row's seq_len ids to `out`.
  /// @throws DataError naming shard and row if an id is beyond the vocabulary, or the shard is not what the manifest
  ///         says; IoError naming shard and byte if it cannot be read.
  void read(int64_t row, int32_t* out) const;

  /// The tokenizer, then the split's shards.
  const std::vector<DataFile>& files() const;
  /// That file `index` of files() is there and has the header and the size that the manifest says.
  /// @throws DataError, IoError naming it.
  void check_file(size_t index) const;
  /// Reads all of it and holds it against its checksum. @throws DataError, IoError naming it.
  void verify_file(size_t index, const Worked& worked = {}) const;
  /// All files. @throws for the first that differs.
  void verify() const;

 private:
  struct Impl;
  explicit Dataset(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

/// Adds to counts[id] how often it is a target (positions 1 to seq_len - 1) of rows [begin, end).
void count_targets(const Dataset& dataset, int64_t begin, int64_t end, std::vector<int64_t>& counts,
                   const Worked& worked = {});

/// Of such counts, in nats: the loss of a model that knows how often each token occurs and nothing else.
double unigram_entropy(const std::vector<int64_t>& counts);

}  // namespace athanor
