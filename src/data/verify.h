#pragma once
// Verifies that a prepared folder matches its manifest. Every file is read.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/console.h"
#include "data/manifest.h"
#include "data/npy.h"

namespace athanor {

struct VerifyReport {
  int64_t num_files = 0;
  uint64_t num_bytes = 0;
  /// One line for each damaged file, in the manifest's order; the line begins with the file.
  std::vector<std::string> damage;
};

/// Returns the total size in bytes of the listed files that exist.
uint64_t listed_bytes(const std::filesystem::path& folder, const DataManifest& manifest);

/// Compares tokenizer, shards and remainder with the manifest's checksums, shapes, dtype and vocabulary. All files are
/// examined even if some are damaged. Memory does not grow with the files.
/// @throws DataError if the manifest itself cannot be read.
VerifyReport verify_folder(const std::filesystem::path& folder, const DataManifest& manifest, ProgressBar& progress);

/// Opens a shard and compares its header and size with the manifest. @throws DataError naming the file; IoError.
NpyMatrix open_shard(const std::filesystem::path& file, const ShardEntry& entry, const DataManifest& manifest);

/// Verifies one shard as verify_folder does. @throws DataError naming the file; IoError if it cannot be read.
void verify_shard(const std::filesystem::path& file, const ShardEntry& entry, const DataManifest& manifest,
                  const Worked& worked = {});

/// Verifies the tokenizer's checksum. @throws DataError naming the file.
void verify_tokenizer_file(const std::filesystem::path& file, const DataManifest& manifest, const Worked& worked = {});

}  // namespace athanor
