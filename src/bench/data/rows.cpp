#include "bench/data/rows.h"

#include <fmt/core.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>

namespace athanor {

double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

double thread_s() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double BenchRow::median() const {
  auto sorted = values;
  std::sort(sorted.begin(), sorted.end());
  const size_t middle = sorted.size() / 2;
  return sorted.size() % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}
double BenchRow::least() const { return *std::min_element(values.begin(), values.end()); }
double BenchRow::most() const { return *std::max_element(values.begin(), values.end()); }

void print_bench_rows(const std::vector<BenchRow>& rows) {
  size_t width = 0;
  for (const auto& row : rows) width = std::max(width, row.name.size());
  fmt::print("{:{}}  {:>10} {:>10} {:>10}\n", "", width, "median", "min", "max");
  for (const auto& row : rows) {
    fmt::print("{:{}}  {:10.1f} {:10.1f} {:10.1f} {}{}\n", row.name, width, row.median(), row.least(), row.most(),
               row.unit, row.note.empty() ? "" : "  " + row.note);
  }
}

nlohmann::json bench_rows_json(const std::vector<BenchRow>& rows) {
  nlohmann::json all = nlohmann::json::object();
  for (const auto& row : rows) {
    all[row.name] = {{"unit", row.unit},
                     {"median", row.median()},
                     {"min", row.least()},
                     {"max", row.most()},
                     {"values", row.values}};
  }
  return all;
}

BenchRow measure_memory_copy(int rounds) {
  constexpr size_t kBytes = size_t{1} << 28;  // far more than any cache
  std::vector<char> from(kBytes, 'a'), to(kBytes, 'b');
  BenchRow row{"memory copy", "MB/s", {}};
  for (int round = 0; round < rounds; ++round) {
    const double start = now_s();
    std::memcpy(to.data(), from.data(), kBytes);
    row.values.push_back(static_cast<double>(kBytes) * 1e-6 / (now_s() - start));
    from[static_cast<size_t>(round)] = to[kBytes - 1];  // so that the copy is needed
  }
  return row;
}

}  // namespace athanor
