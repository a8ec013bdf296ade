#include "watch/probe.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/append_file.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "base/wall_clock.h"
#include "ops/device_traits.h"
#include "ops/transfer.h"
#include "record/run_folder.h"
#include "watch/device_link.h"

namespace athanor::inline watch {
namespace {

using Clock = std::chrono::steady_clock;
namespace fs = std::filesystem;

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr double kBudget_s = 0.03;  // for each of products and memory
constexpr double kLeastShare = 0.75, kLongest = 3;
constexpr size_t kLeastMeasured = 3, kMostPartsNamed = 4;
// Numbers of a rank: those of kQuantities in their order, then two about links.
enum : int64_t { kGemm, kMemory, kPing, kLink, kDeviceLink, kDisk, kNextIsAway, kNextDeviceIsAway, kNumbers };

// Returns the shortest of several times, the first of which is not counted: it loads what the others use.
double least_time(at::Device device, const std::function<void()>& work) {
  double least = std::numeric_limits<double>::infinity();
  const auto start = Clock::now();
  for (int i = 0; i < 3 || (i < 50 && seconds_since(start) < kBudget_s); ++i) {
    const auto began = Clock::now();
    work();
    ops::wait_for(device);
    if (i > 0) least = std::min(least, seconds_since(began));
  }
  return least;
}

double product_s(at::Device device, int64_t n) {
  const auto options = at::TensorOptions(at::kFloat).device(device);
  const Tensor a = at::full({n, n}, 0.5, options), b = at::full({n, n}, 0.5, options), c = at::empty({n, n}, options);
  return least_time(device, [&] {
    Tensor out = c;
    at::mm_out(out, a, b);
  });
}

// An accelerator needs large products to show its speed. Small ones take it less than half a millisecond (537 GFLOP/s);
// a device that takes longer, such as one that the host plays, is measured with these.
double products_gflops(at::Device device) {
  constexpr int64_t kSmall = 512;
  const int64_t large = ops::traits_of(device).large_product;
  const auto gflops = [](int64_t n, double seconds) { return 2e-9 * std::pow(static_cast<double>(n), 3) / seconds; };
  const double small_s = product_s(device, kSmall);
  if (large == kSmall || small_s > 0.5e-3) return gflops(kSmall, small_s);
  return gflops(large, product_s(device, large));
}

double copies_gb_s(at::Device device) {
  const int64_t bytes = ops::traits_of(device).large_copy_bytes;
  const auto options = at::TensorOptions(at::kByte).device(device);
  const Tensor from = at::ones({bytes}, options), to = at::empty({bytes}, options);
  return 2e-9 * static_cast<double>(bytes) / least_time(device, [&] { to.copy_(from); });
}

// A round trip in seconds, on the rank that begins it.
double round_trip(comm::Communicator& world, int with, bool begins, const Tensor& message) {
  const auto began = Clock::now();
  if (begins) {
    world.send(message, with).wait();
    world.receive(message, with).wait();
  } else {
    world.receive(message, with).wait();
    world.send(message, with).wait();
  }
  return seconds_since(began);
}

// Each rank begins round trips with the next one.
void measure_messages(comm::Communicator& world, double* numbers) {
  const Tensor small = at::zeros({1}, at::kLong), large = at::zeros({1 << 17}, at::kLong);
  for (int wave = 0; wave < kNumWaves; ++wave) {
    const auto [with, begins] = neighbour_in(wave, world.rank(), world.size());
    if (with < 0) continue;
    double ping = std::numeric_limits<double>::infinity(), link = ping;
    for (int i = 0; i < 6; ++i) {
      const double took = round_trip(world, with, begins, small);
      if (i > 0) ping = std::min(ping, took);
    }
    for (int i = 0; i < 3; ++i) link = std::min(link, round_trip(world, with, begins, large));
    if (!begins) continue;
    numbers[kPing] = 1e6 * ping;
    numbers[kLink] = 2e-6 * static_cast<double>(large.nbytes()) / link;
  }
}

// 1 if the next rank of the group is on another host.
double next_is_away(const Mesh& mesh, const comm::Communicator& group) {
  const auto& hosts = mesh.world().hosts();
  const auto& ranks = group.options().world_ranks;
  const int next = ranks[static_cast<size_t>((group.rank() + 1) % group.size())];
  return hosts[static_cast<size_t>(next)] != mesh.world().host() ? 1 : 0;
}

double disk_ms(const std::string& run_dir, int rank) {
  const fs::path path = fs::path(run_dir) / fmt::format(".probe-{}", rank);
  const int file = ::open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644);
  if (file < 0) return kNone;
  const std::string block(1 << 20, 'x');
  const auto began = Clock::now();
  const bool is_written =
      ::write(file, block.data(), block.size()) == static_cast<ssize_t>(block.size()) && ::fsync(file) == 0;
  const double took = seconds_since(began);
  ::close(file);
  ::unlink(path.c_str());
  return is_written ? 1e3 * took : kNone;
}

bool is_first_of_host(const std::vector<std::string>& hosts, int rank) {
  const auto own = hosts.begin() + rank;
  return std::find(hosts.begin(), own, *own) == own;
}

struct Quantity {
  const char* name;
  const char* what;
  const char* unit;
  std::vector<double> Probe::*values;
  bool more_is_better;
  double bound;                                 // share of the median at which it is slow
  std::vector<double> Probe::*kinds = nullptr;  // ranks with the same number are compared; null: all
};
const Quantity kQuantities[] = {
    {"gemm_gflops", "products", "GFLOP/s", &Probe::gemm_gflops, true, kLeastShare},
    {"memory_gb_s", "memory", "GB/s", &Probe::memory_gb_s, true, kLeastShare},
    {"ping_us", "a round trip to the next rank", "µs", &Probe::ping_us, false, kLongest, &Probe::next_is_away},
    {"link_mb_s", "messages to the next rank", "MB/s", &Probe::link_mb_s, true, 1 / kLongest, &Probe::next_is_away},
    {"device_link_mb_s", "messages between devices", "MB/s", &Probe::device_link_mb_s, true, 1 / kLongest,
     &Probe::next_device_is_away},
    {"disk_ms", "the disk of the run's folder", "ms", &Probe::disk_ms, false, kLongest},
};

// Adds the ranks of one kind that are far worse than the median of their kind.
void add_slow_parts(const Quantity& quantity, const Probe& probe, double kind, std::vector<SlowPart>& found) {
  const std::vector<double>& values = probe.*quantity.values;
  const auto* kinds = quantity.kinds ? &(probe.*quantity.kinds) : nullptr;
  const auto is_of_kind = [&](size_t rank) { return !kinds || kinds->empty() || (*kinds)[rank] == kind; };
  std::vector<double> known;
  for (size_t rank = 0; rank < values.size(); ++rank)
    if (is_of_kind(rank) && !std::isnan(values[rank])) known.push_back(values[rank]);
  if (known.size() < kLeastMeasured) return;
  const auto middle = known.begin() + static_cast<std::ptrdiff_t>((known.size() - 1) / 2);
  std::ranges::nth_element(known, middle);
  const double limit = quantity.bound * *middle;
  for (size_t rank = 0; rank < values.size(); ++rank) {
    if (is_of_kind(rank) && (quantity.more_is_better ? values[rank] < limit : values[rank] > limit))
      found.push_back({static_cast<int>(rank), quantity.what, quantity.unit, values[rank], *middle});
  }
}

int64_t count_hosts(std::vector<std::string> hosts) {
  std::ranges::sort(hosts);
  return std::unique(hosts.begin(), hosts.end()) - hosts.begin();
}

double rounded(double value) { return std::isfinite(value) ? std::stod(fmt::format("{:.4g}", value)) : value; }

}  // namespace

Probe measure_probe(const Mesh& mesh, at::Device device, const std::string& run_dir) {
  const auto began = Clock::now();
  comm::Communicator& world = mesh.host_group(GroupKind::kWorld);
  const Tensor own = at::full({kNumbers}, kNone, at::kDouble);
  auto* numbers = own.data_ptr<double>();
  numbers[kGemm] = products_gflops(device);
  numbers[kMemory] = copies_gb_s(device);
  const Tensor all_are_here = at::zeros({1}, at::kLong);
  world.all_reduce(all_are_here, comm::Reduction::kMax).wait();
  measure_messages(world, numbers);
  numbers[kDeviceLink] = measure_device_link(mesh, device);
  numbers[kNextIsAway] = next_is_away(mesh, world);
  numbers[kNextDeviceIsAway] = next_is_away(mesh, mesh.group(device_link_group(mesh)));
  if (is_first_of_host(mesh.world().hosts(), world.rank())) numbers[kDisk] = disk_ms(run_dir, world.rank());
  const Tensor all = at::empty({world.size() * kNumbers}, at::kDouble);
  world.all_gather(all, own).wait();
  Probe probe;
  if (!mesh.is_first()) return probe;
  const auto* values = all.const_data_ptr<double>();
  for (int64_t rank = 0; rank < world.size(); ++rank) {
    int64_t number = 0;
    for (const Quantity& quantity : kQuantities) (probe.*quantity.values).push_back(values[rank * kNumbers + number++]);
    probe.next_is_away.push_back(values[rank * kNumbers + kNextIsAway]);
    probe.next_device_is_away.push_back(values[rank * kNumbers + kNextDeviceIsAway]);
  }
  probe.seconds = seconds_since(began);
  return probe;
}

std::vector<SlowPart> find_slow_parts(const Probe& probe) {
  std::vector<SlowPart> slow;
  for (const Quantity& quantity : kQuantities) {
    std::vector<SlowPart> found;
    add_slow_parts(quantity, probe, 0, found);
    if (quantity.kinds && !(probe.*quantity.kinds).empty()) add_slow_parts(quantity, probe, 1, found);
    std::ranges::stable_sort(found, [&](const SlowPart& a, const SlowPart& b) {
      return quantity.more_is_better ? a.value < b.value : a.value > b.value;
    });
    slow.insert(slow.end(), found.begin(), found.end());
  }
  return slow;
}

std::string probe_json(const Probe& probe, const std::vector<SlowPart>& slow, const std::vector<std::string>& hosts,
                       int64_t attempt, int64_t step, const std::string& why) {
  nlohmann::ordered_json json{
      {"time", unix_time_s()}, {"attempt", attempt}, {"step", step}, {"why", why}, {"seconds", rounded(probe.seconds)}};
  for (const Quantity& quantity : kQuantities) {
    auto& list = json[quantity.name] = nlohmann::ordered_json::array();
    for (const double value : probe.*quantity.values)
      list.push_back(std::isfinite(value) ? nlohmann::ordered_json(rounded(value)) : nlohmann::ordered_json());
  }
  auto& named = json["slow"] = nlohmann::ordered_json::array();
  for (const SlowPart& part : slow)
    named.push_back({{"rank", part.rank},
                     {"host", hosts[static_cast<size_t>(part.rank)]},
                     {"what", part.what},
                     {"value", rounded(part.value)},
                     {"median", rounded(part.median)}});
  return json.dump();
}

std::string describe_probe(const Probe& probe, const std::vector<SlowPart>& slow,
                           const std::vector<std::string>& hosts) {
  std::string text =
      fmt::format("ranks: {}, hosts: {}, seconds: {:.2f}\n", hosts.size(), count_hosts(hosts), probe.seconds);
  text += fmt::format("{:<30} {:>10} {:>10} {:>10}\n", "", "least", "median", "greatest");
  for (const Quantity& quantity : kQuantities) {
    std::vector<double> known;
    for (const double value : probe.*quantity.values)
      if (!std::isnan(value)) known.push_back(value);
    if (known.empty()) continue;
    std::ranges::sort(known);
    text += fmt::format("{:<30} {:>10.4g} {:>10.4g} {:>10.4g} {}\n", quantity.what, known.front(),
                        known[(known.size() - 1) / 2], known.back(), quantity.unit);
  }
  const std::string line = describe_slow_parts(slow, hosts);
  return line.empty() ? text : text + line + "\n";
}

std::string describe_slow_parts(const std::vector<SlowPart>& slow, const std::vector<std::string>& hosts) {
  if (slow.empty()) return "";
  std::vector<std::string> parts;
  for (const SlowPart& part : slow)
    parts.push_back(fmt::format("rank {} ({}): {} {:.3g} {}, the median is {:.3g}", part.rank,
                                hosts[static_cast<size_t>(part.rank)], part.what, part.value, part.unit, part.median));
  return "the probe found slow parts: " + join_first(parts, kMostPartsNamed, "; ");
}

void probe_and_record(const Mesh& mesh, const RunContext& at, const ProbedRun& run, const std::string& why) {
  const auto& hosts = mesh.world().hosts();
  const Probe found = measure_probe(mesh, run.device, run.run_dir);
  if (!mesh.is_first()) return;
  const RunFolder folder{run.run_dir};
  std::error_code failed;
  std::filesystem::remove(folder.probe_request(), failed);
  const auto slow = find_slow_parts(found);
  try {
    AppendFile(folder.probes()).append(probe_json(found, slow, hosts, at.attempt, run.step, why) + "\n");
  } catch (const IoError& error) {
    log::warn("the probe is not recorded: {}", error.what());
  }
  const std::string line = describe_slow_parts(slow, hosts);
  if (!line.empty() && !run.shares_cores) log::warn("{}", line);
  if (why != "start")
    log::info("probed the ranks in {:.2f} s; {} has what they measured", found.seconds, folder.probes().string());
}

}  // namespace athanor::inline watch
