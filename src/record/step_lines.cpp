#include "record/step_lines.h"

#include <deque>

#include "base/bounded_json.h"
#include "base/error.h"
#include "base/file_reader.h"
#include "base/text.h"
#include "record/json_lines.h"

namespace athanor::inline record {
namespace fs = std::filesystem;
using nlohmann::json;
namespace {

constexpr uint64_t kNewest = 1 << 18, kLastLine = uint64_t{4} << 20, kLastNumbers = uint64_t{16} << 20;  // bytes

}  // namespace

std::optional<RecordedNumbers> step_numbers_of(std::string_view line) {
  const json read = read_json(line);
  for (const char* name : {"step", "loss", "grad_norm"})
    if (!read.is_object() || !read.contains(name) || !read[name].is_number()) return std::nullopt;
  return RecordedNumbers{read["step"], read["loss"], read["grad_norm"]};
}

std::string last_step_numbers(const fs::path& metrics, size_t most) {
  std::deque<std::string> last;
  try {
    for_each_line(metrics, begin_of_last(metrics, kLastNumbers), [&](std::string_view line) {
      const auto read = step_numbers_of(line);
      if (!read) return;  // the first may be a part of a line
      last.push_back(json{{"step", read->step}, {"loss", read->loss}, {"grad_norm", read->grad_norm}}.dump());
      if (last.size() > most) last.pop_front();
    });
  } catch (const IoError&) {
    return "";
  }
  return join(std::vector<std::string>(last.begin(), last.end()), "\n");
}

void for_each_newest_step(const fs::path& metrics, const std::function<void(int64_t step, int64_t attempt)>& take) {
  for_each_object(metrics, begin_of_last(metrics, kNewest), [&](json&& line) {
    if (const int64_t step = integer_in(line, "step"); step > 0) take(step, integer_in(line, "attempt"));
  });
}

std::optional<double> time_of_first_step(const fs::path& metrics, int64_t attempt) {
  std::optional<double> first;
  for_each_object(metrics, 0, [&](json&& line) {
    if (first || integer_in(line, "attempt") <= attempt || integer_in(line, "step") <= 0) return;
    if (const double time = number_in(line, "time", -1); time >= 0) first = time;
  });
  return first;
}

nlohmann::ordered_json last_step_line(const fs::path& metrics) {
  const FileReader reader(metrics);
  const uint64_t begin = reader.size() > kLastLine ? reader.size() - kLastLine : 0;
  std::string text(reader.size() - begin, '\0');
  text.resize(reader.read_up_to(begin, text.data(), text.size()));
  for (size_t end = text.rfind('\n'); end != text.npos && end > 0;) {
    const size_t before = text.rfind('\n', end - 1);
    const size_t first = before == text.npos ? 0 : before + 1;
    auto line = read_ordered_json(text.substr(first, end - first));
    if (line.is_object()) return line;
    if (before == text.npos) break;
    end = before;
  }
  return nlohmann::ordered_json::object();
}

size_t bytes_up_to_step(std::string_view text, int64_t step) {
  size_t end = text.rfind('\n') + 1;  // npos + 1 is 0: there is no whole line
  while (end > 0) {
    const size_t before = end >= 2 ? text.rfind('\n', end - 2) : std::string_view::npos;
    const size_t begin = before == std::string_view::npos ? 0 : before + 1;
    const json line = read_json(text.substr(begin, end - 1 - begin));
    constexpr int64_t kNone = -1;
    const int64_t its_step = line.is_object() ? integer_in(line, "step", kNone) : kNone;
    if (its_step != kNone && its_step <= step) break;
    end = begin;
  }
  return end;
}

}  // namespace athanor::inline record
