#include "prepare/partial_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string>

#include "base/error.h"
#include "base/fault.h"
#include "base/file_moves.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/process.h"

namespace athanor::inline preparation {
namespace fs = std::filesystem;

namespace {

constexpr const char* kLockName = "lock";

// A folder of the same name that a user made must not be lost.
void check_ours(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return;
  ATHANOR_CHECK(fs::is_directory(path, error), "{} is in the way: unfinished data would be written there; move it away",
                path.string());
  ATHANOR_CHECK(
      fs::exists(path / kLockName, error) || fs::is_empty(path, error),
      "{} is in the way: unfinished data would be written there, but it contains something else; move it away",
      path.string());
}

}  // namespace

fs::path PartialFolder::resolve(const fs::path& out) {
  std::error_code ignored;
  fs::path path = out.filename().empty() ? out.parent_path() : out;  // "data/" names the same folder as "data"
  const bool is_odd = path.filename() == "." || path.filename() == ".." || fs::is_symlink(path, ignored);
  return is_odd ? fs::weakly_canonical(path) : path;
}

PartialFolder::PartialFolder(const fs::path& out) : path_(resolve(out)) {
  path_ += ".partial";
  check_ours(path_);
  while (!try_lock()) {
  }
  write_owner();
}

// Returns false if another process removed the folder between our opening the file and locking it.
bool PartialFolder::try_lock() {
  create_folders(path_);
  const auto file = path_ / kLockName;
  lock_fd_ = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (lock_fd_ < 0) fail_errno("cannot open", file.string());
  if (::flock(lock_fd_, LOCK_EX | LOCK_NB) != 0) {
    const int error_number = errno;
    ::close(lock_fd_);
    if (error_number == EWOULDBLOCK) {
      fail<ConfigError>("{} is being prepared by another process ({}); wait for it, end it, or name another --out",
                        path_.stem().string(), read_file(file));
    }
    lock_fd_ = -1;
    log::warn("{} cannot be locked here; see to it that no two runs prepare the same folder", file.string());
    return true;
  }
  struct stat locked {
  }, named{};
  if (::fstat(lock_fd_, &locked) == 0 && ::stat(file.c_str(), &named) == 0 && locked.st_ino == named.st_ino)
    return true;
  ::close(lock_fd_);
  return false;
}

void PartialFolder::write_owner() const {
  if (lock_fd_ < 0) return;
  const std::string owner = fmt::format("process {} on {}", ::getpid(), host_name());
  [[maybe_unused]] const bool written =
      ::ftruncate(lock_fd_, 0) == 0 && ::pwrite(lock_fd_, owner.data(), owner.size(), 0) > 0;
}

PartialFolder::~PartialFolder() {
  if (!kept_) try_remove_tree(path_);
  if (lock_fd_ >= 0) ::close(lock_fd_);
}

void PartialFolder::clear() {
  for (const auto& entry : fs::directory_iterator(path_))
    if (entry.path().filename() != kLockName) remove_tree(entry.path());
}

void PartialFolder::remove() {
  clear();
  remove_tree(path_);
  kept_ = true;
}

namespace {

bool holds(const fs::path& folder, const std::string& manifest_hash) {
  std::error_code ignored;
  const auto file = folder / kDataManifestName;
  return fs::exists(file, ignored) && hash_file(file) == manifest_hash;
}

// There is a whole folder at `out` at every moment if the file system can exchange two; otherwise there is one moment
// without it.
void put_in_place(const fs::path& data, const fs::path& out, const fs::path& partial) {
  std::error_code ignored;
  const bool is_replacement = fs::exists(out, ignored) && !fs::is_empty(out, ignored);
  if (is_replacement && ::renameat2(AT_FDCWD, data.c_str(), AT_FDCWD, out.c_str(), RENAME_EXCHANGE) == 0)
    return sync_path(parent_folder(out));
  MovedAside predecessor(out, partial / "replaced");
  if (is_replacement) predecessor.move_now();
  rename_synced(data, out);
}

void remove_old_remainders(const fs::path& out, const DataManifest& manifest) {
  for (const auto& entry : fs::directory_iterator(out)) {
    const auto name = entry.path().filename().string();
    const bool is_ours = manifest.remainder && name == manifest.remainder->file;
    std::error_code ignored;
    if (name.starts_with("remainder-") && !is_ours) fs::remove(entry.path(), ignored);
  }
}

void finish(const fs::path& out, PartialFolder& partial, const DataManifest& manifest) {
  fault_point("prepare.committed");
  remove_old_remainders(out, manifest);
  partial.remove();
}

void move_new_files(const fs::path& data, const fs::path& out) {
  for (const auto& entry : fs::directory_iterator(data)) {
    rename_path(entry.path(), out / entry.path().filename());
    fault_point("prepare.moved");
  }
  sync_path(out);
}

}  // namespace

void commit_finished(const fs::path& given_out, PartialFolder& partial, const DataManifest& manifest,
                     const PrepareJob& job, PrepareJournal& journal) {
  const auto out = PartialFolder::resolve(given_out);
  const auto text = data_manifest_text(manifest);
  if (job.adds()) {
    fault_point("prepare.before_commit");
    move_new_files(partial.data(), out);
    journal.commit(hash_hex(text));
    write_file_atomically(out / kDataManifestName, text);
  } else {
    write_file_atomically(partial.data() / manifest.tokenizer_file, job.tokenizer.file_bytes());
    write_file_atomically(partial.data() / kDataManifestName, text);
    fault_point("prepare.before_commit");
    journal.commit(hash_hex(text));
    put_in_place(partial.data(), out, partial.path());
  }
  finish(out, partial, manifest);
}

std::optional<DataManifest> finish_committed(const fs::path& given_out, PartialFolder& partial) {
  const auto out = PartialFolder::resolve(given_out);
  const auto hash = PrepareJournal::committed(partial.journal());
  if (!hash) return std::nullopt;
  std::error_code ignored;
  if (!fs::exists(out, ignored) && holds(partial.data(), *hash)) put_in_place(partial.data(), out, partial.path());
  if (!holds(out, *hash)) return std::nullopt;
  const auto manifest = read_data_manifest(out);
  finish(out, partial, manifest);
  return manifest;
}

}  // namespace athanor::inline preparation
