#include "launch/plan.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/shell_words.h"
#include "base/text.h"
#include "base/thread_share.h"
#include "launch/programs.h"
#include "launch/training_command.h"

namespace athanor::launch {
namespace fs = std::filesystem;
namespace {

bool is_among_hosts(const Allocation& allocation, const std::string& host) {
  return std::ranges::any_of(
      allocation.hosts, [&](const Host& each) { return is_same_host(each.name, host) || each.name == "localhost"; });
}

std::vector<std::string> checked_command(const LaunchRequest& request, const Surroundings& here) {
  std::vector<std::string> words = request.command;
  ATHANOR_CHECK(!words.empty() && !words[0].empty(),
                "COMMAND is required: what each rank runs, as in athanor launch -- athanor train run.toml");
  if (const auto program = here.find_program(words[0])) {
    require_executable(*program, here);
    return words;
  }
  if (words[0] == "athanor" && !request.own_program.empty()) {
    words[0] = request.own_program;
    return words;
  }
  std::error_code ignored;
  const bool has_slash = words[0].find('/') != std::string::npos;
  ATHANOR_CHECK(has_slash || here.variable("PATH"), "COMMAND: PATH is not set, so that {} is not found; give its path",
                words[0]);
  ATHANOR_CHECK(has_slash, "COMMAND: there is no program {} on the path; give its path, such as ./{}", words[0],
                words[0]);
  ATHANOR_CHECK(fs::exists(words[0], ignored), "COMMAND: there is no file {}; give the path of a program", words[0]);
  fail<ConfigError>("COMMAND: {} is no program that you may execute; expected one, or a script with chmod +x",
                    words[0]);
}

NodeOffer offer_of(const LaunchPlan& plan) {
  if (const int devices = static_cast<int>(plan.devices.devices.size()); devices > 0)
    return {devices, fmt::format("one for each of {} devices", devices)};
  const int sockets = plan.layout.sockets;
  return {sockets, sockets == 1 ? "one for the only socket" : fmt::format("one for each of {} sockets", sockets)};
}

// The NUMA nodes of the devices of a node's ranks; empty if ranks share devices, or if one is not known.
std::vector<int> numa_of_ranks(const LaunchPlan& plan) {
  const auto num_ranks = static_cast<size_t>(plan.ranks.most());
  std::vector<int> numa;
  if (num_ranks > plan.devices.devices.size()) return numa;
  for (size_t rank = 0; rank < num_ranks; ++rank) numa.push_back(plan.devices.devices[rank].numa);
  if (std::ranges::any_of(numa, [](int node) { return node < 0; })) numa.clear();
  return numa;
}

// A user's number holds unless it is more than the cores of a rank: PBS sets it to all cores of a node.
void choose_threads(LaunchPlan& plan, const Surroundings& here) {
  const auto text = here.variable("OMP_NUM_THREADS");
  const auto wanted = parse_thread_count(text ? text->c_str() : nullptr);
  plan.threads_from = plan.cores.why;
  if (!plan.is_node_known) {
    plan.cores.threads = wanted.value_or(0);
    plan.threads_from = "OMP_NUM_THREADS is set here";
  } else if (wanted && *wanted <= plan.cores.threads) {
    plan.cores.threads = *wanted;
    plan.threads_from = "OMP_NUM_THREADS is set here";
  } else if (wanted) {
    plan.threads_from += fmt::format(" (OMP_NUM_THREADS is {} here, which is more)", *wanted);
  }
}

void divide_node(LaunchPlan& plan, const LaunchRequest& request) {
  if (!plan.is_node_known) {
    ATHANOR_CHECK(request.exclude_cores.empty() && request.reserve_cores == 0,
                  "--exclude-cores and --reserve-cores: this machine is none of {} ({}), so their cores are not known; "
                  "start it on one of them",
                  shown_hosts(plan.allocation.hosts), plan.allocation.hosts_from);
    plan.cores.why = "not known";
    return;
  }
  CoreRequest cores{plan.ranks.most(), numa_of_ranks(plan), {}, request.reserve_cores};
  if (!request.exclude_cores.empty()) cores.excluded = parse_cpu_list(request.exclude_cores, "--exclude-cores");
  plan.cores = divide_cores(plan.layout, cores);
}

std::string devices_line(const LaunchPlan& plan) {
  const NodeDevices& devices = plan.devices;
  if (!plan.is_node_known) return "not known: this machine is none of the hosts";
  if (devices.vendor == Vendor::kNone) return "none: ranks compute on CPUs";
  const auto num_devices = devices.devices.size();
  std::string text =
      fmt::format("{} of {}, on {} {}({})", num_devices, vendor_name(devices.vendor), counted(devices.cards, "card"),
                  devices.model.empty() ? "" : printable(devices.model) + " ", devices.from);
  return devices.restriction.empty() ? text : text + ", restricted by " + devices.restriction;
}

std::string cores_line(const LaunchPlan& plan) {
  const CpuLayout& layout = plan.layout;
  if (!plan.is_node_known) return "not known: this machine is none of the hosts";
  std::string text = fmt::format("{} on {} ({})", layout.cores.size(), counted(layout.sockets, "socket"), layout.from);
  if (std::ssize(layout.cores) < layout.all_cores)
    text += fmt::format(", of {}: this process may run on these only", layout.all_cores);
  return plan.allocation.hosts.size() > 1 ? text + "; the other hosts are taken to be like this one" : text;
}

std::string ranks_line(const LaunchPlan& plan) {
  const auto hosts = plan.ranks.of_host.size();
  const bool is_full = plan.ranks.total() == plan.ranks.most() * static_cast<int>(hosts);
  return fmt::format("{} on {}, {}{} each: {}", plan.ranks.total(), counted(static_cast<int64_t>(hosts), "host"),
                     is_full ? "" : "up to ", plan.ranks.most(), plan.ranks.from);
}

std::string sockets_lines(const LaunchPlan& plan, const LaunchCommand& command, int port) {
  std::string text = "# no MPI: the ranks meet at a port of this machine, and communicate over sockets\n";
  for (int rank = 0; rank < plan.ranks.total(); ++rank) {
    Variables variables = command.variables;
    if (plan.ranks.total() > 1) {
      const auto own = rank_variables(rank, plan.ranks.total(), port);
      variables.insert(variables.begin(), own.begin(), own.end());
    }
    std::vector<std::string> words{"env"};
    for (const auto& [name, value] : variables) words.push_back(name + "=" + value);
    if (!plan.cores.cpus.empty()) {
      const auto cpus = cpu_list_text(plan.cores.cpus[static_cast<size_t>(rank)]);
      words.insert(words.end(), {"taskset", "-c", cpus});
    }
    words.insert(words.end(), plan.command.begin(), plan.command.end());
    text += shell_line(words) + (plan.ranks.total() > 1 ? " &\n" : "\n");
  }
  return plan.ranks.total() > 1 ? text + "wait\n" : text;
}

}  // namespace

LaunchPlan make_plan(const LaunchRequest& request, const Surroundings& here) {
  LaunchPlan plan;
  plan.command = checked_command(request, here);
  plan.is_training = training_config(plan.command, request.own_program).has_value();
  plan.allocation = find_allocation(request.allocation, here);
  plan.is_node_known = is_among_hosts(plan.allocation, here.host);
  plan.layout = read_cpu_layout(here);
  if (plan.is_node_known) plan.devices = find_devices(here);
  plan.ranks =
      count_ranks(request.ranks, plan.allocation, plan.is_node_known ? std::optional(offer_of(plan)) : std::nullopt);
  plan.allocation.keep_first(plan.ranks.of_host.size());
  plan.is_one_machine = plan.allocation.is_this_machine(here);
  divide_node(plan, request);
  choose_threads(plan, here);
  plan.launcher = find_launcher(request.launcher, plan.allocation, here);
  return plan;
}

std::string dry_run_text(const LaunchPlan& plan, const LaunchCommand& command, int port,
                         const std::vector<Host>& spares) {
  std::string text;
  const auto line = [&text](const std::string& what, const std::string& value) {
    text += fmt::format("# {:<11}{}\n", what, value);
  };
  line("scheduler", fmt::format("{}: {}", scheduler_name(plan.allocation.scheduler), plan.allocation.scheduler_from));
  line("hosts", fmt::format("{} ({})", shown_hosts(plan.allocation.hosts), plan.allocation.hosts_from));
  if (!spares.empty()) line("spares", shown_hosts(spares) + " (the next ones of the job)");
  line("devices", devices_line(plan));
  line("cores", cores_line(plan));
  line("ranks", ranks_line(plan));
  line("binding", plan.cores.why);
  if (plan.launcher.flavour == Flavour::kSockets) {
    line("launcher", "none: " + plan.launcher.from);
    return text + "#\n" + sockets_lines(plan, command, port);
  }
  text += "#\n# The parts of the command, and what each comes from:\n";
  constexpr size_t kMostShown = 60;
  for (const auto& part : command.parts) {
    std::string words = shell_line(part.words);
    if (words.size() > kMostShown) words = words.substr(0, kMostShown - 3) + "...";
    // A command of the user may have line breaks, which would end the comment.
    text += fmt::format("#   {}\n#       {}\n", printable(words), printable(part.why));
  }
  if (!command.rankfile.empty()) text += fmt::format("#\ncat >{} <<'END'\n{}END\n", kRankfile, command.rankfile);
  return text + shell_line(command.words()) + "\n";
}

}  // namespace athanor::launch
