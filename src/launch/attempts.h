#pragma once
// The folder attempts/ of a run: attempts/NNN/ has the log of each attempt that `athanor launch` made, its hosts, and
// why it ended (docs/launch.md). Numbers continue over calls.

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "launch/classify.h"
#include "launch/host_list.h"

namespace athanor::launch {

/// How an attempt went.
struct Attempt {
  int number = 0;
  double started = 0, ended = 0;  ///< seconds since 1970
  int exit_code = 0;
  Cause cause = Cause::kUnknown;
  std::vector<std::string> at_fault;  ///< hosts
  std::vector<Evidence> evidence;
  std::optional<int64_t> first_step, last_step;
  std::vector<Suspect> suspects = {};  ///< those in `at_fault` that are not known to be
  std::vector<std::string> silent =
      {};  ///< hosts that told nothing of the present at its end (launch/progress_watch.h)

  bool made_progress() const { return last_step.has_value(); }
};

/// Returns the first number after all that are in the folder; 1 if it is not there.
int next_attempt(const std::filesystem::path& attempts);

std::filesystem::path folder_of_attempt(const std::filesystem::path& attempts, int number);

/// Makes the folder of an attempt with its file of hosts. @throws IoError.
void make_attempt(const std::filesystem::path& attempts, int number, const std::vector<Host>& hosts);

/// Writes verdict.json. @throws IoError.
void write_verdict(const std::filesystem::path& attempts, const Attempt& attempt);

/// "attempt 3 ended with code 75 after step 120: soft_failure (host n7); run again without …"
std::string attempt_text(const Attempt& attempt);

/// Returns what the verdicts of all attempts in the folder tell, oldest first; one that has none (it runs, or its
/// launch was killed) has only its number. Lines for people, of the newest `at_most`, and the same as JSON.
nlohmann::ordered_json attempts_json(const std::filesystem::path& attempts);
std::string attempts_text(const std::filesystem::path& attempts, size_t at_most = 8);

}  // namespace athanor::launch
