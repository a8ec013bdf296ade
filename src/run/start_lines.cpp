#include "run/start_lines.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "arch/inventory.h"
#include "base/build_info.h"
#include "base/files.h"
#include "base/log.h"
#include "base/process.h"
#include "base/start_processors.h"
#include "base/text.h"
#include "comm/short_texts.h"
#include "kernels/matmul_path.h"
#include "layout/optimizer_lines.h"
#include "memory/rank_share.h"

namespace athanor::inline run {
namespace {

// Collective.
void say_threads(comm::World& world, const ThreadShare& own) {
  const auto threads = gather_threads(world, own.threads);
  const int64_t usual = usual_threads(threads);
  const std::string fewer = describe_fewer_threads(threads, world.hosts());
  log::info("{}", describe_threads(own, world.size() > 1 && fewer.empty()));
  if (fewer.empty()) return;
  log::warn_on_all("{}", fewer);
  if (own.threads < usual && world.rank() > 0)
    log::warn("this rank computes with {} of the usual {} threads ({}): each step waits for it", own.threads, usual,
              own.why);
}

}  // namespace

void say_where_it_runs(comm::World& world) {
  const std::vector<std::string> cpus = comm::all_gather_texts(world.all(), cpu_of_host());
  for (const auto& line : start_facts(world.hosts(), world.network(), cpus[0])) log::info("{}", line);
  if (const std::string others = describe_other_cpus(cpus, world.hosts()); !others.empty())
    log::warn_on_all("{}", others);
}

void say_what_starts(const TrainState& state, const ThreadShare& threads) {
  const RunConfig& config = state.config;
  comm::World& world = state.model.mesh.world();
  log::info("{}: {} parameters ({} active for a token)", config.train.run_dir,
            format_thousands(static_cast<double>(count_parameters(config.model))),
            format_thousands(static_cast<double>(count_active_parameters(config.model))));
  for (const std::string& line : describe_optimizers(state.run_config)) log::info("{}", line);
  say_threads(world, threads);
  if (world.size() > 1) log::info("{}", describe_layout(state));
  if (state.model.mesh.layout().microbatches() < state.model.mesh.layout().pipeline()) {
    log::warn_on_all(
        "{} microbatches do not fill {} pipeline ranks, which wait {:.0f}% of the time: raise "
        "train.global_batch_size, or lower train.micro_batch_size or parallelism.pipeline_parallel_degree",
        state.model.mesh.layout().microbatches(), state.model.mesh.layout().pipeline(),
        100 * check_schedule(state.model.pipeline.schedule()).bubble);
  }
}

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

// Consecutive ranks of one host.
struct Group {
  size_t begin, end;
};

std::vector<Group> groups_of(const std::vector<std::string>& hosts) {
  std::vector<Group> groups;
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    if (rank == 0 || hosts[rank] != hosts[rank - 1]) groups.push_back({rank, rank});
    groups.back().end = rank + 1;
  }
  return groups;
}

// Returns "node1 (0)" or "node2 (4 to 7)".
std::string name_of(const Group& group, const std::vector<std::string>& hosts) {
  const std::string& host = hosts[group.begin];
  if (group.end - group.begin == 1) return fmt::format("{} ({})", host, group.begin);
  return fmt::format("{} ({} to {})", host, group.begin, group.end - 1);
}

std::string count_of_ranks(size_t count) { return fmt::format("{} rank{}", count, count == 1 ? "" : "s"); }

}  // namespace

std::string scheduler_job() {
  for (const auto& [name, scheduler] : {std::pair{"SLURM_JOB_ID", "Slurm"}, {"PBS_JOBID", "PBS"}}) {
    if (const char* id = std::getenv(name)) return fmt::format("{} job {}", scheduler, id);
  }
  return "";
}

std::string describe_hosts(const std::vector<std::string>& hosts) {
  const auto groups = groups_of(hosts);
  std::vector<std::string> names;
  names.reserve(groups.size());
  for (const Group& group : groups) names.push_back(name_of(group, hosts));
  const size_t num_hosts = std::set<std::string>(hosts.begin(), hosts.end()).size();
  return fmt::format("{} on {} host{}: {}", count_of_ranks(hosts.size()), num_hosts, num_hosts == 1 ? "" : "s",
                     join_first(names, 4));
}

std::string model_of_cpu() { return fmt::format("{} with {}", cpu_model(), kernels::describe_instructions()); }

std::string cpu_of_host() {
  const int processors = machine_cpu_count();
  return fmt::format("{}; {} processor{}", model_of_cpu(), processors, processors == 1 ? "" : "s");
}

std::string describe_other_cpus(const std::vector<std::string>& cpus, const std::vector<std::string>& hosts) {
  std::vector<std::string> others;
  size_t num_ranks = 0;
  for (const Group& group : groups_of(hosts)) {
    if (cpus[group.begin] == cpus[0]) continue;
    others.push_back(fmt::format("{}: {}", name_of(group, hosts), cpus[group.begin]));
    num_ranks += group.end - group.begin;
  }
  if (others.empty()) return "";
  return fmt::format("{} other CPUs than the first rank, and each step waits for the slowest: {}",
                     num_ranks == 1 ? "1 rank has" : fmt::format("{} ranks have", num_ranks),
                     join_first(others, 4, "; "));
}

std::vector<std::string> start_facts(const std::vector<std::string>& hosts, const std::string& network,
                                     const std::string& cpu) {
  const BuildInfo& build = build_info();
  std::string program = fmt::format("athanor {} ({}), libtorch {}", build.version, build.commit, build.libtorch);
  if (!network.empty()) program += ", " + network;
  std::string where = describe_hosts(hosts);
  if (const std::string job = scheduler_job(); !job.empty()) where = job + ": " + where;
  const int own = start_processors().count;
  std::string processors;
  if (own < machine_cpu_count())
    processors = fmt::format(", {} of them for {}", own, hosts.size() == 1 ? "this process" : "the first rank");
  return {program, "command: " + command_line(), where, fmt::format("CPU: {}{}", cpu, processors)};
}

}  // namespace athanor::inline run
