#include "dataset/open_shards.h"

#include <fmt/core.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>

#include "base/error.h"

namespace athanor::inline dataset {
namespace {

size_t files_of_process() {
  rlimit limit{};
  return ::getrlimit(RLIMIT_NOFILE, &limit) == 0 ? static_cast<size_t>(limit.rlim_cur) : 1024;
}

bool too_many_files(const IoError& error) { return error.error_number() == EMFILE || error.error_number() == ENFILE; }

}  // namespace

size_t OpenShards::fitting_limit() {
  // The soft limit is not raised: select(), which MPIs use, cannot use descriptors above 1,024.
  return std::clamp<size_t>(files_of_process() / 8, 8, 256);
}

std::shared_ptr<const NpyMatrix> OpenShards::find(const std::string& path) {
  const auto found = by_path_.find(path);
  if (found == by_path_.end()) return nullptr;
  newest_first_.splice(newest_first_.begin(), newest_first_, found->second);
  return found->second->second;
}

std::shared_ptr<const NpyMatrix> OpenShards::get(const std::string& path, const std::function<NpyMatrix()>& open) {
  {
    const std::lock_guard lock(mutex_);
    if (auto shard = find(path)) return shard;
  }
  // The file is opened without the lock, since a file system may take its time. Two threads may both open it; then the
  // second one's file is used.
  std::shared_ptr<const NpyMatrix> opened;
  try {
    opened = std::make_shared<NpyMatrix>(open());
  } catch (const IoError& error) {
    if (!too_many_files(error)) throw;
    close_all();
    try {
      opened = std::make_shared<NpyMatrix>(open());
    } catch (const IoError& again) {
      if (!too_many_files(again)) throw;
      throw IoError(
          fmt::format("{}; this process may open {} files at a time (ulimit -n)", again.what(), files_of_process()),
          again.error_number());
    }
  }
  const std::lock_guard lock(mutex_);
  if (auto shard = find(path)) return shard;
  newest_first_.emplace_front(path, opened);
  by_path_[path] = newest_first_.begin();
  if (newest_first_.size() > most_) {
    by_path_.erase(newest_first_.back().first);
    newest_first_.pop_back();
  }
  return opened;
}

void OpenShards::close_all() {
  const std::lock_guard lock(mutex_);
  by_path_.clear();
  newest_first_.clear();
}

size_t OpenShards::num_open() const {
  const std::lock_guard lock(mutex_);
  return newest_first_.size();
}

}  // namespace athanor::inline dataset
