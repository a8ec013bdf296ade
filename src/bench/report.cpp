#include "bench/report.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>

#include "base/files.h"
#include "ops/matmul_paths.h"
#include "ops/tensor.h"

namespace athanor::bench {
namespace {

constexpr int kNameWidth = 28;

std::string rate_text(const Result& result) {
  if (result.work == 0) return "";
  if (result.limit.unit == "bytes") return fmt::format("{:.1f} GB/s", result.rate() * 1e-9);
  return fmt::format("{:.1f} GFLOP/s", result.rate() * 1e-9);
}

nlohmann::json object_of(const Result& result) {
  nlohmann::json object = result.shape.is_object() ? result.shape : nlohmann::json::object();
  const auto [least, most] = std::minmax_element(result.seconds.begin(), result.seconds.end());
  object["name"] = result.name;
  object["median_s"] = result.median_s();
  object["min_s"] = *least;
  object["max_s"] = *most;
  object["rounds"] = result.seconds.size();
  object["limit"] = nullptr;
  object["limit_share"] = nullptr;
  if (!result.note.empty()) object["note"] = result.note;
  if (result.work > 0) {
    object["work"] = result.work;
    object["unit"] = result.limit.unit + "/s";
    object["rate"] = result.rate();
  }
  if (result.work > 0 && result.limit.rate > 0) {
    object["limit"] = result.limit.rate;
    object["limit_is"] = result.limit.what;
    object["limit_share"] = result.limit_share();
  }
  return object;
}

}  // namespace

Limit gemm_limit(at::ScalarType dtype, const std::vector<Subject>& subjects, const std::vector<Samples>& samples,
                 size_t first) {
  const char* type = ops::type_name(dtype);
  const auto asked = ops::asked_matmul_path();
  if (!asked || *asked == ops::MatmulPath::kLibrary)
    return {fmt::format("{} GEMM peak", type), "FLOP", best_rate(subjects, samples, first, kGemmYardsticks)};
  return {fmt::format("{} GEMM peak of {}", type, name_of(ops::all_on(*asked).of(dtype).grouped)), "FLOP",
          best_rate(subjects, samples, first + kGemmYardsticks - 1, 1)};
}

void Report::begin(const std::string& title) {
  fmt::print("\n{}\n{:{}} {:>10} {:>10} {:>10} {:>16} {:>9}\n", title, "", kNameWidth, "median ms", "min", "max",
             "rate", "of limit");
  std::fflush(stdout);
}

void Report::add(Result result) {
  const auto [least, most] = std::minmax_element(result.seconds.begin(), result.seconds.end());
  fmt::print("{:{}} {:10.3f} {:10.3f} {:10.3f} {:>16} {:>9}{}{}\n", result.name, kNameWidth, 1e3 * result.median_s(),
             1e3 * *least, 1e3 * *most, rate_text(result),
             result.limit.rate > 0 && result.work > 0 ? fmt::format("{:.3f}", result.limit_share()) : "",
             result.note.empty() ? "" : "  ", result.note);
  std::fflush(stdout);
  results_.push_back(std::move(result));
}

void Report::add(const Subject& subject, const Samples& samples, const nlohmann::json& shape, const Limit& limit,
                 const std::string& note) {
  add({subject.name, shape, samples.total, subject.work(), limit, note});
  if (subject.parts.size() < 2) return;
  for (size_t p = 0; p < subject.parts.size(); ++p) {
    add({subject.name + ", " + subject.parts[p].name, shape, samples.parts[p], subject.parts[p].work, limit});
  }
}

void Report::say(const std::string& line) const {
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

void Report::write(const std::string& file) const {
  if (file.empty()) return;
  nlohmann::json list = nlohmann::json::array();
  for (const Result& result : results_) list.push_back(object_of(result));
  write_file_atomically(file, list.dump(1) + "\n");
}

}  // namespace athanor::bench
