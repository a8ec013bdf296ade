#pragma once
// Reads a checkpoint into any slicing: the caller names the slices that it needs, whatever sharding wrote the
// checkpoint.

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/load_plan.h"
#include "checkpoint/manifest.h"
#include "checkpoint/not_finite.h"
#include "checkpoint/team.h"

namespace athanor {
class ProgressBar;
}  // namespace athanor

namespace athanor::inline checkpoint {

class ReadAhead;

/// A slice to be read: `data` has room for slice.num_elements() elements, of which the first is flat_begin.
struct TargetView {
  std::string tensor;  // KIND/NAME, see manifest.h
  Slice slice;
  float* data;
  /// Used if `data` is null: takes elements from `first` on, counted from flat_begin, in runs of any length and order.
  /// Called by the thread that loads.
  std::function<void(int64_t first, std::span<const float> values)> write = {};
};

/// The files whose headers one of several processes checks.
struct FileShare {
  int share = 0;   ///< number of the process, from 0
  int shares = 1;  ///< number of processes; 0: no file is checked
};

/// Files of a checkpoint that are damaged or cannot be read, each with the reason.
using FileDamage = std::map<std::string, std::string>;

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

  /// Refuses targets that this checkpoint cannot fill because it is of another model. Reads no file.
  /// @throws CheckpointError naming tensors that are missing, and shapes that differ (both are shown).
  void check_fits(const std::vector<TargetView>& targets) const;

  /// Finds the pieces that hold the elements of the targets. Exactly one piece must hold each element. The time is
  /// nearly linear in what the targets hold, however many pieces there are. Reads no file.
  /// @throws CheckpointError as check_fits; naming the first element that no piece holds, or two pieces that hold the
  /// same elements.
  LoadPlan plan(const std::vector<TargetView>& targets) const;

  /// Fills every target, without comparing hashes. Pieces are read in the order of the files.
  /// @throws CheckpointError as plan, or naming a file that is missing or shorter or longer than it was written;
  /// IoError. Targets may then be half filled.
  /// @param progress  gets the bytes that were read; null: none.
  void load(const std::vector<TargetView>& targets, ProgressBar* progress = nullptr) const;

  /// Fills every target, and compares the hash of each piece that is `hashed`: block by block, each block is hashed and
  /// then copied to the targets, so that a file's bytes are read once. Before that, makes the other checks of verify()
  /// for `files`.
  /// @param plan      of these targets.
  /// @param hashed    for each piece, whether this member hashes it (pieces_to_hash, load_plan.h).
  /// @param progress  gets the bytes that were read; null: none.
  /// @param damage    gets the files with damage, whose further pieces are left out; null: the first damage is thrown.
  /// @return the first element of a target that is not finite; it counts only if no member found damage.
  /// @throws as verify() and load(). Targets may then be half filled.
  std::optional<NotFinite> load_verified(const std::vector<TargetView>& targets, const LoadPlan& plan,
                                         const std::vector<bool>& hashed, FileShare files = {},
                                         ProgressBar* progress = nullptr, FileDamage* damage = nullptr) const;

  /// Closes the files that were opened. A file that was replaced since is read anew.
  void close_files() const;

 private:
  struct Opened;  // files and indices, as far as they have been needed
  struct Wanted;  // what of a piece goes to one target

  CheckpointReader();
  void verify_files(FileShare files) const;
  void verify_piece(const Piece& piece, ReadAhead& ahead, ProgressBar* progress) const;
  ReadAhead read_ahead() const;
  void plan_one(const std::vector<TargetView>& targets, size_t target, LoadPlan& plan) const;
  std::optional<NotFinite> read_uses(const std::vector<TargetView>& targets, const LoadPlan& plan,
                                     const std::vector<bool>& hashed, ProgressBar* progress, FileDamage* damage) const;
  void read_part(const Piece& piece, const LoadPlan::Use& use, const TargetView& target, ReadAhead& ahead,
                 std::optional<NotFinite>& not_finite, ProgressBar* progress) const;
  void read_piece(const Piece& piece, const std::vector<Wanted>& wanted, int64_t first, int64_t end, bool hash,
                  ReadAhead& ahead, std::optional<NotFinite>& not_finite, ProgressBar* progress) const;
  void note(size_t num_bytes) const {
    if (worked_) worked_(static_cast<int64_t>(num_bytes));
  }

  std::filesystem::path folder_;
  Worked worked_;
  Manifest manifest_;
  std::unique_ptr<Opened> opened_;
};

}  // namespace athanor::inline checkpoint
