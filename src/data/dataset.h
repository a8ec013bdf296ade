#pragma once
// The instances of a prepared folder's split, by row.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "data/manifest.h"

namespace athanor {

/// Copies share the mapped files; any number of threads may read one at a time.
class Dataset {
 public:
  /// Maps the split's shards ("train" or "validation") and holds their headers against the manifest.
  /// @throws DataError naming the file: a missing shard, another shape, dtype or size, a split that is not there.
  static Dataset open(const std::filesystem::path& folder, const std::string& split);

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
  /// Of all shards of the split: what verify() reads.
  uint64_t num_bytes() const;

  /// Copies the row's seq_len ids to `out`.
  /// @throws DataError naming shard and row if an id is beyond the vocabulary.
  void read(int64_t row, int32_t* out) const;

  /// Reads every shard and holds it against its checksum; the tokenizer too.
  /// @throws DataError naming the first file that differs.
  void verify() const;

 private:
  struct Impl;
  explicit Dataset(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

/// Of the split's targets (positions 1 to seq_len - 1), in nats: the loss of a model that knows how often each token
/// occurs and nothing else. Reads the whole split.
double unigram_entropy(const Dataset& dataset);

}  // namespace athanor
