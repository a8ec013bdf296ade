#pragma once
// What others put before a line of output: the label of a launcher, a time, the head of syslog, a logger's level.
// Entries of signatures look at the text behind it. It names who printed the line, which counts only if nothing in the
// text does.

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "launch/pattern.h"
#include "launch/signatures.h"

namespace athanor::launch {

/// One prefix of a line.
struct Prefix {
  uint32_t kind = 0;            ///< the same for prefixes of all lines that come from one place
  std::string_view text;        ///< all of it
  std::string_view host, rank;  ///< empty: not named
};

/// A line without its prefixes; valid as long as the line is.
struct PeeledLine {
  std::string_view text;         ///< what is left
  std::vector<Prefix> prefixes;  ///< the outermost first
};

/// Takes the prefixes off a line that `signatures` know. White space around them goes too.
void peel(std::string_view line, const SignatureSet& signatures, PatternScratch& scratch, PeeledLine& peeled);

/// Finds which prefixes name the same rank or host on all lines of a log: those tell nothing about a single line.
class PrefixCensus {
 public:
  /// @param offset  of the line in the log; a line may be counted again.
  void count(const PeeledLine& line, uint64_t offset);
  /// Returns whether another line had no such prefix, or one with another rank or host.
  bool varies(uint32_t kind) const;
  /// Returns whether only one line was counted.
  bool is_single() const { return is_single_; }

 private:
  struct Kind {
    std::string names;  // what its first line has
    uint64_t num_lines = 0;
    bool varies = false;
  };
  std::unordered_map<uint32_t, Kind> kinds_;
  uint64_t num_lines_ = 0, first_offset_ = 0;
  bool is_single_ = true;
};

}  // namespace athanor::launch
