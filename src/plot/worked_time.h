#pragma once
// How long a run had worked at each of its steps.

#include <vector>

namespace athanor::inline plot {

/// Returns the seconds that the run had worked at the end of each step. The time between two attempts is not in it:
/// there only the step itself counts.
/// @param time, attempt, step_s  the fields of these names in metrics.jsonl, of each step.
std::vector<double> worked_seconds(const std::vector<double>& time, const std::vector<double>& attempt,
                                   const std::vector<double>& step_s);

}  // namespace athanor::inline plot
