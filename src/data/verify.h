#pragma once
// Is a prepared folder what its manifest says? Every file is read.

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
  std::vector<std::string> damage;  ///< a line for each damaged file, which it begins with, in the manifest's order
};

/// Bytes of all files that the manifest lists, as far as they are there.
uint64_t listed_bytes(const std::filesystem::path& folder, const DataManifest& manifest);

/// Holds tokenizer, shards and remainder against checksums, shapes, dtype and vocabulary. All files are looked at,
/// whatever is wrong with some. Memory does not grow with the files.
/// @throws DataError if the manifest itself cannot be read.
VerifyReport verify_folder(const std::filesystem::path& folder, const DataManifest& manifest, ProgressBar& progress);

/// Opens a shard and holds its header and size against the manifest. @throws DataError naming the file; IoError.
NpyMatrix open_shard(const std::filesystem::path& file, const ShardEntry& entry, const DataManifest& manifest);

/// One shard of it, as verify_folder does. @throws DataError naming the file; IoError if it cannot be read.
void verify_shard(const std::filesystem::path& file, const ShardEntry& entry, const DataManifest& manifest,
                  const Worked& worked = {});

/// The tokenizer's checksum. @throws DataError naming the file.
void verify_tokenizer_file(const std::filesystem::path& file, const DataManifest& manifest, const Worked& worked = {});

}  // namespace athanor
