#pragma once
// Shards that are open at a time: a bounded number of them, the ones read last. A run may have thousands, in each of
// several sources, and a process may open a thousand files.

#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "data/npy.h"

namespace athanor {

/// Any number of threads may use it at a time.
class OpenShards {
 public:
  /// An eighth of the files that this process may open (ulimit -n), between 8 and 256.
  static size_t fitting_limit();

  explicit OpenShards(size_t most = fitting_limit()) : most_(most) {}

  /// The shard at `path`, by `open` unless it is open. It stays readable while the caller holds it, also when others
  /// have taken its place since. Where the system refuses to open more files, those that nobody reads are closed first.
  /// @throws what `open` throws.
  std::shared_ptr<const NpyMatrix> get(const std::string& path, const std::function<NpyMatrix()>& open);

  size_t num_open() const;

 private:
  using Entry = std::pair<std::string, std::shared_ptr<const NpyMatrix>>;

  std::shared_ptr<const NpyMatrix> find(const std::string& path);
  void close_all();

  const size_t most_;
  mutable std::mutex mutex_;  // of all below
  std::list<Entry> newest_first_;
  std::unordered_map<std::string, std::list<Entry>::iterator> by_path_;
};

}  // namespace athanor
