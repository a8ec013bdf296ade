#pragma once
// What the lines of a log have shown so far: which signatures matched, whom they named, and how far the training came.
// Its size does not grow with the log.

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "launch/log_lines.h"
#include "launch/signatures.h"

namespace athanor::launch {

/// A line as evidence: its beginning is kept.
struct EvidenceLine {
  uint64_t number = 0;
  uint64_t offset = 0;  ///< its first byte in the log
  std::string text;
};

/// Who is named by a line.
struct Named {
  enum class Kind { kHost, kAddress, kRank };
  Kind kind = Kind::kHost;
  std::string text;
  EvidenceLine line;
};

/// The matches of one signature.
struct Seen {
  uint32_t signature = 0;
  EvidenceLine first;
  std::vector<Named> named;        ///< at fault, or who printed it, by the policy; each once, at most 4,096
  uint64_t steps_before_last = 0;  ///< number of steps reported before the newest match
};

class Findings {
 public:
  /// After this many newly reported steps a sign was survived. With a dead rank, at most the step that was under way is
  /// still reported.
  static constexpr uint64_t kStepsThatProve = 3;

  explicit Findings(const SignatureSet& signatures);

  void take(const LogLine& line);

  /// Matches that were not survived. Causes always count.
  std::vector<const Seen*> open(Tells tells) const;
  /// Signs that were survived.
  std::vector<const Seen*> survived() const;
  /// The newest report of the end, and the newest progress.
  const std::optional<EvidenceLine>& finished() const { return finished_; }
  const std::optional<EvidenceLine>& progress() const { return progress_; }
  std::optional<int> reported_code() const { return reported_code_; }
  std::optional<int64_t> last_step() const { return last_step_; }
  uint64_t num_steps() const { return num_steps_; }
  uint64_t steps_since(const Seen& seen) const { return num_steps_ - seen.steps_before_last; }

  /// Whether a line has named this machine as healthy.
  bool is_innocent(const std::string& machine) const { return innocent_.contains(machine); }

  /// Where the log has shown a rank or an address to be; "" if it has not.
  std::string host_of_rank(int64_t rank) const;
  std::string host_of_address(const std::string& address) const;

 private:
  void record(uint32_t index, const LogLine& line);
  void note_step(const LogLine& line);
  void note_place();
  void note_innocent(HostPolicy policy);
  void name_from_tags(const LogLine& line, Seen& seen);
  void add_names(const Signature& signature, const LogLine& line, Seen& seen);
  bool is_survived(const Seen& seen) const;

  const SignatureSet& signatures_;
  PatternScratch scratch_;
  std::vector<Pattern::Group> groups_;
  std::vector<uint32_t> candidates_;
  std::unordered_map<uint32_t, Seen> open_, survived_;
  std::optional<EvidenceLine> finished_, progress_;
  std::optional<int> reported_code_;
  std::optional<int64_t> last_step_;
  uint64_t num_steps_ = 0;
  std::unordered_set<std::string> innocent_;  // by machine_name
  std::unordered_map<int64_t, std::string> host_of_rank_;
  std::unordered_map<std::string, std::string> host_of_address_;
};

}  // namespace athanor::launch
