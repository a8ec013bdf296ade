#include "launch/cpu_layout.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "base/error.h"
#include "base/process.h"
#include "base/text.h"
#include "launch/host_list.h"

namespace athanor::launch {
namespace fs = std::filesystem;
namespace {

constexpr int kMostCpus = 65536;

std::optional<std::vector<int>> try_cpu_list(std::string_view text) {
  std::vector<int> cpus;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view range = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    int first = -1, last = -1;
    const char* end = range.data() + range.size();
    auto read = std::from_chars(range.data(), end, first);
    last = first;
    if (read.ec == std::errc{} && read.ptr < end && *read.ptr == '-') read = std::from_chars(read.ptr + 1, end, last);
    if (read.ec != std::errc{} || read.ptr != end || first < 0 || last < first || last >= kMostCpus) return {};
    if (cpus.size() > static_cast<size_t>(kMostCpus)) return {};  // ranges that are repeated
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
  }
  return cpus;
}

std::vector<int> cpus_of_file(const fs::path& path) {
  const auto line = read_kernel_line(path);
  return line ? try_cpu_list(*line).value_or(std::vector<int>()) : std::vector<int>();
}

// The processors that this process may run on, as the kernel reports them; empty if it does not.
std::set<int> allowed_cpus(const Surroundings& here) {
  std::ifstream file(here.root / "proc/self/status");
  constexpr std::string_view kKey = "Cpus_allowed_list:";
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(kKey)) continue;
    const size_t begin = line.find_first_not_of(" \t", kKey.size());
    const auto cpus = begin == line.npos ? std::nullopt : try_cpu_list(std::string_view(line).substr(begin));
    if (cpus) return {cpus->begin(), cpus->end()};
  }
  return {};
}

std::map<int, int> numa_nodes_of_cpus(const Surroundings& here) {
  std::map<int, int> node_of;
  std::error_code failed;
  for (fs::directory_iterator entry(here.root / "sys/devices/system/node", failed), end; !failed && entry != end;
       entry.increment(failed)) {
    const std::string name = entry->path().filename().string();
    int node = -1;
    if (!name.starts_with("node")) continue;
    const auto read = std::from_chars(name.data() + 4, name.data() + name.size(), node);
    if (read.ec != std::errc{} || read.ptr != name.data() + name.size()) continue;
    for (const int cpu : cpus_of_file(entry->path() / "cpulist")) node_of[cpu] = node;
  }
  return node_of;
}

// Without the files of the kernel.
CpuLayout plain_layout() {
  CpuLayout layout{.from = "the number of processors"};
  for (int cpu = 0; cpu < cpu_count(); ++cpu) layout.cores.push_back({cpu, 0, 0});
  layout.all_cores = machine_cpu_count();
  return layout;
}

using RanksOfDomain = std::map<int, std::vector<int>>;

// Divides the cores of each domain into equal blocks for its ranks. What does not divide evenly stays free.
std::vector<std::vector<int>> blocks_of(const std::map<int, std::vector<int>>& cpus_of, const RanksOfDomain& ranks_of,
                                        int num_ranks) {
  std::vector<std::vector<int>> shares(static_cast<size_t>(num_ranks));
  for (const auto& [domain, ranks] : ranks_of) {
    const auto found = cpus_of.find(domain);
    const std::vector<int> cpus = found == cpus_of.end() ? std::vector<int>() : found->second;
    const size_t size = cpus.size() / ranks.size();
    for (size_t i = 0; i < ranks.size(); ++i) {
      const auto begin = cpus.begin() + static_cast<std::ptrdiff_t>(i * size);
      shares[static_cast<size_t>(ranks[i])].assign(begin, begin + static_cast<std::ptrdiff_t>(size));
    }
  }
  return shares;
}

struct Division {
  std::vector<std::vector<int>> cpus;
  std::string near;  // what the ranks are near to
};

// A rank for each device: near it. Nothing if it is not known where a device is.
std::optional<Division> divide_by_devices(const std::vector<Core>& cores, const std::vector<int>& numa_of_rank) {
  std::map<int, std::vector<int>> cpus_of_numa, cpus_of_socket;
  std::map<int, int> socket_of;
  for (const Core& core : cores) {
    cpus_of_numa[core.numa].push_back(core.cpu);
    cpus_of_socket[core.socket].push_back(core.cpu);
    socket_of[core.numa] = core.socket;
  }
  RanksOfDomain of_numa, of_socket;
  for (size_t rank = 0; rank < numa_of_rank.size(); ++rank) {
    if (!socket_of.contains(numa_of_rank[rank])) return std::nullopt;
    of_numa[numa_of_rank[rank]].push_back(static_cast<int>(rank));
    of_socket[socket_of[numa_of_rank[rank]]].push_back(static_cast<int>(rank));
  }
  const int ranks = static_cast<int>(numa_of_rank.size());
  if (of_numa.size() == cpus_of_numa.size())
    return Division{blocks_of(cpus_of_numa, of_numa, ranks), "the NUMA node of its device"};
  if (of_socket.size() == cpus_of_socket.size())
    return Division{blocks_of(cpus_of_socket, of_socket, ranks), "the socket of its device"};
  return std::nullopt;  // sockets without devices would idle
}

// Ranks in blocks over the sockets; fewer ranks than sockets get whole sockets.
Division divide_by_sockets(const std::vector<Core>& cores, int sockets, int ranks) {
  std::map<int, int> position;  // by the number of a socket
  for (const Core& core : cores) position.try_emplace(core.socket, static_cast<int>(position.size()));
  std::map<int, std::vector<int>> cpus_of;
  RanksOfDomain ranks_of;
  const int domains = std::min(sockets, ranks);
  for (const Core& core : cores) cpus_of[position[core.socket] * domains / sockets].push_back(core.cpu);
  for (int rank = 0; rank < ranks; ++rank) ranks_of[rank * domains / ranks].push_back(rank);
  return {blocks_of(cpus_of, ranks_of, ranks), ranks < sockets ? "whole sockets" : "one socket"};
}

std::vector<Core> without_excluded(const CpuLayout& layout, const std::vector<int>& excluded) {
  std::vector<Core> cores = layout.cores;
  for (const int cpu : excluded) {
    const auto removed = std::erase_if(cores, [&](const Core& core) { return core.cpu == cpu; });
    ATHANOR_CHECK(removed > 0 || std::ranges::any_of(layout.cores, [&](const Core& core) { return core.cpu == cpu; }),
                  "--exclude-cores: {} is none of the {} cores that this process may run on ({}); name some of {}", cpu,
                  layout.cores.size(), layout.from, [&] {
                    std::vector<int> cpus;
                    for (const Core& core : layout.cores) cpus.push_back(core.cpu);
                    return cpu_list_text(cpus);
                  }());
  }
  ATHANOR_CHECK(!cores.empty(), "--exclude-cores leaves no core; exclude fewer of the {}", layout.cores.size());
  return cores;
}

// True if each socket is cut into the same number of equal blocks without a rest, in the order of the ranks.
bool is_even_division(const CpuLayout& layout, const std::vector<std::vector<int>>& shares) {
  const size_t ranks = shares.size(), sockets = static_cast<size_t>(layout.sockets);
  if (ranks % sockets != 0 || layout.cores.size() % ranks != 0) return false;
  const size_t size = layout.cores.size() / ranks;
  std::map<int, size_t> cores_of_socket;
  for (const Core& core : layout.cores) ++cores_of_socket[core.socket];
  if (!std::ranges::all_of(cores_of_socket,
                           [&](const auto& entry) { return entry.second == layout.cores.size() / sockets; }))
    return false;
  for (size_t rank = 0; rank < ranks; ++rank) {
    if (shares[rank].size() != size) return false;
    for (size_t i = 0; i < size; ++i)
      if (shares[rank][i] != layout.cores[rank * size + i].cpu) return false;
  }
  return true;
}

}  // namespace

CpuLayout read_cpu_layout(const Surroundings& here) {
  const fs::path folder = here.root / "sys/devices/system/cpu";
  const auto allowed = allowed_cpus(here);
  const auto node_of = numa_nodes_of_cpus(here);
  CpuLayout layout{.from = "/sys/devices/system/cpu"};
  std::set<int> sockets;
  for (const int cpu : cpus_of_file(folder / "online")) {
    const fs::path topology = folder / ("cpu" + std::to_string(cpu)) / "topology";
    const auto siblings = cpus_of_file(topology / "thread_siblings_list");
    layout.threads_per_core = std::max(layout.threads_per_core, static_cast<int>(siblings.size()));
    if (!siblings.empty() && siblings[0] != cpu) continue;  // the second hardware thread of a core
    ++layout.all_cores;
    if (!allowed.empty() && !allowed.contains(cpu)) continue;
    const auto package = cpus_of_file(topology / "physical_package_id");
    const auto node = node_of.find(cpu);
    const int socket = package.empty() ? 0 : package[0];
    layout.cores.push_back({cpu, socket, node == node_of.end() ? 0 : node->second});
    sockets.insert(socket);
  }
  if (layout.cores.empty()) return plain_layout();
  std::ranges::sort(layout.cores, {}, [](const Core& core) { return std::tuple(core.socket, core.numa, core.cpu); });
  layout.sockets = static_cast<int>(sockets.size());
  return layout;
}

std::vector<int> parse_cpu_list(std::string_view text, const std::string& from) {
  const auto cpus = try_cpu_list(text);
  ATHANOR_CHECK(cpus && !cpus->empty(), "{}: expected numbers and ranges of cores such as 0,52 or 0-3, got {}", from,
                printable(text));
  return *cpus;
}

std::string cpu_list_text(const std::vector<int>& cpus) {
  std::string text;
  for (size_t i = 0; i < cpus.size();) {
    size_t end = i + 1;
    while (end < cpus.size() && cpus[end] == cpus[end - 1] + 1) ++end;
    text += (text.empty() ? "" : ",") + std::to_string(cpus[i]);
    if (end - i > 1) text += "-" + std::to_string(cpus[end - 1]);
    i = end;
  }
  return text;
}

CoreShares divide_cores(const CpuLayout& layout, const CoreRequest& request) {
  auto cores = without_excluded(layout, request.excluded);
  const int available = static_cast<int>(cores.size());
  if (request.ranks > available) {
    ATHANOR_CHECK(request.reserved == 0,
                  "--reserve-cores {}: {} ranks share the {} cores of a node, so that none is left; start fewer ranks",
                  request.reserved, request.ranks, available);
    return {
        {}, 1, false, fmt::format("{} ranks share {}, so none is bound", request.ranks, counted(available, "core"))};
  }
  auto division = divide_by_devices(cores, request.numa_of_rank);
  if (request.numa_of_rank.empty()) division.reset();
  const auto leaves_some_without = [](const Division& made) {
    return std::ranges::any_of(made.cpus, &std::vector<int>::empty);
  };
  if (!division || leaves_some_without(*division)) division = divide_by_sockets(cores, layout.sockets, request.ranks);
  if (leaves_some_without(*division)) {  // sockets of very different sizes
    for (Core& core : cores) core.socket = 0;
    division = divide_by_sockets(cores, 1, request.ranks);
  }
  const auto size_of = [](const std::vector<int>& share) { return static_cast<int>(share.size()); };
  const int least_cores = size_of(std::ranges::min(division->cpus, {}, size_of));
  const int most_cores = size_of(std::ranges::max(division->cpus, {}, size_of));
  ATHANOR_CHECK(
      least_cores > request.reserved,
      "--reserve-cores {}: a rank has {} ({} on {} of a node), so that none is left to compute; keep fewer, or "
      "start fewer ranks",
      request.reserved, counted(least_cores, "core"), counted(request.ranks, "rank"), counted(available, "core"));
  CoreShares shares{std::move(division->cpus), least_cores - request.reserved, false, ""};
  shares.is_even = request.excluded.empty() && is_even_division(layout, shares.cpus);
  shares.why = fmt::format("each rank has {} of {}", counted(least_cores, "core"), division->near);
  if (most_cores > least_cores)
    shares.why = fmt::format("each rank has {} to {} cores of {}", least_cores, most_cores, division->near);
  if (request.reserved > 0)
    shares.why += fmt::format(", less {} that do not compute (--reserve-cores)", request.reserved);
  return shares;
}

}  // namespace athanor::launch
