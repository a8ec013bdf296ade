#pragma once
// Why an attempt ended, from its log: the cause, the hosts at fault, and the lines that show it.
//
// The first cause in time wins over what follows from it; what follows never blames a host. Warnings after which the
// training continued count only if nothing else explains the end. A job that reports its end is complete, whatever its
// processes do while they leave. docs/launch.md has the rules.

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "launch/host_names.h"
#include "launch/log_lines.h"
#include "launch/signatures.h"
#include "launch/verdict.h"

namespace athanor::launch {

struct Evidence {
  uint64_t line = 0;  ///< from 1; 0: the exit code
  std::string text;
  std::string signature;  ///< the name of what matched
};

/// A host that may be at fault.
struct Suspect {
  std::string host, reason;
};

struct Classification {
  Cause cause = Cause::kUnknown;
  std::vector<std::string> hosts;  ///< at fault: names, or addresses of which the log shows no name
  std::vector<Suspect> suspects;   ///< those of them that are not known to be
  std::vector<Evidence> evidence;
  uint64_t num_bytes = 0, num_lines = 0;
  std::optional<int64_t> last_step;
  bool is_binary = false;  ///< nothing was found in it, and its front is no text
};

/// @param exit_code  of the attempt; nothing: not known.
/// @param hosts  of the attempt: only these are named. Empty: all are.
/// @throws IoError if the log cannot be read; num_bytes is 0 for an empty one.
Classification classify_log(const ReadLog& read, std::optional<int> exit_code, const JobHosts& hosts,
                            const SignatureSet& signatures);
Classification classify_log(const std::filesystem::path& log, std::optional<int> exit_code, const JobHosts& hosts,
                            const SignatureSet& signatures);

/// For people, with control characters of the log escaped.
std::string classification_text(const Classification& found);
nlohmann::ordered_json classification_json(const Classification& found, std::optional<int> exit_code);

}  // namespace athanor::launch
