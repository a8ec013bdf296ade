#pragma once
// Starts one program with a vector of arguments, and with chosen standard streams. launch/process.h waits for programs.

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

namespace athanor::launch {

struct Program {
  std::vector<std::string> words;  ///< the first is looked up on PATH unless it has a slash
  std::vector<std::pair<std::string, std::string>> variables = {};  ///< added to the environment
  std::vector<int> cpus = {};                                       ///< it may run on these; empty: as this process
};

/// The two ends of a pipe, which no program inherits.
class Pipe {
 public:
  /// @throws IoError if there are no descriptors left.
  Pipe();
  ~Pipe();
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  int read = -1, write = -1;  ///< −1: closed
  void close_read();
  void close_write();
};

/// The standard streams of a program: descriptors; −1: those of this process.
struct Streams {
  int input = -1, output = -1, errors = -1;
};

/// Starts a program in its own process group. It gets SIGTERM if this process is killed.
/// @param path  of the program: path_of_program. @throws ConfigError with the system's reason.
pid_t start_child(const Program& program, const std::string& path, Streams streams);

/// @throws ConfigError if there is no such program that may be executed.
std::string path_of_program(const std::string& name);

/// Returns the exit code of what waitpid has told; 128 + n for the signal n.
int code_of_status(int status);

}  // namespace athanor::launch
