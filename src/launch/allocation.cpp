#include "launch/allocation.h"

#include <algorithm>
#include <filesystem>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"

namespace athanor::launch {
namespace {

struct SchedulerSigns {
  Scheduler scheduler;
  const char *name, *job, *hosts, *tool, *to_get_a_job;
};
constexpr SchedulerSigns kSchedulers[] = {
    {Scheduler::kSlurm, "slurm", "SLURM_JOB_ID", "SLURM_JOB_NODELIST", "sbatch", "salloc or sbatch"},
    {Scheduler::kPbs, "pbs", "PBS_JOBID", "PBS_NODEFILE", "qsub", "qsub"},
    {Scheduler::kLsf, "lsf", "LSB_JOBID", "LSB_HOSTS", "bsub", "bsub"},
};

// The scheduler that `wanted` or the environment names; null for none.
const SchedulerSigns* choose_scheduler(const std::string& wanted, const Surroundings& here) {
  const SchedulerSigns* found = nullptr;
  for (const auto& signs : kSchedulers) {
    const auto job = here.variable(signs.job);
    if (wanted == signs.name) {
      ATHANOR_CHECK(job,
                    "--scheduler {}: this is no job of it, since {} is not set; start it in a job ({}), or take "
                    "--scheduler local",
                    signs.name, signs.job, signs.to_get_a_job);
      return &signs;
    }
    if (wanted != "auto" || !job) continue;
    ATHANOR_CHECK(!found, "{} and {} are both set: there are two schedulers; choose one with --scheduler {} or {}",
                  found->job, signs.job, found->name, signs.name);
    found = &signs;
  }
  return found;
}

// Why there is no scheduler: a user of a login node may expect one.
std::string why_local(const std::string& wanted, const Surroundings& here) {
  if (wanted == "local") return "--scheduler local";
  for (const auto& signs : kSchedulers) {
    if (here.find_program(signs.tool))
      return fmt::format("{} is on the path, but this is no job of {}, since {} is not set", signs.tool, signs.name,
                         signs.job);
  }
  return "no job of a scheduler: SLURM_JOB_ID, PBS_JOBID and LSB_JOBID are not set";
}

// Slurm tells the tasks of each node always, but they are the user's wish only if a number was asked for.
void add_slots_of_slurm(std::vector<Host>& hosts, const Surroundings& here) {
  const auto counts = here.variable("SLURM_TASKS_PER_NODE");
  const bool asked = here.variable("SLURM_NTASKS") || here.variable("SLURM_NTASKS_PER_NODE");
  if (!counts || !asked) return;
  const auto slots = expand_counts(*counts, "SLURM_TASKS_PER_NODE");
  ATHANOR_CHECK(slots.size() == hosts.size(),
                "SLURM_TASKS_PER_NODE ({}) has {} hosts, and SLURM_JOB_NODELIST has {}; unset the first",
                printable(*counts), slots.size(), hosts.size());
  for (size_t i = 0; i < hosts.size(); ++i) hosts[i].slots = slots[i];
}

// One line for each host is what PBS writes if the number of ranks was not asked for (mpiprocs).
void forget_single_slots(std::vector<Host>& hosts) {
  if (!std::ranges::all_of(hosts, [](const Host& host) { return host.slots == 1; })) return;
  for (Host& host : hosts) host.slots = 0;
}

std::vector<Host> hosts_of_job(const SchedulerSigns& signs, const Surroundings& here) {
  const auto value = here.variable(signs.hosts);
  ATHANOR_CHECK(value, "{} is set, but {} is not, so the hosts of the job are not known; name them with --hostfile",
                signs.job, signs.hosts);
  std::vector<Host> hosts;
  if (signs.scheduler == Scheduler::kSlurm) {
    for (auto& name : expand_node_list(*value, signs.hosts)) hosts.push_back({std::move(name), 0});
    add_slots_of_slurm(hosts, here);
    return hosts;
  }
  if (signs.scheduler == Scheduler::kPbs) {
    ATHANOR_CHECK(std::filesystem::is_regular_file(*value),
                  "{} is {}, and there is no such file; name one with --hostfile", signs.hosts, printable(*value));
    hosts = parse_host_file(read_file(*value), fmt::format("{} ({})", signs.hosts, *value), RepeatedHost::kSlots);
  } else {
    std::string lines = *value;  // names with blanks between them
    std::ranges::replace(lines, ' ', '\n');
    hosts = parse_host_file(lines, signs.hosts, RepeatedHost::kSlots);
  }
  forget_single_slots(hosts);
  return hosts;
}

// Hosts of a file that are not those of the job, in which a launcher would hang or be refused.
void refuse_hosts_outside(const std::vector<Host>& hosts, const Allocation& job, const std::string& file) {
  std::unordered_set<std::string> known;  // with and without their domains
  for (const Host& host : job.hosts) known.insert({host.name, host.name.substr(0, host.name.find('.'))});
  for (const Host& host : hosts) {
    const bool is_known = known.contains(host.name) || known.contains(host.name.substr(0, host.name.find('.')));
    ATHANOR_CHECK(is_known, "{}: {} is not among the hosts of {} job {}, which has {} ({}); take it out of the file",
                  file, host.name, scheduler_name(job.scheduler), job.job, shown_hosts(job.hosts), job.hosts_from);
  }
}

void take_host_file(Allocation& allocation, const std::string& file, const Surroundings& here) {
  const bool is_of_pbs = here.variable("PBS_NODEFILE") == file;
  ATHANOR_CHECK(std::filesystem::is_regular_file(file), "--hostfile {}: there is no such file; name one with hosts",
                file);
  auto hosts = parse_host_file(read_file(file), file, is_of_pbs ? RepeatedHost::kSlots : RepeatedHost::kRefused);
  if (is_of_pbs) forget_single_slots(hosts);
  if (allocation.scheduler != Scheduler::kLocal) refuse_hosts_outside(hosts, allocation, file);
  const auto with_slots = std::ranges::count_if(hosts, [](const Host& host) { return host.slots > 0; });
  ATHANOR_CHECK(with_slots == 0 || with_slots == std::ssize(hosts),
                "{}: {} of {} hosts have slots; give slots=N to all of them, or to none", file, with_slots,
                hosts.size());
  allocation.hosts = std::move(hosts);
  allocation.hosts_from = file;
}

}  // namespace

const char* scheduler_name(Scheduler scheduler) {
  for (const auto& signs : kSchedulers)
    if (signs.scheduler == scheduler) return signs.name;
  return "local";
}

bool Allocation::is_this_machine(const Surroundings& here) const {
  return hosts.size() == 1 && (is_same_host(hosts[0].name, here.host) || hosts[0].name == "localhost");
}

void Allocation::keep_first(size_t number) {
  const auto end_of_used = hosts.begin() + static_cast<std::ptrdiff_t>(number);
  others.insert(others.begin(), end_of_used, hosts.end());
  hosts.erase(end_of_used, hosts.end());
}

Allocation find_allocation(const AllocationRequest& request, const Surroundings& here) {
  Allocation found;
  if (const SchedulerSigns* signs = choose_scheduler(request.scheduler, here)) {
    found.scheduler = signs->scheduler;
    found.job = *here.variable(signs->job);
    found.scheduler_from = fmt::format("{} is {}", signs->job, printable(found.job));
    found.hosts = hosts_of_job(*signs, here);
    found.hosts_from = signs->hosts;
  } else {
    found.scheduler_from = why_local(request.scheduler, here);
    found.hosts = {{here.host, 0}};
    found.hosts_from = "this machine";
  }
  if (!request.host_file.empty()) take_host_file(found, request.host_file, here);
  if (request.nodes) {
    const auto nodes = static_cast<size_t>(*request.nodes);
    ATHANOR_CHECK(nodes <= found.hosts.size(), "--nodes {}: there are only {} ({}); ask the scheduler for more nodes",
                  nodes, shown_hosts(found.hosts), found.hosts_from);
    if (nodes < found.hosts.size()) found.hosts_from += fmt::format(", the first {} (--nodes)", nodes);
    found.keep_first(nodes);
  }
  return found;
}

}  // namespace athanor::launch
