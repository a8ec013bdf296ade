#include "smoke/smoke_trace.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <iterator>

#include "base/error.h"
#include "base/text.h"

namespace athanor::inline smoke {
namespace {

constexpr std::string_view kTraceTitle = "athanor-smoke-trace 1";

template <class Number>
bool reads_as(std::string_view text, Number& number, int base = 10) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  return error == std::errc() && end == text.data() + text.size();
}

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  for (size_t at = 0; at < line.size();) {
    const size_t end = std::min(line.find(' ', at), line.size());
    if (end > at) words.push_back(line.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

// Reads a trace line by line; each function returns false for a line that is not as it should be.
class TraceReader {
 public:
  explicit TraceReader(std::string_view text) : rest_(text) {}

  bool read() {
    if (next() != kTraceTitle) return false;
    while (!ended_) {
      if (!read_line(next())) return false;
    }
    return rest_.empty();
  }
  size_t line() const { return line_; }
  SmokeTrace take() { return std::move(trace_); }

 private:
  std::string_view next() {
    ++line_;
    const size_t end = rest_.find('\n');
    const std::string_view line = rest_.substr(0, end);
    rest_ = end == std::string_view::npos ? std::string_view() : rest_.substr(end + 1);
    return line;
  }

  bool read_line(std::string_view line) {
    const auto words = words_of(line);
    if (words.size() < 2) return false;
    if (words[0] == "fact") return read_fact(line.substr(5));
    if (words[0] == "model") {
      trace_.models.push_back({std::string(words[1]), {}});
      return words.size() == 2;
    }
    if (words[0] == "values") return words.size() == 2 && read_values(words[1]);
    if (words[0] == "end") {
      size_t count = 0;
      ended_ = true;
      return words.size() == 2 && reads_as(words[1], count) && count == trace_.num_tensors();
    }
    return read_tensor(words);
  }

  bool read_fact(std::string_view fact) {
    const size_t blank = fact.find(' ');
    if (blank == std::string_view::npos) return false;
    trace_.facts.emplace_back(fact.substr(0, blank), fact.substr(blank + 1));
    return true;
  }

  bool read_tensor(const std::vector<std::string_view>& words) {
    TracedTensor tensor;
    if (words.size() != 6 || trace_.models.empty() || !reads_as(words[0], tensor.step)) return false;
    tensor.phase = words[1], tensor.name = words[2], tensor.shape = words[3], tensor.type = words[4];
    tensor.hash = words[5];
    trace_.models.back().tensors.push_back(std::move(tensor));
    return true;
  }

  bool read_values(std::string_view count_text) {
    size_t count = 0;
    if (!reads_as(count_text, count) || count > rest_.size()) return false;
    while (trace_.values.size() < count) {
      const auto words = words_of(next());
      if (words.empty() || words.size() > count - trace_.values.size()) return false;
      for (const std::string_view word : words) {
        uint64_t bits = 0;
        if (!reads_as(word, bits, 16)) return false;
        trace_.values.push_back(std::bit_cast<double>(bits));
      }
    }
    return true;
  }

  std::string_view rest_;
  size_t line_ = 0;
  bool ended_ = false;
  SmokeTrace trace_;
};

}  // namespace

std::string TracedPlace::text() const { return fmt::format("{}:{}:{}:{}", model, step, phase, name); }

TracedPlace TracedPlace::parse(const std::string& text) {
  std::vector<std::string> parts;
  size_t at = 0;
  while (parts.size() < 3 && text.find(':', at) != std::string::npos) {
    const size_t end = text.find(':', at);
    parts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  parts.push_back(text.substr(at));
  TracedPlace place;
  const bool is_whole = parts.size() == 4 && std::ranges::none_of(parts, &std::string::empty);
  ATHANOR_CHECK(is_whole && reads_as(std::string_view(parts[1]), place.step) && place.step >= 0,
                "--trace-tensor {}: expected MODEL:STEP:PHASE:NAME, such as dense:3:forward.0:model.layers.1.mlp; "
                "`athanor smoke --trace FILE` lists all",
                printable(text));
  place.model = parts[0], place.phase = parts[2], place.name = parts[3];
  return place;
}

size_t SmokeTrace::num_tensors() const {
  size_t count = 0;
  for (const TracedModel& model : models) count += model.tensors.size();
  return count;
}

std::string text_of(const SmokeTrace& trace) {
  std::string text = fmt::format("{}\n", kTraceTitle);
  const auto out = std::back_inserter(text);
  for (const auto& [name, value] : trace.facts) fmt::format_to(out, "fact {} {}\n", name, value);
  for (const TracedModel& model : trace.models) {
    fmt::format_to(out, "model {}\n", model.name);
    for (const TracedTensor& t : model.tensors)
      fmt::format_to(out, "{} {} {} {} {} {}\n", t.step, t.phase, t.name, t.shape, t.type, t.hash);
  }
  if (!trace.values.empty()) fmt::format_to(out, "values {}\n", trace.values.size());
  constexpr size_t kOnLine = 8;
  for (size_t i = 0; i < trace.values.size(); ++i) {
    const bool ends_line = (i + 1) % kOnLine == 0 || i + 1 == trace.values.size();
    fmt::format_to(out, "{:016x}{}", std::bit_cast<uint64_t>(trace.values[i]), ends_line ? '\n' : ' ');
  }
  fmt::format_to(out, "end {}\n", trace.num_tensors());
  return text;
}

SmokeTrace parse_trace(std::string_view text, const std::string& name) {
  TraceReader reader(text);
  ATHANOR_CHECK_DATA(reader.read(), "{}:{}: this is no line of a trace of `athanor smoke`, or the trace is cut off",
                     name, reader.line());
  return reader.take();
}

}  // namespace athanor::inline smoke
