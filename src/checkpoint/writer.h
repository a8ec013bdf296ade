#pragma once
// Writes a checkpoint: slices held in memory go into safetensors files, next to the manifest.
//
// The folder is written under a temporary name, synced and renamed, so that it is whole or absent. Elements go from the
// caller's memory to the file without an extra copy and are hashed on the way; what is not in memory is read block by
// block.

#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"
#include "checkpoint/team.h"

namespace athanor::inline checkpoint {

/// A slice that the caller holds: `data` points to its first element (flat_begin); there are slice.num_elements() of
/// them.
struct PieceView {
  std::string tensor;  // KIND/NAME, see manifest.h
  Slice slice;
  const float* data;
  /// Used if `data` is null: fills `out` with the slice's elements from `first` on, counted from flat_begin. Called
  /// from several threads at once.
  std::function<void(int64_t first, std::span<float> out)> read = {};
  /// For memory of a device: queues the copy of these elements to `pinned`, and returns before they are there
  /// (ops::FetchAside). Empty: `data` or `read` give them at once.
  std::function<void(int64_t first, std::span<float> pinned)> queue = {};
};

/// Runs its argument, now or when it is this member's turn; exceptions pass through.
using InTurn = std::function<void(const std::function<void()>& write)>;

struct WriteOptions {
  /// Maximum bytes of tensor data in one file; larger slices are cut into flat ranges. At least 4.
  uint64_t max_file_bytes = uint64_t{1} << 30;
  /// Number of files written at the same time.
  int num_threads = 2;
  /// A team of more members than this writes into folders "ranks-000", "ranks-001", ... with this many members each:
  /// file systems slow down if thousands of processes make files in one folder.
  int members_per_folder = 256;
  /// Refuses elements that are not finite with a NumbersError, as a load would refuse them. They are looked for while
  /// they are in the cache to be hashed.
  bool must_be_finite = false;
  /// Called for every block that is written, with its bytes, from several threads.
  Worked worked = {};
  /// Used by write_checkpoint around the writing of this member's pieces.
  InTurn in_turn = {};
};

/// Writes `pieces` into files `<prefix>-00000.safetensors`, ... in `folder`, synced, and adds tensors, files and pieces
/// to `manifest`. Not collective: ranks that write one checkpoint call it with different prefixes and join their
/// manifests.
/// @throws CheckpointError for a slice outside its tensor or a tensor with two shapes; NumbersError if elements must be
/// finite and one is not; IoError.
void write_pieces(const std::filesystem::path& folder, const std::string& prefix, const std::vector<PieceView>& pieces,
                  Manifest& manifest, const WriteOptions& options = {});

/// Writes the whole checkpoint `folder`; together the pieces of all members of `team` must hold every element of their
/// tensors once. Collective over the team: each member writes separate files; model, state and before_commit are the
/// first member's, and ignored on the others. All throw if one does.
///
/// Fault points: "checkpoint.piece" before each piece, "checkpoint.before_commit".
/// @param model, state    members of the manifest (manifest.h).
/// @param options         its `worked` is the team's if it is empty.
/// @param before_commit   called when everything is written, right before the folder gets its name; then no folder with
///                        that name may exist.
/// @throws IoError (disk_full() among them), CheckpointError and NumbersError as write_pieces does: then nothing of the
/// checkpoint is
///         left.
void write_checkpoint(const std::filesystem::path& folder, const std::vector<PieceView>& pieces,
                      const nlohmann::json& model, const nlohmann::json& state, const WriteOptions& options = {},
                      const std::function<void()>& before_commit = {}, const Team& team = {});

/// Returns the bytes of tensor data in these pieces.
uint64_t total_bytes(const std::vector<PieceView>& pieces);

}  // namespace athanor::inline checkpoint
