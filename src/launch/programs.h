#pragma once
// The programs that `athanor launch` starts for a command: the launcher, or each rank where there is no MPI.

#include <vector>

#include "launch/child.h"
#include "launch/launcher_command.h"

namespace athanor::launch {

/// Returns a port of this machine that is free now. @throws IoError if there is none.
int free_port();

/// A rank file becomes a file in memory, which the launcher inherits, so that nothing is left of it.
class Programs {
 public:
  Programs(const LaunchPlan& plan, const LaunchCommand& command);
  ~Programs();
  Programs(const Programs&) = delete;
  Programs& operator=(const Programs&) = delete;
  const std::vector<Program>& all() const { return programs_; }

 private:
  std::vector<Program> programs_;
  int rankfile_ = -1;
};

}  // namespace athanor::launch
