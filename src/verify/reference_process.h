#pragma once
// Runs one rank as a separate process: this program again, in an environment without the variables of an MPI launcher,
// so that it is a job of one process. Armed faults (base/fault.h) are not passed on either.

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

namespace athanor::inline verify {

class ReferenceProcess {
 public:
  /// Starts this program with `arguments`. @throws IoError.
  explicit ReferenceProcess(const std::vector<std::string>& arguments);
  /// Ends the process if wait() has not been called.
  ~ReferenceProcess();
  ReferenceProcess(const ReferenceProcess&) = delete;
  ReferenceProcess& operator=(const ReferenceProcess&) = delete;

  /// Waits for the process to end.
  /// @param on_work  called again and again as long as the process computes.
  /// @throws Error if it did not end with 0; its own output contains the reason.
  void wait(const std::function<void()>& on_work);

 private:
  double cpu_seconds() const;

  pid_t pid_ = -1;
};

/// Returns the variables ("NAME=value") of `environment` that a process outside of any job keeps.
std::vector<std::string> environment_outside_jobs(char** environment);

}  // namespace athanor::inline verify
