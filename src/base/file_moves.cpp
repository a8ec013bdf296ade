#include "base/file_moves.h"

#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/files.h"

namespace athanor {
namespace fs = std::filesystem;

namespace {

void check(const std::error_code& error, const std::string& what) {
  if (error) throw IoError("cannot " + what + ": " + error.message(), error.value());
}

}  // namespace

fs::path parent_folder(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

fs::path temporary_name(const fs::path& path) {
  return parent_folder(path) / ("." + path.filename().string() + ".tmp");
}

void create_folders(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  check(error, "create folder " + path.string());
}

void rename_path(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::rename(from, to, error);
  check(error, "rename " + from.string() + " to " + to.string());
}

void rename_synced(const fs::path& from, const fs::path& to) {
  rename_path(from, to);
  sync_path(parent_folder(to));
}

void remove_tree(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  check(error, "remove " + path.string());
}

std::string try_remove_tree(const fs::path& path) {
  try {
    remove_tree(path);
    return "";
  } catch (const IoError& error) {
    return error.what();
  }
}

MovedAside::MovedAside(fs::path path, fs::path aside) : path_(std::move(path)), aside_(std::move(aside)) {}

MovedAside::MovedAside(const fs::path& path)
    : MovedAside(path, parent_folder(path) / ("." + path.filename().string() + ".replaced")) {}

void MovedAside::move_now() {
  if (!fs::exists(path_)) return;
  try_remove_tree(aside_);
  rename_path(path_, aside_);
  moved_ = true;
}

MovedAside::~MovedAside() {
  if (!moved_) return;
  std::error_code ignored;
  if (fs::exists(path_, ignored)) {
    try_remove_tree(aside_);
  } else {
    fs::rename(aside_, path_, ignored);
  }
}

}  // namespace athanor
