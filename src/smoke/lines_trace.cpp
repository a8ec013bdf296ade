#include "smoke/lines_trace.h"

#include <bit>
#include <ios>
#include <sstream>

#include "base/error.h"

namespace athanor::inline smoke {
namespace {

// Each function that reads returns false at what is not as it should be.
class LinesTrace {
 public:
  explicit LinesTrace(std::string_view text) : text_(std::string(text)) {}

  bool read() {
    std::string line;
    if (!next(line) || line != "athanor-smoke-trace 1") return false;
    while (!ended_)
      if (!next(line) || !read_line(line)) return false;
    return text_.peek() == std::istringstream::traits_type::eof();
  }
  size_t line() const { return line_; }
  SmokeTrace take() { return std::move(trace_); }

 private:
  bool next(std::string& line) {
    ++line_;
    return static_cast<bool>(std::getline(text_, line));
  }

  bool read_line(const std::string& line) {
    std::istringstream words(line);
    std::string first, name, value;
    words >> first;
    if (first == "fact") {
      if (!(words >> name) || !std::getline(words.ignore(1), value)) return false;
      trace_.facts.emplace_back(name, value);
      return true;
    }
    if (first == "model" && words >> name) {
      trace_.models.push_back({name, {}});
    } else if (size_t count = 0; first == "values" && words >> count) {
      if (!read_values(count)) return false;
    } else if (first == "end" && words >> count) {
      ended_ = true;
      if (count != trace_.num_tensors()) return false;
    } else if (!read_tensor(words = std::istringstream(line))) {
      return false;
    }
    return !(words >> value);  // nothing follows
  }

  bool read_tensor(std::istringstream& words) {
    TracedTensor t;
    if (trace_.models.empty() || !(words >> t.step >> t.phase >> t.name >> t.shape >> t.type >> t.hash)) return false;
    trace_.models.back().tensors.push_back(t);
    return true;
  }

  bool read_values(size_t count) {
    constexpr size_t kOnLine = 8;
    line_ += (count + kOnLine - 1) / kOnLine;
    for (uint64_t bits = 0; trace_.values.size() < count && text_ >> std::hex >> bits;)
      trace_.values.push_back(std::bit_cast<double>(bits));
    return trace_.values.size() == count && text_.get() == '\n';
  }

  std::istringstream text_;
  size_t line_ = 0;
  bool ended_ = false;
  SmokeTrace trace_;
};

}  // namespace

SmokeTrace parse_lines_trace(std::string_view text, const std::string& name) {
  LinesTrace trace(text);
  ATHANOR_CHECK_DATA(trace.read(), "{}:{}: this is no line of a trace of `athanor smoke`, or the trace is cut off",
                     name, trace.line());
  return trace.take();
}

}  // namespace athanor::inline smoke
