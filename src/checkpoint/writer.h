#pragma once
// Writes a checkpoint: the slices that are held in memory go into safetensors files, the manifest beside them.
//
// The folder is written beside its place, synced and renamed, so that it is whole or absent. Elements go from the
// caller's memory to the file without a copy of ours, hashed on the way; what is not in memory is read block by block.

#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"
#include "checkpoint/team.h"

namespace athanor {

/// A slice that the caller holds: `data` points at its first element (flat_begin), slice.num_elements() in all.
struct PieceView {
  std::string tensor;  // KIND/NAME, see manifest.h
  Slice slice;
  const float* data;
  /// Where `data` is null: gives the slice's elements from `first` on, counted from flat_begin. Called from several
  /// threads at once.
  std::function<void(int64_t first, std::span<float> out)> read = {};
};

struct WriteOptions {
  /// Of tensor data in one file; larger slices are cut into flat ranges. At least 4.
  uint64_t max_file_bytes = uint64_t{1} << 30;
  /// Files written at the same time.
  int num_threads = 2;
  /// Told of every block that is written, in bytes.
  Worked worked = {};
};

/// Writes `pieces` into files `<prefix>-00000.safetensors`, ... in `folder`, synced, and adds tensors, files and pieces
/// to `manifest`. Ranks that write one checkpoint call it with prefixes of their own and join their manifests.
/// @throws CheckpointError for a slice outside its tensor or a tensor with two shapes; IoError.
void write_pieces(const std::filesystem::path& folder, const std::string& prefix, const std::vector<PieceView>& pieces,
                  Manifest& manifest, const WriteOptions& options = {});

/// Writes the whole checkpoint `folder`; together the pieces of all members of `team` must hold every element of their
/// tensors once. Collective over the team: each writes files of its own; model, state and before_commit are the first
/// member's. All throw if one does.
/// Fault points: "checkpoint.piece" before each piece, "checkpoint.before_commit".
/// @param before_commit  called when everything is written, right before the folder gets its name.
/// @throws IoError (disk_full() among them): then nothing is left of it.
void write_checkpoint(const std::filesystem::path& folder, const std::vector<PieceView>& pieces,
                      const nlohmann::json& model, const nlohmann::json& state, const WriteOptions& options = {},
                      const std::function<void()>& before_commit = {}, const Team& team = {});

/// Bytes of tensor data in `pieces`.
uint64_t total_bytes(const std::vector<PieceView>& pieces);

}  // namespace athanor
