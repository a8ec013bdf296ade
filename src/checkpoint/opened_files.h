#pragma once
// Which files of a checkpoint are open, and which of its tensors' pieces are in order: what is needed, from when it is.

#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "base/files.h"
#include "checkpoint/piece_index.h"

namespace athanor {

/// Any thread may call it.
class OpenedFiles {
 public:
  /// @throws CheckpointError if the file is missing, or its size is not the manifest's.
  std::shared_ptr<const MappedFile> file(const std::filesystem::path& folder, const FileTable::value_type& file);

 private:
  // A process may map some 65,000 ranges (vm.max_map_count); the rest is closed as others come, unless it is in use.
  static constexpr size_t kMaxOpen = 1024;
  std::mutex mutex_;
  std::unordered_map<const FileTable::value_type*, std::shared_ptr<const MappedFile>> files_;
};

/// Any thread may call it.
class PieceIndices {
 public:
  explicit PieceIndices(const std::vector<Piece>& pieces);
  /// None if the tensor has no pieces.
  const PieceIndex* of(const TensorTable::value_type* tensor);

 private:
  std::mutex mutex_;
  std::unordered_map<const TensorTable::value_type*, std::vector<const Piece*>> pieces_;
  std::unordered_map<const TensorTable::value_type*, PieceIndex> indices_;
};

}  // namespace athanor
