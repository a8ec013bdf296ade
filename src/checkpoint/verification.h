#pragma once
// Verifies one checkpoint as a whole, in one process with several threads: more than a start does, which verifies what
// it is going to read.

#include <cstdint>
#include <filesystem>

#include "checkpoint/manifest.h"

namespace athanor::inline checkpoint {

struct VerifiedCheckpoint {
  uint64_t num_bytes = 0;  ///< the bytes of its pieces; for a model, those of its files
  int64_t num_tensors = 0, num_files = 0;
};

/// Compares every file of a full checkpoint with its size and header, every piece with its hash, and checks that
/// exactly one piece holds each element.
/// @throws CheckpointError naming a damage: with one thread the first, with several one of the first; IoError.
VerifiedCheckpoint verify_checkpoint(const std::filesystem::path& folder, int num_threads);

/// Checks what a model-only checkpoint allows, as it has no hashes: that its files have the lengths and the tensors
/// that its configuration requires.
/// @throws CheckpointError; IoError.
VerifiedCheckpoint verify_model(const std::filesystem::path& folder);

/// Checks that exactly one piece holds each element of each tensor. Reads no file. Memory does not grow with the size
/// of a tensor.
/// @throws CheckpointError; `where` names the checkpoint in it.
void check_pieces(const Manifest& manifest, const std::string& where, int num_threads);

}  // namespace athanor::inline checkpoint
