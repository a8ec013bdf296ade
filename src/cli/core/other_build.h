#pragma once
// Runs another build's `athanor smoke`, and takes what it writes.

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "smoke/smoke.h"
#include "smoke/smoke_trace.h"

namespace athanor::inline cli {

class OtherBuild {
 public:
  /// Asks the program which options its smoke test has.
  /// @param given  a path of a program, or of a folder that contains `athanor`.
  /// @param device  value of its --device.
  /// @param limit  how long each run may take.
  /// @throws ConfigError if it is no program that may be executed, or no Athanor with a smoke test.
  OtherBuild(const std::string& given, std::string device, std::chrono::seconds limit);

  const std::string& path() const { return path_; }
  /// False for a build from before there were traces.
  bool writes_traces() const { return writes_traces_; }

  /// Return its trace; its trace with the values of one tensor; the losses and gradient norms of its golden file. Each
  /// runs it in a temporary folder, which is removed.
  /// @throws ConfigError, DataError with the last line that it printed, if it fails, hangs, or writes something else.
  SmokeTrace trace() const;
  SmokeTrace values_of(const TracedPlace& place) const;
  std::vector<SmokeRun> golden() const;
  /// Returns the lines of its --version.
  std::string version() const;

 private:
  struct Ran {
    int code = 0;
    std::string output;
  };
  Ran run(const std::vector<std::string>& words, const std::filesystem::path& folder) const;
  void run_smoke(std::vector<std::string> words, const std::filesystem::path& folder,
                 const std::filesystem::path& written) const;

  std::string path_, device_;
  std::chrono::seconds limit_;
  bool writes_traces_ = false;
};

}  // namespace athanor::inline cli
