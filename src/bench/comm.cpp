// athanor bench comm measures each collective against a memory copy of the same size, alternately in one run, and
// all-to-all against all-gather, as a sparse layer would use them for dispatch. On devices the groups carry tensors of
// the devices, and the copy is one on each device. Rank 0 prints.

#include "bench/comm.h"

#include <ATen/ATen.h>
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "base/core_entry.h"
#include "base/error.h"
#include "base/files.h"
#include "base/launched.h"
#include "base/text.h"
#include "bench/arguments.h"
#include "bench/comm_timer.h"
#include "bench/place.h"
#include "bench/timer.h"
#include "bench/verify.h"
#include "comm/two_level.h"
#include "ops/cpu_allocator.h"
#include "ops/device_choice.h"
#include "ops/transfer.h"
#include "run/in_world.h"
#include "run/rank_devices.h"
#include "run/same_settings.h"

namespace athanor::bench {
namespace {

using at::Tensor;
using comm::Communicator;

struct Ranks {
  comm::World& world;
  at::Device device;
  std::unique_ptr<Communicator> on_devices;    // all ranks, unless the device is the CPU
  std::unique_ptr<Communicator> inner, outer;  // groups of the two-level forms, if they were asked for

  // All ranks, for the tensors that are measured.
  Communicator& all() const { return on_devices ? *on_devices : world.all(); }
  bool speaks() const { return world.rank() == 0; }
  at::TensorOptions options(at::ScalarType dtype) const { return at::TensorOptions(dtype).device(device); }
  std::vector<double> time(const std::vector<Joint>& subjects, int rounds) const {
    return time_jointly(world.all(), subjects, rounds, device);
  }
};

std::vector<std::vector<int>> runs_of(int size, int length) {
  std::vector<std::vector<int>> groups(static_cast<size_t>(size / length));
  for (int rank = 0; rank < size; ++rank) groups[static_cast<size_t>(rank / length)].push_back(rank);
  return groups;
}

std::vector<std::vector<int>> strides_of(int size, int stride) {
  std::vector<std::vector<int>> groups(static_cast<size_t>(stride));
  for (int rank = 0; rank < size; ++rank) groups[static_cast<size_t>(rank % stride)].push_back(rank);
  return groups;
}

// Verifies sums of small integers, which are exact in every type and order.
void verify(const Ranks& ranks, at::ScalarType dtype) {
  Communicator& all = ranks.all();
  const int64_t n = all.size(), part = 1000;
  const auto require = [](const Tensor& found, const Tensor& expected, const char* what) {
    spoil_if_asked(found);
    ATHANOR_CHECK_AS(Error, ops::fetch(found).equal(expected), "wrong, so not timed: {}", what);
  };
  const auto ones = [&](double value, int64_t size) { return at::full({size}, value, ranks.options(dtype)); };
  const auto all_are = [&](double value, int64_t size) { return at::full({size}, value, dtype); };
  const double sum = static_cast<double>(n * (n + 1)) / 2, mine = all.rank() + 1;
  const Tensor x = ones(mine, n * part), y = at::empty({part}, ranks.options(dtype)), z = at::empty_like(x);
  const Tensor rank_of = at::arange(n).repeat_interleave(part).to(dtype) + 1;
  all.reduce_scatter(y, x).wait();
  require(y, all_are(sum, part), "reduce_scatter");
  all.all_to_all(z, x).wait();
  require(z, rank_of, "all_to_all");
  all.all_gather(z, ones(mine, part)).wait();
  require(z, rank_of, "all_gather");
  all.all_reduce(x).wait();
  require(x, all_are(sum, n * part), "all_reduce");
  const Tensor root = ones(mine, part);
  all.broadcast(root, static_cast<int>(n) - 1).wait();
  require(root, all_are(static_cast<double>(n), part), "broadcast");
  if (!ranks.inner) return;
  comm::TwoLevel two(*ranks.inner, *ranks.outer);
  const Tensor w = ones(mine, n * part);
  two.all_to_all(z, w).wait();
  require(z, rank_of, "two-level all_to_all");
  two.all_reduce(w).wait();
  require(w, all_are(sum, n * part), "two-level all_reduce");
}

// Sends there and back between ranks 2i and 2i + 1. The time of a call is one way, the average of two.
void ping_pong(Communicator& all, const Tensor& x, int64_t& turn) {
  const int peer = all.rank() ^ 1;
  if (peer >= all.size()) return;
  const bool sends = (all.rank() & 1) == static_cast<int>(turn++ & 1);
  (sends ? all.send(x, peer) : all.receive(x, peer)).wait();
}

std::vector<Joint> collectives(const Ranks& ranks, int64_t bytes, at::ScalarType dtype) {
  Communicator& all = ranks.all();
  const int64_t n = all.size();
  const int64_t part = std::max<int64_t>(1, bytes / static_cast<int64_t>(at::elementSize(dtype)) / n);
  const Tensor x = at::ones({n * part}, ranks.options(dtype)), y = at::ones_like(x),
               piece = at::ones({part}, ranks.options(dtype));
  const auto b = static_cast<double>(x.nbytes()), share = static_cast<double>(n - 1) / static_cast<double>(n);
  const auto turn = std::make_shared<int64_t>(0);
  std::vector<Joint> subjects = {
      {"copy", b, [=] { Tensor(y).copy_(x); }},
      // A mean keeps values that are reduced repeatedly at the same size.
      {"all_reduce", 2 * b * share, [=, &all] { all.all_reduce(x, comm::Reduction::kMean).wait(); }},
      {"reduce_scatter", b * share, [=, &all] { all.reduce_scatter(piece, x, comm::Reduction::kMean).wait(); }},
      {"all_gather", b * share, [=, &all] { all.all_gather(y, piece).wait(); }},
      {"all_to_all", b * share, [=, &all] { all.all_to_all(y, x).wait(); }},
      {"broadcast", b, [=, &all] { all.broadcast(x, 0).wait(); }},
      {"send", b, [=, &all] { ping_pong(all, y, *turn); }},
  };
  if (ranks.inner) {
    const auto two = std::make_shared<comm::TwoLevel>(*ranks.inner, *ranks.outer);
    subjects.push_back({"2l all_reduce", 2 * b * share, [=] { two->all_reduce(x, comm::Reduction::kMean).wait(); }});
    subjects.push_back({"2l all_to_all", b * share, [=] { two->all_to_all(y, x).wait(); }});
  }
  return subjects;
}

std::string size_text(int64_t bytes) {
  if (bytes >= 1 << 20 && bytes % (1 << 20) == 0) return fmt::format("{} MiB", bytes >> 20);
  return bytes % 1024 == 0 ? fmt::format("{} KiB", bytes >> 10) : fmt::format("{} B", bytes);
}

void print_head(const std::vector<Joint>& subjects) {
  fmt::print("{:>9}", "");
  for (const Joint& subject : subjects) fmt::print(" {:>15}", subject.name);
  fmt::print("\n");
}

nlohmann::json measure_collectives(const Ranks& ranks, const BenchCommArguments& given, at::ScalarType dtype) {
  struct Row {
    int64_t bytes;
    std::vector<Joint> subjects;
    std::vector<double> seconds;
  };
  std::vector<Row> rows;
  for (int64_t bytes = given.least_bytes; bytes <= given.most_bytes; bytes *= 4) {
    Row row{bytes, collectives(ranks, bytes, dtype), {}};
    row.seconds = ranks.time(row.subjects, given.rounds);
    for (Joint& subject : row.subjects) subject.call = nullptr;  // and its tensors
    rows.push_back(std::move(row));
  }
  nlohmann::json list = nlohmann::json::array();
  if (!ranks.speaks() || rows.empty()) return list;
  fmt::print("\nGB/s a rank (bytes it sends, or copies), and the share of what all ranks copy at once\n");
  print_head(rows[0].subjects);
  for (const Row& row : rows) {
    fmt::print("{:>9}", size_text(row.bytes));
    const double copy = row.subjects[0].bytes / row.seconds[0];
    for (size_t i = 0; i < row.subjects.size(); ++i) {
      const double rate = row.subjects[i].bytes / row.seconds[i];
      fmt::print(" {:>15}", i == 0 ? fmt::format("{:.2f}", rate * 1e-9)
                                   : fmt::format("{:.2f} {:5.1f}%", rate * 1e-9, 100 * rate / copy));
      list.push_back({{"name", row.subjects[i].name},
                      {"bytes", row.bytes},
                      {"sent", row.subjects[i].bytes},
                      {"median_s", row.seconds[i]},
                      {"rate", rate},
                      {"copy_share", rate / copy}});
    }
    fmt::print("\n");
  }
  fmt::print("\nmicroseconds a call\n");
  print_head(rows[0].subjects);
  for (const Row& row : rows) {
    fmt::print("{:>9}", size_text(row.bytes));
    for (const double seconds : row.seconds) fmt::print(" {:>15.1f}", 1e6 * seconds);
    fmt::print("\n");
  }
  return list;
}

// Two ways to send the tokens of a sparse layer: every token to every rank and the sum of their outputs back, or each
// token to the ranks that own some of its experts, and as many rows back.
struct Dispatches {
  int64_t rows;  // rows of a rank's tokens that another rank needs, under uniform routing
  std::vector<Joint> subjects;
};

Dispatches dispatches(Communicator& group, at::TensorOptions options, int64_t tokens, const BenchCommArguments& given) {
  const int64_t e = group.size();
  const double wanted = 1 - std::pow(1 - 1.0 / static_cast<double>(e), static_cast<double>(given.topk));
  const auto rows = std::max<int64_t>(1, std::llround(wanted * static_cast<double>(tokens)));
  const Tensor mine = at::ones({tokens, given.hidden}, options), all = at::ones({e * tokens, given.hidden}, options);
  std::vector<int64_t> counts(static_cast<size_t>(e), rows);
  counts[static_cast<size_t>(group.rank())] = 0;  // a rank does not send its own rows
  const Tensor to = at::ones({(e - 1) * rows, given.hidden}, options), from = at::ones_like(to);
  const auto width = static_cast<double>(2 * given.hidden * (e - 1));
  return {rows,
          {{"all_gather", width * static_cast<double>(tokens), [=, &group] { group.all_gather(all, mine).wait(); }},
           {"reduce_scatter", width * static_cast<double>(tokens),
            [=, &group] { group.reduce_scatter(mine, all, comm::Reduction::kMean).wait(); }},
           {"all_to_all", width * static_cast<double>(rows),
            [=, &group] { group.all_to_all(from, to, counts, counts).wait(); }}}};
}

nlohmann::json measure_dispatches(const Ranks& ranks, const BenchCommArguments& given) {
  nlohmann::json list = nlohmann::json::array();
  const int n = ranks.world.size();
  if (ranks.speaks()) {
    fmt::print(
        "\nA sparse layer's tokens, {} wide in bfloat16, {} experts each over E ranks: milliseconds of dispatch and "
        "combine\n{:>4} {:>8} {:>14} {:>18} {:>14} {:>12} {:>14}\n",
        given.hidden, given.topk, "E", "tokens", "all_gather +", "reduce_scatter =", "together", "rows sent",
        "2 all_to_all");
  }
  for (int e = 2; e <= n; ++e) {
    if (n % e != 0) continue;
    const auto group = ranks.world.make_group(runs_of(n, e), "expert", ranks.device);
    for (const int64_t tokens : given.tokens) {
      const Dispatches both = dispatches(*group, ranks.options(at::kBFloat16), tokens, given);
      const auto seconds = ranks.time(both.subjects, given.rounds);
      const double gather_s = seconds[0] + seconds[1], exchange_s = 2 * seconds[2];
      list.push_back({{"expert_degree", e},
                      {"tokens", tokens},
                      {"rows", both.rows},
                      {"all_gather_s", seconds[0]},
                      {"reduce_scatter_s", seconds[1]},
                      {"all_to_all_s", seconds[2]}});
      if (ranks.speaks()) {
        fmt::print("{:>4} {:>8} {:>14.3f} {:>18.3f} {:>14.3f} {:>12} {:>14.3f}  all_to_all takes {:.2f} of it\n", e,
                   tokens, 1e3 * seconds[0], 1e3 * seconds[1], 1e3 * gather_s, both.rows * (e - 1), 1e3 * exchange_s,
                   exchange_s / gather_s);
      }
    }
  }
  return list;
}

// Collective.
Ranks join_ranks(comm::World& world, const BenchCommArguments& given) {
  Ranks ranks{world, agree_on_devices(given.device, "--device", world), nullptr, nullptr, nullptr};
  const int n = world.size();
  if (!ranks.device.is_cpu()) ranks.on_devices = world.make_group(runs_of(n, n), "all", ranks.device);
  if (given.inner > 1) {
    ranks.inner = world.make_group(runs_of(n, given.inner), "inner", ranks.device);
    ranks.outer = world.make_group(strides_of(n, given.inner), "outer", ranks.device);
  }
  return ranks;
}

// Returns "", or ", a device for each rank (NVIDIA H200)".
std::string describe_devices(at::Device device) {
  const auto facts = ops::facts_of(device);
  if (!facts) return "";
  return fmt::format(", a device for each rank ({})", facts->name.empty() ? device.str() : facts->name);
}

}  // namespace

// What decides which collectives a rank calls. The report is the first rank's.
Options compared_options(const BenchCommArguments& given) {
  return {{"--least", std::to_string(given.least_bytes)},
          {"--most", std::to_string(given.most_bytes)},
          {"--dtype", given.dtype},
          {"--device", given.device},
          {"--inner", std::to_string(given.inner)},
          {"--hidden", std::to_string(given.hidden)},
          {"--topk", std::to_string(given.topk)},
          {"--tokens", fmt::format("{}", fmt::join(given.tokens, ","))},
          {"--rounds", std::to_string(given.rounds)}};
}

void measure_comm(comm::World& world, const BenchCommArguments& given) {
  const Ranks ranks = join_ranks(world, given);
  const at::ScalarType dtype = dtypes_of(given.dtype).front();
  verify(ranks, dtype);
  if (ranks.speaks()) {
    fmt::print(
        "{} ranks on {} host(s) by {}{}, {}, {} alternating rounds; verified: every collective on small integers\n",
        world.size(), std::set<std::string>(world.hosts().begin(), world.hosts().end()).size(), launched().launcher,
        describe_devices(ranks.device), given.dtype, given.rounds);
  }
  nlohmann::json report;
  report["collectives"] = measure_collectives(ranks, given, dtype);
  const double barrier_s =
      time_jointly(world.all(), {{"barrier", 0, [&] { world.all().barrier(); }}}, given.rounds).front();
  report["barrier_s"] = barrier_s;
  if (ranks.speaks())
    fmt::print("\nbarrier{}: {:.1f} microseconds\n", ranks.on_devices ? " of the hosts" : "", 1e6 * barrier_s);
  report["dispatches"] = measure_dispatches(ranks, given);
  report["ranks"] = world.size();
  report = with_device(report, ranks.device);
  if (ranks.speaks() && !given.json.empty()) write_file_atomically(given.json, report.dump(1) + "\n");
}

}  // namespace athanor::bench

ATHANOR_CORE_ENTRY(bench_comm) {
  using namespace athanor;
  const auto& given = *static_cast<const BenchCommArguments*>(arguments);
  bench::set_up(given);
  const int size = launched().size;
  ATHANOR_CHECK(size > 1,
                "bench comm measures what ranks do together: mpirun -n 4 athanor bench comm; or, without MPI, by a "
                "launcher that sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT: torchrun --no-python "
                "--nproc-per-node 4 athanor bench comm");
  ATHANOR_CHECK(given.inner == 0 || size % given.inner == 0, "--inner ({}) must divide the number of ranks ({})",
                given.inner, size);
  ATHANOR_CHECK(!given.paced, "--paced is for benchmarks of one process");
  ops::install_caching_cpu_allocator();  // as in training: memory between the hops of two levels is reused
  return in_world({}, [&](comm::World& world, RunContext&) {
    require_same_options(bench::compared_options(given), world);
    bench::measure_comm(world, given);
    return 0;
  });
}
