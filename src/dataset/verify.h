#pragma once
// Verifies that single files of a prepared folder match its manifest.

#include <cstdint>
#include <filesystem>

#include "dataset/manifest.h"
#include "dataset/npy.h"

namespace athanor::inline dataset {

/// What to do about a damaged file: the end of each message.
inline constexpr const char* kDamagedDataRemedy = "get it again from a copy, or prepare the data again";

/// Opens a shard and compares its header and size with the manifest. @throws DataError naming the file; IoError.
NpyMatrix open_shard(const std::filesystem::path& file, const ShardEntry& entry, const DataManifest& manifest);

/// Reads a whole shard, and verifies its header, its size, its checksum, and that its ids are in the vocabulary.
/// `worked` gets the bytes read since its last call.
/// @throws DataError naming the file; IoError if it cannot be read.
void verify_shard(const std::filesystem::path& file, const ShardEntry& entry, const DataManifest& manifest,
                  const Worked& worked = {});

/// Verifies the tokenizer's checksum. @throws DataError naming the file; IoError.
void verify_tokenizer_file(const std::filesystem::path& file, const DataManifest& manifest, const Worked& worked = {});

/// Opens a file of the checksums of `num_blocks` blocks. @throws DataError naming the file; IoError.
NpyMatrix open_checksums(const std::filesystem::path& file, int64_t num_blocks);

/// Verifies shape and checksum of a file of the checksums of `num_blocks` blocks. @throws DataError naming the file;
/// IoError.
void verify_checksum_file(const std::filesystem::path& folder, const ChecksumEntry& entry, int64_t num_blocks,
                          const Worked& worked = {});

/// Verifies the tokens that were too few for an instance, as verify_shard does. The manifest must have them.
void verify_remainder(const std::filesystem::path& folder, const DataManifest& manifest);

}  // namespace athanor::inline dataset
