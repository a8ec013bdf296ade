#pragma once
// Reads a checkpoint into any slicing: the caller names the slices that it needs, whatever sharding wrote the
// checkpoint.

#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"
#include "checkpoint/team.h"

namespace athanor {

class ProgressBar;

/// A slice to be read: `data` has room for slice.num_elements() elements, of which the first is flat_begin.
struct TargetView {
  std::string tensor;  // KIND/NAME, see manifest.h
  Slice slice;
  float* data;
  /// Used if `data` is null: takes elements from `first` on, counted from flat_begin, in runs of any length and order.
  /// Called by the thread that loads.
  std::function<void(int64_t first, std::span<const float> values)> write = {};
};

/// An open checkpoint whose manifest has been checked. A file is opened when it is first read: on 12,288 ranks a
/// checkpoint has as many files. Memory for what has been read is released, so that a checkpoint may be larger than
/// memory. Several threads may read. Nothing here is collective.
class CheckpointReader {
 public:
  /// Opens a checkpoint, and verifies its manifest but no hash of a piece.
  /// @param worked  called with the work done since the last call (bytes, or 1 for a file), here and by the functions
  ///                below.
  /// @throws CheckpointError naming what is missing or damaged; IoError.
  static CheckpointReader open(const std::filesystem::path& folder, Worked worked = {});
  CheckpointReader(CheckpointReader&&) noexcept;
  CheckpointReader& operator=(CheckpointReader&&) noexcept;
  ~CheckpointReader();

  const Manifest& manifest() const { return manifest_; }
  const nlohmann::json& state() const { return manifest_.state; }
  const std::filesystem::path& folder() const { return folder_; }

  /// Verifies that every file exists, in full length and with a correct header, and that every piece has its hash. With
  /// `shares` processes, number `share` (from 0) verifies its share of the files and pieces: neighbouring pieces, so
  /// that each process opens few files, of about as many bytes as the others have. The first process shows progress.
  /// @throws CheckpointError naming the file, or the damaged tensor, file and bytes; IoError.
  void verify(int share = 0, int shares = 1) const;

  /// Fills every target, without comparing hashes (verify() does that). Exactly one piece must hold each element of a
  /// target. The time is nearly linear in what is read, however many pieces there are.
  /// @throws CheckpointError naming tensors that are missing, shapes that differ (both are shown), a file that is
  /// missing or shorter or longer than it was written, the first element that no piece holds, or two pieces that hold
  /// the same elements; IoError. Targets may then be half filled.
  /// @param progress  gets the bytes that were read; null: none.
  void load(const std::vector<TargetView>& targets, ProgressBar* progress = nullptr) const;

 private:
  struct Opened;  // files and indices, as far as they have been needed

  CheckpointReader();
  void verify_files(int share, int shares) const;
  std::string hash_of(const Piece& piece, ProgressBar* progress) const;
  void check_targets(const std::vector<TargetView>& targets) const;
  void load_one(const TargetView& target, ProgressBar* progress) const;
  void note(size_t num_bytes) const {
    if (worked_) worked_(static_cast<int64_t>(num_bytes));
  }

  std::filesystem::path folder_;
  Worked worked_;
  Manifest manifest_;
  std::unique_ptr<Opened> opened_;
};

}  // namespace athanor
