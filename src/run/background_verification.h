#pragma once
// Compares shards that have no checksums of blocks with their checksums during the run.

#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "run/run_data.h"

namespace athanor::inline run {

/// One thread reads the files, which must not be written to. It starts with the object, and ends early with it.
class BackgroundVerification {
 public:
  explicit BackgroundVerification(std::vector<UnverifiedFile> files);
  ~BackgroundVerification();
  BackgroundVerification(const BackgroundVerification&) = delete;
  BackgroundVerification& operator=(const BackgroundVerification&) = delete;

  /// Returns what Dataset::verify_file threw for the first file that is damaged or cannot be read; null as long as none
  /// was found.
  std::exception_ptr failure() const;

 private:
  void verify(const std::vector<UnverifiedFile>& files);

  std::atomic<bool> stopping_ = false;
  mutable std::mutex mutex_;  // guards failure_
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace athanor::inline run
