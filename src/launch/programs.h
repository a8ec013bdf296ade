#pragma once
// The programs that `athanor launch` starts for a command: the launcher, or each rank where there is no MPI;
// and whether the kernel can execute what they are to run.

#include <filesystem>
#include <vector>

#include "launch/child.h"
#include "launch/launcher_command.h"
#include "launch/surroundings.h"

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

/// Refuses a file that the kernel cannot execute: a launcher would find out on every node, and describe it in other
/// words. Looks at the first bytes of a file that may be executed: an ELF program of this kind of processor, or a
/// script whose interpreter is there. Other formats, which a kernel may know (binfmt_misc), are accepted unless they
/// are text, and so is what cannot be read.
/// @throws ConfigError that names the file, what is wrong, and the remedy.
void require_executable(const std::filesystem::path& program, const Surroundings& here);

}  // namespace athanor::launch
