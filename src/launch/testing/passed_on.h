#pragma once
// For tests: a log in memory that is classified, and the ways in which others pass the lines of a log on.

#include <fmt/core.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launch/classify.h"

namespace athanor::launch {

inline const SignatureSet& signatures() {
  static const SignatureSet set = SignatureSet::load();
  return set;
}

inline Classification classified(const std::string& log, std::optional<int> code, const JobHosts& job = {}) {
  size_t at = 0;
  const auto read = [&](char* out, size_t capacity) {
    const size_t size = log.copy(out, capacity, at);
    at += size;
    return size;
  };
  return classify_log(read, code, job, signatures());
}

// How lines are passed on. Each takes the number of a line and its text.
using Mutation = std::function<std::string(size_t, const std::string&)>;

inline Mutation before(const std::string& prefix) {
  return [prefix](size_t, const std::string& line) { return prefix + line + "\n"; };
}

inline const std::vector<std::pair<const char*, Mutation>>& mutations() {
  static const std::vector<std::pair<const char*, Mutation>> all{
      {"srun --label", before("3: ")},
      {"srun --label, in columns", before("  3: ")},
      {"mpirun --tag-output", before("[1,3]<stdout>:")},
      {"mpirun --output tag", before("[1,3]<stderr>: ")},
      {"mpirun --output tag-detailed", before("[1,3][n9:8812]<stdout>: ")},
      {"mpiexec -prepend-rank", before("[3] ")},
      {"torchrun, rank", before("[rank3]: ")},
      {"torchrun, role", before("[default3]:")},
      {"a date with a zone", before("2026-01-05T11:20:17+01:00 ")},
      {"a time", before("11:20:17 ")},
      {"a time in brackets", before("[11:20:17.123] ")},
      {"ctime", before("Thu Nov  5 11:20:17 2026 ")},
      {"syslog", before("Nov  5 11:20:17 n9 train[8812]: ")},
      {"syslog without a program", before("Nov  5 11:20:17 n9 ")},
      {"a logger", before("INFO train.loop: ")},
      {"a logger with a place", before("INFO     train.loop:trainer.py:12 ")},
      {"four spaces", before("    ")},
      {"tabs", before("\t\t")},
      {"colours", [](size_t, const std::string& line) { return "\x1b[1;31m" + line + "\x1b[0m\n"; }},
      {"CRLF", [](size_t, const std::string& line) { return line + "\r\n"; }},
      {"syslog and a label", before("Nov  5 11:20:17 n9 train[8812]: [1,3]<stdout>:")},
      {"a date and a logger", before("2026-01-05 11:20:17,120 INFO train: ")},
      {"a label and colours",
       [](size_t, const std::string& line) { return "\x1b[2m 3:\x1b[0m \x1b[31m" + line + "\x1b[0m\r\n"; }},
      {"dates that advance", [](size_t number, const std::string& line) {
         return fmt::format("2026-01-05T11:{:02}:{:02}Z {}\n", number / 60 % 60, number % 60, line);
       }}};
  return all;
}

inline std::string mutated(const std::string& log, const Mutation& mutate) {
  std::string result;
  std::string_view rest = log;
  for (size_t number = 0; !rest.empty(); ++number) result += mutate(number, std::string(next_line(rest)));
  return result;
}

}  // namespace athanor::launch
