#pragma once
// What `athanor launch` looks at: the environment of its process, the files of the kernel, the programs on the path.
// Tests pass recorded ones.

#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

namespace athanor::launch {

struct Surroundings {
  std::map<std::string, std::string> variables;  ///< the environment
  std::filesystem::path root = "/";              ///< the folder that has proc/ and sys/
  std::string host;                              ///< the name of this machine
  /// The time that each tool has to answer (nvidia-smi, `mpirun --version`). A driver that hangs makes its tool hang.
  std::chrono::milliseconds tool_limit{5000};

  /// Returns the value of a variable; nothing if it is not set, or is empty.
  std::optional<std::string> variable(const std::string& name) const;
  /// Returns the path of a program: `name` itself if it has a slash, else the first of that name on PATH; nothing if
  /// there is none that may be executed.
  std::optional<std::filesystem::path> find_program(const std::string& name) const;
};

/// Returns those of this process.
Surroundings own_surroundings();

/// Returns the first line of a file of the kernel, without blanks at its end; nothing if it cannot be read.
std::optional<std::string> read_kernel_line(const std::filesystem::path& path);

}  // namespace athanor::launch
