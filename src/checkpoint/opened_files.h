#pragma once
// Opens the files of a checkpoint and sorts the pieces of its tensors, each when it is first needed.

#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "base/files.h"
#include "checkpoint/piece_index.h"

namespace athanor::inline checkpoint {

/// The files of one checkpoint. Thread-safe.
class OpenedFiles {
 public:
  /// Returns the mapped file.
  /// @param folder  the checkpoint, the same in every call.
  /// @param file    a row of the manifest's `files`, which must outlive this object.
  /// @throws CheckpointError if the file is missing, its size is not the manifest's, or it is a link out of the folder;
  /// IoError if it cannot be opened
  ///         (fault point "checkpoint.open").
  std::shared_ptr<const MappedFile> file(const std::filesystem::path& folder, const FileTable::value_type& file);
  /// Closes the files that are not in use: the next call of file() opens what then has their names.
  void close();

 private:
  // A process may map some 65,000 ranges (vm.max_map_count); beyond this number, open files that are not in use are
  // closed when others are opened.
  static constexpr size_t kMaxOpen = 1024;
  std::mutex mutex_;
  std::unordered_map<const FileTable::value_type*, std::shared_ptr<const MappedFile>> files_;
};

/// An index of pieces for each tensor. Thread-safe.
class PieceIndices {
 public:
  /// @param pieces  must outlive this object.
  explicit PieceIndices(const std::vector<Piece>& pieces);
  /// Returns the index of the tensor's pieces; null if the tensor has no pieces.
  const PieceIndex* of(const TensorTable::value_type* tensor);

 private:
  std::mutex mutex_;
  std::unordered_map<const TensorTable::value_type*, std::vector<const Piece*>> pieces_;
  std::unordered_map<const TensorTable::value_type*, PieceIndex> indices_;
};

}  // namespace athanor::inline checkpoint
