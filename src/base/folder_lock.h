#pragma once
// One process at a time in a folder: two runs would mix their metrics and overwrite each other's checkpoints.
//
// The file `lock` in the folder is locked in the way that dies with its process (an open file description's lock, which
// network file systems pass on to their server), and says who holds it. Where the file system refuses locks the same
// file is a lease: its holder writes it anew every few seconds. A lease is stale when its process is gone, which only
// its own machine can see, or when it has not changed for several of its intervals while we watched: clocks of two
// machines are never compared.
//
// Fault point: "lock.take" (with an error number: the file system refuses locks).

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace athanor {

/// A process, told from every other that ever was on any machine.
struct ProcessIdentity {
  std::string host, boot_id, pid_namespace;
  int64_t pid = 0, started = 0;  ///< `started`: in ticks since the machine's start

  static ProcessIdentity own();
  /// Can this process see whether that one lives?
  bool is_of_this_machine() const;
  /// Of one of this machine: is it gone? (Its number may be another's by now.)
  bool is_gone() const;
  bool operator==(const ProcessIdentity&) const = default;
};

struct FolderLockOptions {
  std::chrono::milliseconds interval{3000};  ///< of a lease
  int patience = 5;                          ///< intervals without a change after which a lease is stale
};

class FolderLock {
 public:
  /// Makes the folder where it is missing. Waits only where a lease of another machine has to be watched.
  /// @throws ConfigError naming host and process that hold it; IoError.
  explicit FolderLock(std::filesystem::path folder, FolderLockOptions options = {});
  /// Leaves the folder as it was found: without the lock, and without the folder where it was made and is empty.
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  /// A lease can be lost to whoever saw this process stand still for long; a lock whose file was removed is taken
  /// again, or lost to whoever came first. @throws IoError naming who holds it now.
  void check_held();
  bool is_lease() const { return renewing_.joinable(); }

 private:
  void make_folder();
  void take();
  void take_lease(bool is_new);
  /// @return it is stale. @throws ConfigError: it is held.
  bool watch(const std::string& seen) const;
  void take_over();
  void take_again();
  [[noreturn]] void fail_taken_over(const std::string& content, const std::string& since) const;
  void begin_renewing();
  void renew(const std::stop_token& stop);
  std::string lease_text(int64_t beat) const;
  void remove_what_was_made();
  [[noreturn]] void refuse(const std::string& content) const;

  std::filesystem::path folder_, path_;
  FolderLockOptions options_;
  ProcessIdentity own_;
  std::vector<std::filesystem::path> made_;  // folders, outermost first
  int fd_ = -1;
  bool made_lock_ = false;  // its file is ours: it was not there before
  mutable std::mutex mutex_;
  std::string taken_over_by_;  // content of the lease that replaced ours; guarded
  std::condition_variable_any wake_;
  std::jthread renewing_;
};

}  // namespace athanor
