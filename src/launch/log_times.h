#pragma once
// How long a log continued after a place in it, by the times that its lines begin with.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launch/line_prefix.h"

namespace athanor::launch {

/// Returns the first time in the text, in seconds since 1970, if it is written as 2026-01-05 11:20:17, with T or a
/// space between; the zone is not read.
std::optional<double> time_in(std::string_view text);

/// Call it with the pieces of a log in their order.
class LogTimes {
 public:
  explicit LogTimes(const SignatureSet& signatures) : signatures_(signatures) {}

  /// @param piece  whole lines. @param offset  of its front in the log. @param from  the place after which the first
  /// time counts; it may only grow.
  void see(std::string_view piece, uint64_t offset, uint64_t from);

  /// Returns the seconds between the first time at or after the place, and the last one of the same form: a line may
  /// begin with several, and the innermost is that of its program. Nothing if there are no two such times, or if the
  /// first is more than 64 KiB from the place.
  std::optional<double> seconds_after() const;

 private:
  struct Time {
    std::string form;  // what stands around it
    double seconds = 0;
  };
  std::vector<Time> times_of(std::string_view line);
  void find_first(std::string_view text);
  void find_last(std::string_view text);

  const SignatureSet& signatures_;
  PatternScratch scratch_;
  PeeledLine peeled_;
  uint64_t from_ = 0;
  std::vector<Time> first_;  // one of each form
  std::vector<Time> last_;   // the times on the last line that has any; the innermost one is the last
};

}  // namespace athanor::launch
