#pragma once
// One rank as a process of its own: this program again, in an environment from which what a launcher of MPI jobs put
// there is gone, so that it takes itself for a job of one. Faults that are armed (base/fault.h) stay behind too.

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

namespace athanor {

class ReferenceProcess {
 public:
  /// Starts this program with `arguments`. @throws IoError.
  explicit ReferenceProcess(const std::vector<std::string>& arguments);
  /// Ends it, if nobody has waited for it.
  ~ReferenceProcess();
  ReferenceProcess(const ReferenceProcess&) = delete;
  ReferenceProcess& operator=(const ReferenceProcess&) = delete;

  /// @param on_work  called again and again as long as it computes.
  /// @throws Error if it did not end with 0; what was wrong stands in its own lines.
  void wait(const std::function<void()>& on_work);

 private:
  double cpu_seconds() const;

  pid_t pid_ = -1;
};

/// The variables ("NAME=value") of `environment` that a process outside of any job keeps.
std::vector<std::string> environment_outside_jobs(char** environment);

}  // namespace athanor
