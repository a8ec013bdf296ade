#include "plot/worked_time.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace athanor::inline plot {

std::vector<double> worked_seconds(const std::vector<double>& time, const std::vector<double>& attempt,
                                   const std::vector<double>& step_s) {
  std::vector<double> worked;
  double sum = 0;
  for (size_t i = 0; i < time.size(); ++i) {
    const bool begins = i == 0 || attempt[i] != attempt[i - 1];
    const double since = begins ? step_s[i] : time[i] - time[i - 1];
    if (std::isfinite(since)) sum += std::max(0.0, since);
    worked.push_back(sum);
  }
  return worked;
}

}  // namespace athanor::inline plot
