#pragma once
// Reads a checkpoint into any slicing: whatever sharding wrote it, a reader names the slices that it needs.

#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/files.h"
#include "checkpoint/manifest.h"

namespace athanor {

/// A slice that the caller wants: `data` has room for slice.num_elements(), its first element is flat_begin.
struct TargetView {
  std::string tensor;  // KIND/NAME, see manifest.h
  Slice slice;
  float* data;
  /// Where `data` is null: takes elements from `first` on, counted from flat_begin, in runs of any length and order.
  std::function<void(int64_t first, std::span<const float> values)> write = {};
};

/// An open checkpoint. Its manifest has been checked and its files are there in full length; their bytes are compared
/// with the hashes by `verify` alone. What has been read is released, so that a checkpoint may be larger than memory.
class CheckpointReader {
 public:
  /// @throws CheckpointError naming what is missing, too short or damaged; IoError.
  static CheckpointReader open(const std::filesystem::path& folder);

  const Manifest& manifest() const { return manifest_; }
  const nlohmann::json& state() const { return manifest_.state; }
  const std::filesystem::path& folder() const { return folder_; }

  /// Compares every piece with its hash; or, of `shares` processes, those of share `share`.
  /// @throws CheckpointError naming the damaged tensor, file and bytes.
  void verify(int share = 0, int shares = 1) const;

  /// Fills every target. Each of their elements must be held by exactly one piece.
  /// @throws CheckpointError naming tensors that are missing, shapes that differ (both are shown), or the first
  ///         element that no piece or two pieces hold. Targets may then be half filled.
  void load(const std::vector<TargetView>& targets) const;

 private:
  CheckpointReader() = default;
  const std::byte* bytes_of(const Piece& piece) const;
  std::string hash_of(const Piece& piece) const;
  void check_targets(const std::vector<TargetView>& targets) const;
  void load_one(const TargetView& target, const std::vector<const Piece*>& pieces) const;

  std::filesystem::path folder_;
  Manifest manifest_;
  std::map<std::string, MappedFile> files_;
  std::map<std::string, std::vector<const Piece*>> pieces_of_tensor_;
};

}  // namespace athanor
