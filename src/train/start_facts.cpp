#include "train/start_facts.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "base/build_info.h"
#include "base/files.h"
#include "base/text.h"
#include "kernels/matmul_path.h"

namespace athanor {
namespace {

// The words of this process's command, each in quotes if a shell would cut it.
std::string command_line() {
  std::string line;
  std::string words;
  try {
    words = read_file("/proc/self/cmdline");
  } catch (const IoError&) {
    return "unknown";
  }
  for (size_t begin = 0; begin < words.size();) {
    const size_t end = std::min(words.find('\0', begin), words.size());
    const std::string word = words.substr(begin, end - begin);
    const bool is_plain = !word.empty() && word.find_first_of(" \t\n'\"\\$&|;<>()*?[]{}~#`!") == std::string::npos;
    line += (line.empty() ? "" : " ") + (is_plain ? word : "'" + word + "'");
    begin = end + 1;
  }
  return line;
}

}  // namespace

std::string scheduler_job() {
  for (const auto& [name, scheduler] : {std::pair{"SLURM_JOB_ID", "Slurm"}, {"PBS_JOBID", "PBS"}}) {
    if (const char* id = std::getenv(name)) return fmt::format("{} job {}", scheduler, id);
  }
  return "";
}

std::string describe_hosts(const std::vector<std::string>& hosts) {
  std::vector<std::string> groups;
  for (size_t begin = 0, end; begin < hosts.size(); begin = end) {
    for (end = begin; end < hosts.size() && hosts[end] == hosts[begin];) ++end;
    groups.push_back(end - begin == 1 ? fmt::format("{} ({})", hosts[begin], begin)
                                      : fmt::format("{} ({} to {})", hosts[begin], begin, end - 1));
  }
  const size_t num_hosts = std::set<std::string>(hosts.begin(), hosts.end()).size();
  return fmt::format("{} rank{} on {} host{}: {}", hosts.size(), hosts.size() == 1 ? "" : "s", num_hosts,
                     num_hosts == 1 ? "" : "s", join_first(groups, 4));
}

std::vector<std::string> start_facts(const std::vector<std::string>& hosts, const std::string& network) {
  const BuildInfo& build = build_info();
  std::string program = fmt::format("athanor {} ({}), libtorch {}", build.version, build.commit, build.libtorch);
  if (!network.empty()) program += ", " + network;
  std::string where = describe_hosts(hosts);
  if (const std::string job = scheduler_job(); !job.empty()) where = job + ": " + where;
  return {program + ", CPU: " + kernels::describe_cpu(), "command: " + command_line(), where};
}

}  // namespace athanor
