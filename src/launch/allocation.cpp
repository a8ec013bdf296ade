#include "launch/allocation.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <sstream>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "launch/surroundings.h"

namespace athanor::launch {
namespace {

// Jobs of systems whose lists of hosts `athanor launch` does not read: one host would be taken for all of them.
//
// Sources: the manuals of Flux (flux-environment), Grid Engine (sge_pe), Cobalt, OAR, LoadLeveler, Fujitsu's job
// operation software (pjsub), HTCondor (parallel universe), AWS Batch, Kubeflow's training operator and the MPI
// operator of Kubernetes.

struct OtherJob {
  const char *system, *sign;  // a variable that only its jobs have
  const char* num_nodes;      // a variable with the number of nodes; "": there is none
  bool is_host_file;          // the sign names a file with a line for each host, or for each slot
  const char* remedy;
};
constexpr OtherJob kOtherJobs[] = {
    {"Flux", "FLUX_JOB_ID", "FLUX_JOB_NNODES", false,
     "write them with `flux hostlist --expand | tr ' ' '\\n' >hosts`, and give --hostfile hosts"},
    {"Flux", "FLUX_URI", "", false,
     "write them with `flux hostlist --expand | tr ' ' '\\n' >hosts`, and give --hostfile hosts"},
    {"Grid Engine", "PE_HOSTFILE", "", true,
     "write them with `awk '{print $1}' $PE_HOSTFILE >hosts`, and give --hostfile hosts"},
    {"Cobalt", "COBALT_NODEFILE", "", true, "give --hostfile $COBALT_NODEFILE"},
    {"OAR", "OAR_NODEFILE", "", true, "write them with `sort -u $OAR_NODEFILE >hosts`, and give --hostfile hosts"},
    {"LoadLeveler", "LOADL_HOSTFILE", "", true,
     "write them with `sort -u $LOADL_HOSTFILE >hosts`, and give --hostfile hosts"},
    {"the MPI operator of Kubernetes", "OMPI_MCA_orte_default_hostfile", "", true,
     "give --hostfile $OMPI_MCA_orte_default_hostfile"},
    {"the MPI operator of Kubernetes", "I_MPI_HYDRA_HOST_FILE", "", true, "give --hostfile $I_MPI_HYDRA_HOST_FILE"},
    {"the MPI operator of Kubernetes", "HYDRA_HOST_FILE", "", true, "give --hostfile $HYDRA_HOST_FILE"},
    {"Fujitsu's scheduler", "PJM_JOBID", "PJM_NODE", false, "write them into a file, and give --hostfile FILE"},
    {"HTCondor", "_CONDOR_NPROCS", "_CONDOR_NPROCS", false, "write them into a file, and give --hostfile FILE"},
    {"AWS Batch", "AWS_BATCH_JOB_NUM_NODES", "AWS_BATCH_JOB_NUM_NODES", false,
     "write the addresses of its nodes into a file, and give --hostfile FILE"},
    {"Kubeflow", "PET_NNODES", "PET_NNODES", false,
     "take an MPIJob, whose launcher has them in /etc/mpi/hostfile, and give --hostfile /etc/mpi/hostfile"},
};

// Hosts of a file, by the first word of each line; 0 if it cannot be read.
size_t num_hosts_in(const std::string& file) {
  std::set<std::string> names;
  try {
    std::istringstream lines(read_file(file));
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::string name;
      if (words >> name && !name.starts_with('#')) names.insert(name);
    }
  } catch (const Error&) {
    return 0;
  }
  return names.size();
}

// "2", "2:4" (at least two) or nothing, if the number is not told.
std::string num_nodes_of(const OtherJob& job, const std::string& sign, const Surroundings& here) {
  if (job.is_host_file) {
    const size_t number = num_hosts_in(sign);
    return number > 0 ? std::to_string(number) : "";
  }
  return *job.num_nodes ? here.variable(job.num_nodes).value_or("") : "";
}

// Refuses a start on this machine alone if the environment names a job of such a system, unless it also tells that the
// job has one node. @throws ConfigError with what to give instead.
void refuse_other_job(const Surroundings& here) {
  for (const OtherJob& job : kOtherJobs) {
    const auto sign = here.variable(job.sign);
    if (!sign) continue;
    const std::string number = num_nodes_of(job, *sign, here);
    if (number == "1") return;
    fail<ConfigError>(
        "{} is {}: this is a job of {} with {}, whose list of hosts is not read here; {}, or take --scheduler local "
        "for "
        "this machine alone",
        job.sign, printable(sign->substr(0, 80)), job.system,
        number.empty() ? "an unknown number of nodes" : printable(number.substr(0, 20)) + " nodes", job.remedy);
  }
}

struct SchedulerSigns {
  Scheduler scheduler;
  const char *name, *job, *tool, *to_get_a_job;
};
constexpr SchedulerSigns kSchedulers[] = {
    {Scheduler::kSlurm, "slurm", "SLURM_JOB_ID", "sbatch", "salloc or sbatch"},
    {Scheduler::kPbs, "pbs", "PBS_JOBID", "qsub", "qsub"},
    {Scheduler::kLsf, "lsf", "LSB_JOBID", "bsub", "bsub"},
};

// The scheduler that `wanted` or the environment names; null for none.
const SchedulerSigns* choose_scheduler(const std::string& wanted, const Surroundings& here) {
  const SchedulerSigns* chosen = nullptr;
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
    ATHANOR_CHECK(!chosen, "{} and {} are both set: there are two schedulers; choose one with --scheduler {} or {}",
                  chosen->job, signs.job, chosen->name, signs.name);
    chosen = &signs;
  }
  return chosen;
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
// @param suffix  that of the variables of a component: "_HET_GROUP_1"; "" in a usual job.
void add_slots_of_slurm(std::vector<Host>& hosts, const std::string& suffix, const Surroundings& here) {
  const std::string name = "SLURM_TASKS_PER_NODE" + suffix;
  const auto counts = here.variable(name);
  const bool asked = here.variable("SLURM_NTASKS" + suffix) || here.variable("SLURM_NTASKS_PER_NODE" + suffix);
  if (!counts || !asked) return;
  const auto slots = expand_counts(*counts, name);
  ATHANOR_CHECK(slots.size() == hosts.size(), "{} ({}) has {} hosts, and SLURM_JOB_NODELIST{} has {}; unset the first",
                name, printable(*counts), slots.size(), suffix, hosts.size());
  for (size_t i = 0; i < hosts.size(); ++i) hosts[i].slots = slots[i];
}

// @param missing  "PBS_NODEFILE is not".
std::string no_hosts_text(const std::string& sign, const std::string& missing) {
  return fmt::format("{} is set, but {}, so the hosts of the job are not known; name them with --hostfile", sign,
                     missing);
}

std::vector<Host> slurm_hosts(const std::string& suffix, const Surroundings& here) {
  const std::string name = "SLURM_JOB_NODELIST" + suffix;
  const auto list = here.variable(name);
  ATHANOR_CHECK(list, "{}", no_hosts_text("SLURM_JOB_ID", name + " is not"));
  std::vector<Host> hosts;
  for (auto& host : expand_node_list(*list, name)) hosts.push_back({std::move(host), 0});
  add_slots_of_slurm(hosts, suffix, here);
  return hosts;
}

// How many components a heterogeneous job has; 0 in a usual job. Before Slurm 20.02 they were called packs.
struct Components {
  int number = 0;
  const char* suffix = "";
};
Components slurm_components(const Surroundings& here) {
  constexpr size_t kMostDigits = 4;
  for (const auto& [size, suffix] : {std::pair("SLURM_HET_SIZE", "_HET_GROUP_"), {"SLURM_PACK_SIZE", "_PACK_GROUP_"}}) {
    const auto text = here.variable(size);
    if (!text) continue;
    ATHANOR_CHECK(text->size() <= kMostDigits && text->find_first_not_of("0123456789") == text->npos,
                  "{} is {}: expected a number of components; unset it, and name the hosts with --hostfile", size,
                  printable(*text));
    return {std::stoi(*text), suffix};
  }
  return {};
}

void take_slurm_hosts(Allocation& found, const Surroundings& here) {
  const Components components = slurm_components(here);
  found.hosts_from = "SLURM_JOB_NODELIST";
  if (components.number < 2) {
    found.hosts = slurm_hosts("", here);
    return;
  }
  found.hosts_from += fmt::format(" of {} components", components.number);
  for (int component = 0; component < components.number; ++component)
    for (Host& host : slurm_hosts(components.suffix + std::to_string(component), here)) {
      const auto [other, is_new] = found.component_of.try_emplace(host.name, component);
      ATHANOR_CHECK(is_new, "{} is a host of the components {} and {} of this job; name each host once with --hostfile",
                    host.name, other->second, component);
      found.hosts.push_back(std::move(host));
    }
  const auto with_slots = std::ranges::count_if(found.hosts, [](const Host& host) { return host.slots > 0; });
  if (with_slots < std::ssize(found.hosts))  // some component was asked for nodes, not for tasks
    for (Host& host : found.hosts) host.slots = 0;
}

// One line for each host is what PBS writes if the number of ranks was not asked for (mpiprocs).
void forget_single_slots(std::vector<Host>& hosts) {
  if (!std::ranges::all_of(hosts, [](const Host& host) { return host.slots == 1; })) return;
  for (Host& host : hosts) host.slots = 0;
}

std::vector<Host> hosts_of_slot_file(const std::string& variable, const std::string& file) {
  ATHANOR_CHECK(std::filesystem::is_regular_file(file), "{} is {}, and there is no such file; name one with --hostfile",
                variable, printable(file));
  return parse_host_file(read_file(file), fmt::format("{} ({})", variable, file), RepeatedHost::kSlots);
}

void take_pbs_hosts(Allocation& found, const Surroundings& here) {
  const auto file = here.variable("PBS_NODEFILE");
  ATHANOR_CHECK(file, "{}", no_hosts_text("PBS_JOBID", "PBS_NODEFILE is not"));
  found.hosts_from = "PBS_NODEFILE";
  found.hosts = hosts_of_slot_file(found.hosts_from, *file);
}

// LSF leaves LSB_HOSTS out if it would be long.
void take_lsf_hosts(Allocation& allocation, const Surroundings& here) {
  if (auto names = here.variable("LSB_HOSTS")) {
    std::ranges::replace(*names, ' ', '\n');
    allocation.hosts_from = "LSB_HOSTS";
    allocation.hosts = parse_host_file(*names, allocation.hosts_from, RepeatedHost::kSlots);
  } else if (const auto file = here.variable("LSB_DJOB_HOSTFILE")) {
    allocation.hosts_from = "LSB_DJOB_HOSTFILE";
    allocation.hosts = hosts_of_slot_file(allocation.hosts_from, *file);
  } else if (const auto pairs = here.variable("LSB_MCPU_HOSTS")) {  // "n1 4 n2 4"
    allocation.hosts_from = "LSB_MCPU_HOSTS";
    std::istringstream words(*pairs);
    std::string lines;
    for (std::string host, slots; words >> host >> slots;) lines += host + " slots=" + slots + "\n";
    allocation.hosts = parse_host_file(lines, allocation.hosts_from, RepeatedHost::kSlots);
  } else {
    fail<ConfigError>("{}", no_hosts_text("LSB_JOBID", "LSB_HOSTS, LSB_DJOB_HOSTFILE and LSB_MCPU_HOSTS are not"));
  }
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
  // The ranks of a component follow one another.
  const auto component = [&](const Host& host) { return allocation.component(host.name); };
  if (allocation.is_heterogeneous()) std::ranges::stable_sort(hosts, {}, component);
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

int Allocation::component(const std::string& host) const {
  for (const auto& [name, component] : component_of)
    if (is_same_host(name, host)) return component;
  return 0;
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
    switch (found.scheduler) {
      case Scheduler::kSlurm: take_slurm_hosts(found, here); break;
      case Scheduler::kPbs: take_pbs_hosts(found, here); break;
      default: take_lsf_hosts(found, here);
    }
    if (found.scheduler != Scheduler::kSlurm) forget_single_slots(found.hosts);
  } else {
    if (request.scheduler == "auto" && request.host_file.empty()) refuse_other_job(here);
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
