#pragma once
// Verifies that a prepared folder matches its manifest. Every file is read.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/console.h"
#include "dataset/manifest.h"

namespace athanor::inline preparation {

struct VerifyReport {
  int64_t num_files = 0;
  uint64_t num_bytes = 0;
  /// One line for each damaged file, in the manifest's order; the line begins with the file.
  std::vector<std::string> damage;
};

/// Returns the total size in bytes of the listed files that exist.
uint64_t listed_bytes(const std::filesystem::path& folder, const DataManifest& manifest);

/// Compares tokenizer, shards and remainder with the manifest's checksums, shapes, dtype and vocabulary, and shards
/// with the checksums of their blocks too. All files are examined even if some are damaged. Memory does not grow with
/// them.
/// @throws DataError if the manifest contradicts itself.
VerifyReport verify_folder(const std::filesystem::path& folder, const DataManifest& manifest, ProgressBar& progress);

}  // namespace athanor::inline preparation
