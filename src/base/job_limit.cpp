#include "base/job_limit.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <ctime>

namespace athanor {
namespace {

std::string text_of_variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

// Returns the text after `key`, up to `end` or the end of the line; "" if `key` does not occur.
std::string value_after(const std::string& text, const std::string& key, char end) {
  const auto at = text.find(key);
  if (at == std::string::npos) return "";
  const auto begin = at + key.size();
  return text.substr(begin, std::min(text.find(end, begin), text.find('\n', begin)) - begin);
}

// Returns a local time as seconds since 1970.
std::optional<double> time_of(const std::string& text, const char* format) {
  std::tm time{};
  if (text.empty() || !::strptime(text.c_str(), format, &time)) return {};
  time.tm_isdst = -1;
  return static_cast<double>(std::mktime(&time));
}

// Returns the seconds of "36:00:00" or "129600".
std::optional<double> seconds_of(const std::string& text) {
  double seconds = 0;
  const char *at = text.data(), *const end = at + text.size();
  for (bool more = true; more; ++at) {
    unsigned count = 0;
    const auto [next, error] = std::from_chars(at, end, count);
    if (error != std::errc()) return {};
    seconds = 60 * seconds + count;
    more = next != end && *next == ':';
    at = next;
  }
  return seconds;
}

std::optional<JobLimit> slurm_limit(const std::function<std::string(const std::string&)>& run) {
  const std::string id = text_of_variable("SLURM_JOB_ID");
  if (!is_job_id(id)) return {};
  if (const auto end = seconds_of(text_of_variable("SLURM_JOB_END_TIME"))) return JobLimit{"Slurm job " + id, *end};
  const std::string job = run("scontrol -o show job '" + id + "'");
  if (value_after(job, "TimeLimit=", ' ') == "UNLIMITED") return {};
  const auto end = time_of(value_after(job, "EndTime=", ' '), "%Y-%m-%dT%H:%M:%S");
  return end ? std::optional(JobLimit{"Slurm job " + id, *end}) : std::nullopt;
}

std::optional<JobLimit> pbs_limit(const std::function<std::string(const std::string&)>& run) {
  const std::string id = text_of_variable("PBS_JOBID");
  if (!is_job_id(id)) return {};
  const std::string job = run("qstat -f '" + id + "'");
  const auto began = time_of(value_after(job, "stime = ", '\n'), "%a %b %d %H:%M:%S %Y");
  const auto limit = seconds_of(value_after(job, "Resource_List.walltime = ", '\n'));
  return began && limit ? std::optional(JobLimit{"PBS job " + id, *began + *limit}) : std::nullopt;
}

}  // namespace

// The id goes into a command.
bool is_job_id(const std::string& id) {
  return !id.empty() && std::ranges::all_of(id, [](unsigned char c) {
    return std::isalnum(c) || c == '.' || c == '_' || c == '-' || c == '[' || c == ']';
  });
}

std::string output_of(const std::string& command) {
  std::string output;
  FILE* pipe = ::popen(("timeout 10 " + command + " 2>/dev/null </dev/null").c_str(), "r");
  if (!pipe) return output;
  char buffer[4096];
  for (size_t got; (got = std::fread(buffer, 1, sizeof(buffer), pipe)) > 0;) output.append(buffer, got);
  return ::pclose(pipe) == 0 ? output : "";
}

std::optional<JobLimit> find_job_limit(const std::function<std::string(const std::string&)>& run) {
  if (const auto limit = slurm_limit(run)) return limit;
  return pbs_limit(run);
}

}  // namespace athanor
