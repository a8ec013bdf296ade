#pragma once
// Admits one process at a time to a folder: two runs would mix their metrics and overwrite each other's checkpoints.
//
// The file `lock` in the folder names its holder and is locked by an open file description's lock. This ends with its
// process, and network file systems pass it on to their server. If the file system refuses locks, the same file is a
// lease: its holder rewrites it every few seconds. A lease is stale if its process is gone, which only its own machine
// can see. It is stale, too, if it has not changed for several of its intervals while another process watched it;
// clocks of two machines are never compared.
//
// Fault point: "lock.take" (with an error number: the file system refuses locks).

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

namespace athanor {

/// Identifies a process uniquely among all processes, past and present, of all machines.
struct ProcessIdentity {
  std::string host, boot_id, pid_namespace;
  int64_t pid = 0, started = 0;  ///< `started`: the process's start, in clock ticks since that of the machine

  static ProcessIdentity own();
  /// True if the calling process can see whether this one lives.
  bool is_of_this_machine() const;
  /// True if this process is gone, even if another one has its number now. Call it only if is_of_this_machine().
  bool is_gone() const;
  bool operator==(const ProcessIdentity&) const = default;
};

struct FolderLockOptions {
  std::chrono::milliseconds interval{3000};  ///< time between two renewals of a lease
  int patience = 5;                          ///< intervals without a change after which a lease is stale
  /// What to do if another process holds the lock, for the message.
  std::string remedy = "wait until it has ended, end it, or name another train.run_dir";
};

class FolderLock {
 public:
  /// Takes the lock, and makes the folder if it is missing. Waits for seconds only if there is a lease: `patience` of
  /// its intervals to watch one of another machine, and one interval after taking over a stale one.
  /// @throws ConfigError naming host and process that hold it; IoError.
  explicit FolderLock(std::filesystem::path folder, FolderLockOptions options = {});
  /// Leaves the folder as it was found: removes the lock, and the folder if this object made it and it is empty.
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  /// Checks that this process still holds the lock. A lease is lost if another process saw this one stand still for
  /// long. A lock (not a lease) whose file was removed is taken again, unless another process took it first.
  /// @throws IoError naming the present holder if the lock is lost.
  void check_held();
  /// True if the file system refuses locks, so that this is a lease.
  bool is_lease() const { return renewing_.joinable(); }

 private:
  void make_folder();
  void take();
  void take_lease(bool is_new);
  /// @return true if the lease is stale. @throws ConfigError if it is held.
  bool watch(const std::string& seen) const;
  void take_over();
  void take_again();
  [[noreturn]] void fail_taken_over(const std::string& content, const std::string& since) const;
  void begin_renewing();
  void renew(const std::stop_token& stop);
  void put_back_removed_lease();
  std::string lease_text(int64_t beat) const;
  void remove_what_was_made();
  [[noreturn]] void refuse(const std::string& content) const;

  std::filesystem::path folder_, path_;
  FolderLockOptions options_;
  ProcessIdentity own_;
  std::vector<std::filesystem::path> made_;  // folders, outermost first
  int fd_ = -1;
  bool made_lock_ = false;  // this object made the file: it was not there before
  mutable std::mutex mutex_;
  std::string taken_over_by_;  // content of the lease that replaced ours; guarded
  std::condition_variable_any wake_;
  std::jthread renewing_;
};

}  // namespace athanor
