#include "checkpoint/opened_files.h"

#include <cstring>

#include "base/error.h"
#include "base/fault.h"

namespace athanor::inline checkpoint {
namespace fs = std::filesystem;
namespace {

/// The checkpoint's folder may be a link, but no file in it may lead outside: a checkpoint from elsewhere reads nothing
/// else of this machine.
void check_inside(const fs::path& folder, const fs::path& file) {
  const fs::path parent = file.parent_path();  // the folder, or one in it (manifest.h)
  if (!fs::is_symlink(file) && (parent == folder || !fs::is_symlink(parent))) return;
  const auto real = with_io_errors([&] { return fs::canonical(file); });
  const auto inside = with_io_errors([&] { return fs::canonical(folder); });
  ATHANOR_CHECK_CHECKPOINT(real.string().starts_with(inside.string() + "/"),
                           "{} is a link out of the checkpoint, to {}; copy that file into its place", file.string(),
                           real.string());
}

}  // namespace

std::shared_ptr<const MappedFile> OpenedFiles::file(const fs::path& folder, const FileTable::value_type& file) {
  const std::lock_guard lock(mutex_);
  if (const auto known = files_.find(&file); known != files_.end()) return known->second;
  const auto& [name, size] = file;
  const auto path = folder / name;
  ATHANOR_CHECK_CHECKPOINT(fs::is_regular_file(path), "{}: the file {} is missing", folder.string(), name);
  check_inside(folder, path);
  if (const int injected = fault_errno("checkpoint.open"))
    throw IoError("cannot open " + path.string() + ": " + std::strerror(injected), injected);
  auto mapped = std::make_shared<const MappedFile>(path);
  ATHANOR_CHECK_CHECKPOINT(mapped->size() == size, "{}: truncated or changed: {} bytes expected, {} found",
                           path.string(), size, mapped->size());
  if (files_.size() >= kMaxOpen) files_.clear();
  return files_.emplace(&file, std::move(mapped)).first->second;
}

void OpenedFiles::close() {
  const std::lock_guard lock(mutex_);
  files_.clear();
}

PieceIndices::PieceIndices(const std::vector<Piece>& pieces) {
  for (const Piece& piece : pieces) pieces_[piece.tensor].push_back(&piece);
}

const PieceIndex* PieceIndices::of(const TensorTable::value_type* tensor) {
  const std::lock_guard lock(mutex_);
  if (const auto known = indices_.find(tensor); known != indices_.end()) return &known->second;
  const auto pieces = pieces_.find(tensor);
  return pieces == pieces_.end() ? nullptr : &indices_.emplace(tensor, PieceIndex(pieces->second)).first->second;
}

}  // namespace athanor::inline checkpoint
