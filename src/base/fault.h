#pragma once
// Named places where a test may make the program fail. Inert unless ATHANOR_FAULT arms them; a program that is armed
// says so when it starts.
//
// ATHANOR_FAULT="checkpoint.piece:kill@3,files.write:enospc@1+" means: the third time `checkpoint.piece` is passed
// the process kills itself (SIGKILL); every `files.write` from the first on answers ENOSPC. Without "@N" the first pass
// is meant. Actions: kill, term, int (signals to this process); enospc, eio (where fault_errno is called).
// The names are those of base/fault_points.h. What computes something wrong is not played here but put into a run from
// outside: `athanor verify --plant` (train/verify/plants/).

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/fault_points.h"

namespace athanor {

namespace detail {
// Not constexpr: a compiler that meets one of these in a constant expression stops, and shows its name.
void no_such_line_in_base_fault_points_h();
void its_line_in_base_fault_points_h_lacks_kAnswersErrno();

struct PointName {
  // NOLINTNEXTLINE(google-explicit-constructor): names are written as literals where they are passed
  consteval PointName(const char* name) : text(name) {
    if (!find_fault_point(text)) no_such_line_in_base_fault_points_h();
  }
  std::string_view text;
};

struct ErrnoPointName {
  // NOLINTNEXTLINE(google-explicit-constructor)
  consteval ErrnoPointName(const char* name) : text(name) {
    if (!find_fault_point(text)) no_such_line_in_base_fault_points_h();
    if (!find_fault_point(text)->answers_errno) its_line_in_base_fault_points_h_lacks_kAnswersErrno();
  }
  std::string_view text;
};
}  // namespace detail

/// Passes a named place; kill, term and int act here. Costs a comparison where nothing is armed.
void fault_point(detail::PointName name);

/// As fault_point; also answers the errno to pretend, or 0.
int fault_errno(detail::ErrnoPointName name);

/// One item of ATHANOR_FAULT.
struct ArmedFault {
  std::string point;
  std::string action;
  int64_t from = 1;      ///< the pass that is meant, from 1
  bool onwards = false;  ///< and all after it
};

/// @throws ConfigError for a name that no place has (with the nearest and all), an action that there is not or that
///         the place does not play, a count that is not a positive number, an item without a colon.
std::vector<ArmedFault> parse_faults(std::string_view text);

/// What ATHANOR_FAULT arms in this process, on one line that says it is on purpose; empty: nothing. To be said at
/// start.
/// @throws ConfigError, as parse_faults.
std::string describe_armed_faults();

}  // namespace athanor
