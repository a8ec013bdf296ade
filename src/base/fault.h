#pragma once
// Fault points: named places where a test can make the program fail. They are inert unless ATHANOR_FAULT arms them; a
// program with armed faults reports them when it starts.
//
// ATHANOR_FAULT="checkpoint.piece:kill@3,files.write:enospc@1+" means: the third time that `checkpoint.piece` is
// passed, the process kills itself (SIGKILL); every `files.write` from the first on returns ENOSPC. Without "@N" the
// fault acts at the first pass. Each process counts passes separately, over all its threads. The actions are kill, term
// and int (signals to this process), stallN (the thread stops for N seconds: "stall60"), and enospc and eio (at points
// that call fault_errno). The names are those of
// base/fault_points.h. Faults that compute wrong results are not fault points; `athanor verify --plant`
// (verify/plants/) puts them into a run from outside.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/fault_points.h"

namespace athanor {

namespace detail {
// These are not constexpr: a compiler that finds a call of one in a constant expression stops, and shows its name.
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

/// Passes a fault point, at which kill, term, int and stallN act. It costs one comparison if nothing is armed.
void fault_point(detail::PointName name);

/// Passes a fault point in the same way. @return the errno that the caller must simulate, or 0.
int fault_errno(detail::ErrnoPointName name);

/// One item of ATHANOR_FAULT.
struct ArmedFault {
  std::string point;
  std::string action;
  int64_t from = 1;      ///< the pass at which it acts, counted from 1
  bool onwards = false;  ///< it also acts at all later passes
};

/// Returns the items of an ATHANOR_FAULT value.
/// @throws ConfigError for a name that no fault point has; the message lists the nearest name and all names. An action
///         that does not exist, or that the point does not support, is an error, too. So are a count that is not a
///         positive number, and an item without a colon.
std::vector<ArmedFault> parse_faults(std::string_view text);

/// Arms a fault in this process from now on, as rehearsals do ([faults]); passes are counted from this call.
/// @throws ConfigError as parse_faults does.
void arm_fault(std::string_view item);
/// Disarms all that arm_fault has armed at this point.
void disarm_fault(std::string_view point);

/// Returns the faults that ATHANOR_FAULT arms in this process, on one line which states that they are on purpose; empty
/// if there are none. Programs must print it at start.
/// @throws ConfigError as parse_faults does.
std::string describe_armed_faults();

}  // namespace athanor
