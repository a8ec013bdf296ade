#pragma once
// Signatures of messages: what lines of a log tell about why a job ended, as data. Those of the program are in
// signatures.toml, which also describes the format; users add files of the same format.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launch/pattern.h"
#include "launch/trigger_words.h"
#include "launch/verdict.h"

namespace athanor::launch {

/// What a line that matches tells.
enum class Tells {
  kCause,     ///< the cause itself
  kSign,      ///< what usually comes with this cause, but may be survived, or follow from another one
  kEcho,      ///< what follows from any failure
  kEnded,     ///< a process was ended by a launcher or a scheduler
  kProgress,  ///< a step has been taken (group `step`)
  kFinished,  ///< the program reports that it is complete
  kExit,      ///< the exit code (group `code`)
  kPlace,     ///< which host a rank or an address is on
  kTag,       ///< not a line, but its beginning: who printed it, in the message's own words
  kBlock,     ///< a report of several lines begins; entries that name it as theirs are about its further lines
  kPrefix,    ///< what a launcher, a logger or syslog puts before a line: it is taken off before others look
};

/// What the groups `host`, `address`, `rank`, `node` and `nid` of a pattern name.
enum class HostPolicy {
  kAtFault,   ///< what failed. Without such groups it is whoever printed the line
  kSuspect,   ///< what may have failed, in the same way: it counts if nothing names who did
  kInnocent,  ///< a healthy host, which is not blamed by signs
  kReporter,  ///< whoever printed the line
};

struct Signature {
  std::string name;  ///< unique in its file
  Tells tells = Tells::kCause;
  Cause cause = Cause::kUnknown;  ///< if it tells a cause, a sign or an echo
  HostPolicy policy = HostPolicy::kReporter;
  std::vector<std::string> has;  ///< a line that matches has one of these texts
  Pattern pattern;
  std::string example;
  std::string reason;           ///< why a host is suspect
  std::vector<std::string> in;  ///< the blocks of which it is a further line; empty: it is a line for itself
  bool is_first = false;        ///< a suspect that a report names as the first one which failed
  bool sees_prefixes = false;   ///< a user's, which may have been written for whole lines
  bool names_hosts = false;     ///< the pattern has such a group
};

/// Returns the signatures of a file in their order.
/// @param file  its name in messages.
/// @throws ConfigError that names file and entry in one line: an unknown key, cause or policy, a missing field, a name
///         that is used twice, a pattern that is not valid.
std::vector<Signature> parse_signatures(std::string_view toml, const std::string& file);

/// The text of signatures.toml, which is built into the program.
std::string_view built_in_signatures();

/// Signatures in their order of preference, and the index that finds those which may match a line.
class SignatureSet {
 public:
  /// @param files  of users: their signatures come first.
  /// @throws ConfigError as parse_signatures does; IoError if a file cannot be read.
  static SignatureSet load(const std::vector<std::string>& files = {});
  explicit SignatureSet(std::vector<Signature> signatures);

  const std::vector<Signature>& all() const { return signatures_; }
  const Signature& at(size_t index) const { return signatures_[index]; }
  const TriggerWords& words() const { return words_; }
  /// Puts the indices of the signatures that may match `line` into `found`, in their order.
  void find_candidates(std::string_view line, std::vector<uint32_t>& found) const;
  /// Returns the entries that begin the blocks which a signature names.
  const std::vector<uint32_t>& blocks_of(size_t index) const { return blocks_[index]; }
  const std::vector<uint32_t>& tags() const { return tags_; }
  const std::vector<uint32_t>& prefixes() const { return prefixes_; }

 private:
  std::vector<Signature> signatures_;
  std::vector<uint32_t> owner_of_word_;  // the signature of each word
  std::vector<uint32_t> tags_, prefixes_;
  std::vector<std::vector<uint32_t>> blocks_;
  TriggerWords words_;
};

}  // namespace athanor::launch
