#include "launch/launcher_command.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "base/error.h"
#include "base/text.h"

namespace athanor::launch {
namespace {

// Variables that the ranks of other hosts need, by the beginnings of their names. Those of the launchers themselves are
// passed on by them.
constexpr std::string_view kForwarded[] = {"ATHANOR_",
                                           "OMP_",
                                           "KMP_",
                                           "GOMP_",
                                           "MKL_",
                                           "ONEDNN_",
                                           "DNNL_",
                                           "TORCH_",
                                           "PYTORCH_",
                                           "NCCL_",
                                           "RCCL_",
                                           "CCL_",
                                           "FI_",
                                           "UCX_",
                                           "CUDA_",
                                           "ROCR_",
                                           "HIP_",
                                           "HSA_",
                                           "ZE_",
                                           "SYCL_",
                                           "ONEAPI_",
                                           "PATH=",
                                           "LD_LIBRARY_PATH=",
                                           "LD_PRELOAD=",
                                           "TMPDIR=",
                                           "MALLOC_",
                                           "TZ="};

constexpr const char* kOtherVariables = "; all other variables reach the ranks too";

std::vector<std::string> forwarded_names(const Surroundings& here) {
  std::vector<std::string> names;
  for (const auto& [name, value] : here.variables) {
    const bool is_forwarded = std::ranges::any_of(
        kForwarded, [entry = name + "="](std::string_view start) { return entry.starts_with(start); });
    if (is_forwarded && name != "OMP_NUM_THREADS") names.push_back(name);
  }
  return names;
}

std::string number(int value) { return std::to_string(value); }
bool sets_threads(const LaunchPlan& plan) { return plan.cores.threads > 0; }
std::string threads_word(const LaunchPlan& plan) { return "OMP_NUM_THREADS=" + number(plan.cores.threads); }

// "a:4,b:2", or "a,b" without the numbers.
std::string host_words(const LaunchPlan& plan, bool with_ranks) {
  std::vector<std::string> words;
  for (size_t i = 0; i < plan.ranks.of_host.size(); ++i) {
    const std::string& name = plan.allocation.hosts[i].name;
    const std::string shown = name.find(':') == name.npos || !with_ranks ? name : "[" + name + "]";  // IPv6
    words.push_back(with_ranks ? fmt::format("{}:{}", shown, plan.ranks.of_host[i]) : shown);
  }
  return join(words, ",");
}

// A mask of processors as hexadecimal digits: 0 to 3 → "0xf".
std::string cpu_mask(const std::vector<int>& cpus) {
  const int most = *std::ranges::max_element(cpus);
  std::string digits(static_cast<size_t>(most / 4 + 1), '0');
  std::vector<int> values(digits.size(), 0);
  for (const int cpu : cpus) values[static_cast<size_t>(most / 4 - cpu / 4)] |= 1 << cpu % 4;
  for (size_t i = 0; i < digits.size(); ++i) digits[i] = "0123456789abcdef"[values[i]];
  return "0x" + digits;
}

template <class Shown>
std::string shares_text(const CoreShares& cores, Shown shown, std::string_view separator) {
  std::vector<std::string> texts;
  for (const auto& cpus : cores.cpus) texts.push_back(shown(cpus));
  return join(texts, separator);
}

std::string cpus_with_plus(const std::vector<int>& cpus) {
  std::vector<std::string> texts;
  for (const int cpu : cpus) texts.push_back(number(cpu));
  return join(texts, "+");
}

/// Collects the parts of a command.
class Parts {
 public:
  void add(std::vector<std::string> words, std::string why) { parts_.push_back({std::move(words), std::move(why)}); }
  std::vector<CommandPart> take() { return std::move(parts_); }

 private:
  std::vector<CommandPart> parts_;
};

std::string hosts_why(const LaunchPlan& plan) {
  return fmt::format("hosts and their ranks: {}", plan.allocation.hosts_from);
}
std::string ranks_why(const LaunchPlan& plan) { return "ranks: " + plan.ranks.from; }
std::string cores_why(const LaunchPlan& plan) { return "cores: " + plan.cores.why; }
std::string threads_why(const LaunchPlan& plan) { return "threads of a rank that compute: " + plan.threads_from; }

void require_regular(const LaunchPlan& plan) {
  ATHANOR_CHECK(plan.ranks.is_regular(),
                "{} starts the same number of ranks on each host, but the slots are {} ({}); give --ppn",
                flavour_name(plan.launcher.flavour), host_words(plan, true), plan.allocation.hosts_from);
}

// Where each rank of the job runs: a line for each. Open MPI counts cores in its own order, by socket, which is the
// order of the layout.
std::string rankfile_text(const LaunchPlan& plan) {
  std::map<int, size_t> logical;
  for (size_t i = 0; i < plan.layout.cores.size(); ++i) logical[plan.layout.cores[i].cpu] = i;
  std::vector<std::string> slots;
  for (const auto& cpus : plan.cores.cpus) {
    std::vector<int> cores;
    for (const int cpu : cpus) cores.push_back(static_cast<int>(logical.at(cpu)));
    slots.push_back(cpu_list_text(cores));
  }
  std::string text;
  int rank = 0;
  for (size_t host = 0; host < plan.ranks.of_host.size(); ++host) {
    const std::string name = plan.is_one_machine ? "localhost" : plan.allocation.hosts[host].name;
    for (int local = 0; local < plan.ranks.of_host[host]; ++local)
      text += fmt::format("rank {}={} slot={}\n", rank++, name, slots[static_cast<size_t>(local)]);
  }
  return text;
}

void add_open_mpi_binding(const LaunchPlan& plan, Parts& parts, std::string& rankfile) {
  const bool is_new = plan.launcher.flavour == Flavour::kPrrte;
  const int most = plan.ranks.most();
  // With ppr each host but the last one has to have room for as many ranks as any other.
  const bool may_use_ppr = plan.ranks.is_regular();
  // Where the hosts have fewer cores than ranks, the daemons of Open MPI 4 crash if a socket must not be overloaded.
  if (!plan.is_node_known) {
    parts.add({"--map-by", may_use_ppr ? fmt::format("ppr:{}:node", most) : "slot", "--bind-to",
               is_new ? "package:overload-allowed" : "socket:overload-allowed"},
              "this machine is none of the hosts, so their cores are not known: each rank has its socket");
  } else if (plan.cores.cpus.empty()) {
    parts.add({"--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"}, cores_why(plan));
  } else if (plan.cores.is_even && may_use_ppr) {
    const int per_socket = most / plan.layout.sockets, size = static_cast<int>(plan.cores.cpus[0].size());
    parts.add({"--map-by", fmt::format("ppr:{}:{}:PE={}", per_socket, is_new ? "package" : "socket", size), "--bind-to",
               "core"},
              cores_why(plan));
  } else {
    rankfile = rankfile_text(plan);
    if (is_new)
      parts.add({"--map-by", fmt::format("rankfile:file={}", kRankfile)}, cores_why(plan));
    else
      parts.add({"--rankfile", kRankfile}, cores_why(plan));
  }
}

// By default the daemons of Open MPI 4 notice a link that is down, or a host without power, after eight minutes.
void add_keepalive(const LaunchPlan& plan, const Surroundings& here, Parts& parts) {
  if (plan.is_one_machine || plan.launcher.flavour != Flavour::kOpenMpi) return;
  if (here.variables.contains("OMPI_MCA_oob_tcp_keepalive_time")) return;
  parts.add({"--mca", "oob_tcp_keepalive_time", "10", "--mca", "oob_tcp_keepalive_intvl", "3", "--mca",
             "oob_tcp_keepalive_probes", "4"},
            "a host that no longer answers is noticed after 10 + 4 x 3 s");
}

void add_open_mpi(const LaunchPlan& plan, const Surroundings& here, Parts& parts, std::string& rankfile) {
  parts.add({"-n", number(plan.ranks.total())}, ranks_why(plan));
  if (!plan.is_one_machine) parts.add({"-H", host_words(plan, true)}, hosts_why(plan));
  add_open_mpi_binding(plan, parts, rankfile);
  if (sets_threads(plan)) parts.add({"-x", threads_word(plan)}, threads_why(plan));
  std::vector<std::string> words;
  for (const auto& name : forwarded_names(here)) {
    words.emplace_back("-x");
    words.push_back(name);
  }
  if (!plan.is_one_machine && !words.empty()) parts.add(words, "variables that reach the ranks of other hosts");
  add_keepalive(plan, here, parts);
}

void add_hydra(const LaunchPlan& plan, Parts& parts) {
  parts.add({"-n", number(plan.ranks.total())}, ranks_why(plan));
  if (!plan.is_one_machine) parts.add({"-hosts", host_words(plan, true)}, hosts_why(plan));
  if (!plan.is_node_known)
    parts.add({"-bind-to", "socket"}, "this machine is none of the hosts, so their cores are not known");
  else if (!plan.cores.cpus.empty())
    parts.add({"-bind-to", "user:" + shares_text(plan.cores, cpus_with_plus, ",")}, cores_why(plan));
  if (sets_threads(plan))
    parts.add({"-genv", "OMP_NUM_THREADS", number(plan.cores.threads)}, threads_why(plan) + kOtherVariables);
}

void add_intel_mpi(const LaunchPlan& plan, Parts& parts) {
  require_regular(plan);
  parts.add({"-n", number(plan.ranks.total()), "-ppn", number(plan.ranks.most())}, ranks_why(plan));
  if (!plan.is_one_machine) parts.add({"-hosts", host_words(plan, false)}, hosts_why(plan));
  if (!plan.is_node_known)
    parts.add({"-genv", "I_MPI_PIN_DOMAIN", "auto"}, "this machine is none of the hosts, so their cores are not known");
  else if (plan.cores.cpus.empty())
    parts.add({"-genv", "I_MPI_PIN", "off"}, cores_why(plan));
  else
    parts.add({"-genv", "I_MPI_PIN_DOMAIN", "[" + shares_text(plan.cores, cpu_mask, ",") + "]"}, cores_why(plan));
  if (sets_threads(plan))
    parts.add({"-genv", "OMP_NUM_THREADS", number(plan.cores.threads)}, threads_why(plan) + kOtherVariables);
}

void add_pals(const LaunchPlan& plan, Parts& parts) {
  require_regular(plan);
  parts.add({"-n", number(plan.ranks.total()), "--ppn", number(plan.ranks.most())}, ranks_why(plan));
  parts.add({"--hosts", host_words(plan, false)}, hosts_why(plan));
  if (!plan.is_node_known)
    parts.add({"--cpu-bind", "numa"}, "this machine is none of the hosts, so their cores are not known");
  else if (plan.cores.cpus.empty())
    parts.add({"--cpu-bind", "none"}, cores_why(plan));
  else
    parts.add({"--cpu-bind", "list:" + shares_text(plan.cores, cpu_list_text, ":")}, cores_why(plan));
  if (sets_threads(plan)) parts.add({"--env", threads_word(plan)}, threads_why(plan));
  parts.add({"--envall"}, "all other variables reach the ranks too");
}

// Slurm numbers the ranks in the order of the job's nodes, whatever the order of a list: the ranks of a host whose
// place a spare takes would move to others.
void add_srun_hosts(const LaunchPlan& plan, Parts& parts, std::string& rankfile) {
  if (plan.has_spares_in_use) {
    for (size_t host = 0; host < plan.ranks.of_host.size(); ++host)
      for (int local = 0; local < plan.ranks.of_host[host]; ++local)
        rankfile += plan.allocation.hosts[host].name + "\n";
    return parts.add({"--distribution=arbitrary", fmt::format("--nodelist={}", kRankfile)},
                     "the host of each rank, since a spare took the place of another");
  }
  const bool is_full = std::ranges::all_of(plan.ranks.of_host, [&](int ranks) { return ranks == plan.ranks.most(); });
  if (is_full) parts.add({"--ntasks-per-node=" + number(plan.ranks.most())}, ranks_why(plan));
  parts.add({"--nodelist=" + host_words(plan, false)}, "hosts: " + plan.allocation.hosts_from);
}

// @param is_node_known  the hosts are taken to be like this machine.
void add_srun_options(const LaunchPlan& plan, bool is_node_known, Parts& parts) {
  if (!plan.launcher.pmi.empty()) parts.add({"--mpi=" + plan.launcher.pmi}, "MPI: " + plan.launcher.pmi_from);
  if (!is_node_known)
    parts.add({"--cpu-bind=sockets"}, "this machine is none of the hosts, so their cores are not known");
  else if (plan.cores.cpus.empty())
    parts.add({"--overcommit", "--cpu-bind=none"}, cores_why(plan));
  else
    parts.add({"--cpus-per-task=" + number(static_cast<int>(plan.cores.cpus[0].size()) * plan.layout.threads_per_core),
               "--cpu-bind=mask_cpu:" + shares_text(plan.cores, cpu_mask, ",")},
              cores_why(plan));
  if (sets_threads(plan)) parts.add({"--export=ALL," + threads_word(plan)}, threads_why(plan) + kOtherVariables);
  // All ranks of a training have saved when the first one ends. Without this they wait for one that was killed, if it
  // was alone on its node; --kill-on-bad-exit sends SIGTERM, on which a rank waits for the others at the end of its
  // step.
  if (plan.is_training) parts.add({"--wait=3"}, "a rank that was killed ends the others three seconds later");
  parts.add({"--disable-status"}, "a SIGINT reaches the ranks, which then save");
}

// A step of a heterogeneous job has options and a command for each of its components, with a colon between them.
// Their nodes are of different kinds: only those of this machine's component are taken to be like it.
void add_srun_components(const LaunchPlan& plan, const Surroundings& here, Parts& parts) {
  const auto& hosts = plan.allocation.hosts;
  const auto component_of = [&](size_t host) { return plan.allocation.component(hosts[host].name); };
  const int own = plan.allocation.component(here.host);
  for (size_t begin = 0, end = 0; begin < plan.ranks.of_host.size(); begin = end) {
    const int component = component_of(begin);
    std::vector<std::string> names;
    int ranks = 0;
    for (; end < plan.ranks.of_host.size() && component_of(end) == component; ++end) {
      names.push_back(hosts[end].name);
      ranks += plan.ranks.of_host[end];
    }
    if (begin > 0) {
      parts.add(plan.command, "what each rank runs");
      parts.add({":"}, "the next component of the job");
    }
    parts.add({fmt::format("--het-group={}", component), fmt::format("--nodes={}", end - begin),
               "--ntasks=" + number(ranks), "--nodelist=" + join(names, ",")},
              fmt::format("ranks and hosts of component {}: {}", component, plan.ranks.from));
    add_srun_options(plan, plan.is_node_known && component == own, parts);
  }
}

void add_srun(const LaunchPlan& plan, const Surroundings& here, Parts& parts, std::string& rankfile) {
  if (plan.allocation.is_heterogeneous()) return add_srun_components(plan, here, parts);
  const int num_hosts = static_cast<int>(plan.ranks.of_host.size());
  parts.add({"--nodes=" + number(num_hosts), "--ntasks=" + number(plan.ranks.total())}, ranks_why(plan));
  add_srun_hosts(plan, parts, rankfile);
  add_srun_options(plan, plan.is_node_known, parts);
}

}  // namespace

std::vector<std::string> LaunchCommand::words() const {
  std::vector<std::string> all;
  for (const auto& part : parts) all.insert(all.end(), part.words.begin(), part.words.end());
  return all;
}

LaunchCommand build_command(const LaunchPlan& plan, const Surroundings& here) {
  LaunchCommand built;
  Parts parts;
  if (plan.launcher.flavour != Flavour::kSockets)
    parts.add({plan.launcher.path},
              fmt::format("{}{}{}: {}", flavour_name(plan.launcher.flavour), plan.launcher.version.empty() ? "" : " ",
                          plan.launcher.version, plan.launcher.from));
  switch (plan.launcher.flavour) {
    case Flavour::kOpenMpi:
    case Flavour::kPrrte: add_open_mpi(plan, here, parts, built.rankfile); break;
    case Flavour::kHydra: add_hydra(plan, parts); break;
    case Flavour::kIntelMpi: add_intel_mpi(plan, parts); break;
    case Flavour::kPals: add_pals(plan, parts); break;
    case Flavour::kSrun: add_srun(plan, here, parts, built.rankfile); break;
    case Flavour::kSockets:
      if (sets_threads(plan)) built.variables.emplace_back("OMP_NUM_THREADS", number(plan.cores.threads));
      break;
  }
  parts.add(plan.command, "what each rank runs");
  built.parts = parts.take();
  return built;
}

Variables rank_variables(int rank, int num_ranks, int port) {
  return {{"RANK", number(rank)},       {"WORLD_SIZE", number(num_ranks)},
          {"LOCAL_RANK", number(rank)}, {"LOCAL_WORLD_SIZE", number(num_ranks)},
          {"MASTER_ADDR", "localhost"}, {"MASTER_PORT", number(port)}};
}

}  // namespace athanor::launch
