#pragma once
// What the lines of a log have shown so far: which signatures matched, whom they named, and how far the training came.
// Its size does not grow with the log.

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "launch/line_prefix.h"
#include "launch/log_lines.h"
#include "launch/signatures.h"

namespace athanor::launch {

/// A line as evidence: its beginning is kept.
struct EvidenceLine {
  uint64_t number = 0;
  uint64_t offset = 0;  ///< its first byte in the log
  std::string text;
};

/// Who printed a line, by its beginning.
struct Printer {
  std::string host, rank;          ///< empty: not told
  std::optional<uint32_t> prefix;  ///< the kind of the prefix that tells it; nothing: the message itself tells it
};

/// Who is named by a line.
struct Named {
  enum class Kind { kHost, kAddress, kRank, kNode, kNid, kPrinter };
  Kind kind = Kind::kHost;
  std::string text;  ///< for a printer all that is known
  EvidenceLine line;
  std::vector<Printer> printers = {};  ///< what knows it best stands first
  uint64_t report_begin = 0;           ///< the number of the first line of the report; that of the line if it has one
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
  /// Looks at the prefixes of lines at the front of a piece of the log, of any lines.
  void look_at_prefixes(std::string_view piece, uint64_t offset);

  bool has_any() const { return !open_.empty() || finished_ || reported_code_ || num_steps_ > 0; }
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

  /// Whether it tells anything: a prefix that is the same on all lines does not.
  bool counts(const Printer& printer) const;

  /// Where the log has shown a rank or an address to be; "" if it has not.
  std::string host_of_rank(int64_t rank) const;
  std::string host_of_address(const std::string& address) const;

 private:
  void record(uint32_t index, const LogLine& line);
  /// A report of several lines, as far as it was read.
  struct Block {
    uint64_t first_line = 0, last_line = 0;
    std::vector<std::pair<std::string, std::string>> named;  // groups
  };
  void begin_block(uint32_t index, const LogLine& line);
  bool join_block(uint32_t index, const LogLine& line);
  bool add_to(Block& block, uint64_t line);
  std::string block_key(uint32_t index) const;
  uint64_t report_begin(const LogLine& line) const { return report_begin_ > 0 ? report_begin_ : line.number; }
  void note_step(const LogLine& line);
  void note_place();
  void note_innocent(HostPolicy policy);
  bool matches(const Signature& signature, const LogLine& line);
  const PeeledLine& peeled(const LogLine& line);
  void note_prefix_places();
  void name_printer(const LogLine& line, Seen& seen);
  std::optional<Printer> printer_in_text(const LogLine& line);
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
  std::unordered_map<std::string, Block> blocks_;  // by their first entry, and by who prints them
  uint64_t report_begin_ = 0;                      // for the line that is looked at; 0: it belongs to no block
  std::unordered_set<std::string> innocent_;       // by machine_name
  PeeledLine peeled_;
  bool is_peeled_ = false;  // the line that is looked at
  PrefixCensus census_;
  struct PrefixPlace {
    std::string host;
    uint32_t rank_prefix, host_prefix;
  };
  std::unordered_map<int64_t, PrefixPlace> prefix_places_;
  std::unordered_map<int64_t, std::string> host_of_rank_;
  std::unordered_map<std::string, std::string> host_of_address_;
};

}  // namespace athanor::launch
