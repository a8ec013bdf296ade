#pragma once
// Keeps a bounded number of shards open: those read last. A run may have thousands of shards in each of several
// sources, but the limit of open files per process is often about a thousand.

#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "dataset/npy.h"

namespace athanor::inline dataset {

/// Any number of threads may use one object concurrently.
class OpenShards {
 public:
  /// Returns an eighth of the number of files that this process may open (ulimit -n), between 8 and 256.
  static size_t fitting_limit();

  explicit OpenShards(size_t most = fitting_limit()) : most_(most) {}

  /// Returns the shard at `path`; calls `open` if it is not open. It stays readable while the caller holds it, even
  /// after other shards have replaced it here. If the system refuses to open more files, the shards that no caller
  /// holds are closed, and `open` is called once more.
  /// @throws what `open` throws.
  std::shared_ptr<const NpyMatrix> get(const std::string& path, const std::function<NpyMatrix()>& open);

  size_t num_open() const;

 private:
  using Entry = std::pair<std::string, std::shared_ptr<const NpyMatrix>>;

  std::shared_ptr<const NpyMatrix> find(const std::string& path);
  void close_all();

  const size_t most_;
  mutable std::mutex mutex_;  // guards all members below
  std::list<Entry> newest_first_;
  std::unordered_map<std::string, std::list<Entry>::iterator> by_path_;
};

}  // namespace athanor::inline dataset
