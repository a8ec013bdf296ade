// A job of real processes for the tests of tests/mpi. It compares each collective with its definition, and can fail in
// several ways.
//
//   mpirun -n 4 comm_ranks collectives     every collective, type, group and alias; bytes
//   mpirun -n 2 comm_ranks overlap         messages move while the caller does something else
//   mpirun -n 4 comm_ranks throw RANK      that rank throws at step 7 while the others wait for it
//   mpirun -n 4 comm_ranks throw all       all ranks throw
//   mpirun -n 4 comm_ranks disorder RANK   that rank calls something else, in check mode
//   mpirun -n 4 comm_ranks freeze RANK     that rank is stopped (SIGSTOP); a collective may take two seconds
//   mpirun -n 4 comm_ranks die RANK        that rank is killed while the others wait for it
//   mpirun -n 4 comm_ranks elsewhere RANK  that rank is killed, and the others wait for something else
//   comm_ranks serve                       serves a store as torchrun's agent does, until standard input ends

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/core.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <thread>

#include "base/error.h"
#include "base/failure.h"
#include "base/log.h"
#include "base/process.h"
#include "comm/device_backend.h"
#include "comm/testing/collectives.h"
#include "comm/two_level.h"
#include "run/in_world.h"

#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

namespace athanor::comm {
namespace {

using namespace std::chrono_literals;

template <class... Args>
void require(bool right, fmt::format_string<Args...> what, Args&&... args) {
  if (!right) fail<Error>("wrong: {}", fmt::vformat(what, fmt::make_format_args(args...)));
}

constexpr at::ScalarType kTypes[] = {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble, at::kLong};

std::vector<Tensor> terms_of(const Communicator& group, int call, int64_t count, at::ScalarType type) {
  std::vector<Tensor> terms;
  for (const int rank : group.options().world_ranks) terms.push_back(term_of(rank, call, count, type));
  return terms;
}

const Tensor& own(const Communicator& group, const std::vector<Tensor>& all) {
  return all[static_cast<size_t>(group.rank())];
}

void check_sums(Communicator& group) {
  int call = 0;
  for (const auto type : kTypes) {
    for (const Reduction reduction : {Reduction::kSum, Reduction::kMean, Reduction::kMax}) {
      if (type == at::kLong && reduction == Reduction::kMean) continue;
      for (const int64_t count : {1, 3, 1000, 9001}) {
        const auto terms = terms_of(group, ++call, count, type);
        const Tensor x = own(group, terms).clone();
        group.all_reduce(x, reduction).wait();
        require(same_bits(x, tree_of(terms, reduction)), "all_reduce of {} x {} in group {}", count, at::toString(type),
                group.name());
      }
      const int64_t part = 777, n = group.size();
      const auto terms = terms_of(group, ++call, part * n, type);
      std::vector<Tensor> mine;
      for (const Tensor& term : terms) mine.push_back(term.narrow(0, group.rank() * part, part));
      const Tensor in = own(group, terms).clone(), out = at::empty({part}, in.options());
      group.reduce_scatter(out, in, reduction).wait();
      require(same_bits(out, tree_of(mine, reduction)), "reduce_scatter of {}", at::toString(type));
      require(same_bits(in, own(group, terms)), "reduce_scatter changed its terms");
      group.reduce_scatter(in.narrow(0, group.rank() * part, part), in, reduction).wait();
      require(same_bits(in.narrow(0, group.rank() * part, part), out), "reduce_scatter in place");
    }
  }
}

void check_exchanges(Communicator& group) {
  const int n = group.size(), me = group.rank();
  const auto n64 = static_cast<int64_t>(n);
  for (const auto type : {at::kFloat, at::kBFloat16, at::kByte}) {
    const Tensor all = at::arange(n64 * 501).remainder(251).to(type), out = at::zeros_like(all);
    group.all_gather(out, all.narrow(0, me * 501, 501).clone()).wait();
    require(same_bits(out, all), "all_gather");
    out.narrow(0, (me + 1) % n * 501, 501).zero_();
    group.all_gather(out, out.narrow(0, me * 501, 501)).wait();
    require(n == 1 || same_bits(out, all), "all_gather in place");

    // Row p of rank r has the value r · n + p.
    const Tensor in = (at::arange(n64) + me * n).repeat_interleave(333).to(type);
    const Tensor expected = (at::arange(n64) * n + me).repeat_interleave(333).to(type), got = at::empty_like(in);
    group.all_to_all(got, in).wait();
    require(same_bits(got, expected), "all_to_all");
  }
  for (int root = 0; root < n; ++root) {
    const Tensor x = at::full({4097}, static_cast<double>(me));
    group.broadcast(x, root).wait();
    require(x.eq(static_cast<double>(root)).all().item<bool>(), "broadcast from {}", root);
  }
  // Eight chunks of a mebibyte and a short one, which a library may deliver before those in front of it.
  const Tensor long_text = at::arange((2 << 20) + 10, at::kFloat);
  for (int round = 0; round < 5; ++round) {
    const Tensor x = me == 0 ? long_text : at::zeros_like(long_text);
    group.broadcast(x, 0).wait();
    require(x.equal(long_text), "a broadcast of 8 MiB");
  }
  if (n > 1) {
    const Tensor from = at::full({3}, -1.0);
    Pending received = group.receive(from, (me + n - 1) % n);
    group.send(at::full({3}, static_cast<double>(me)), (me + 1) % n).wait();
    received.wait();
    require(from.eq(static_cast<double>((me + n - 1) % n)).all().item<bool>(), "a ring of sends");
  }
  group.barrier();
}

// Rows from s to t: some pairs have none; the last rank sends nothing, rank 1 gets nothing.
int64_t rows_between(int s, int t, int n) { return (s == n - 1 && n > 1) || t == 1 ? 0 : (3 * s + 5 * t) % 4; }

struct Rows {
  std::vector<int64_t> in, out;
  Tensor sent, expected;
};

Rows rows_of(const Communicator& group) {
  const int n = group.size(), me = group.rank();
  Rows rows;
  std::vector<Tensor> sent{at::empty({0, 5})}, expected{at::empty({0, 5})};
  for (int p = 0; p < n; ++p) {
    rows.in.push_back(rows_between(me, p, n));
    rows.out.push_back(rows_between(p, me, n));
    sent.push_back(at::full({rows.in.back(), 5}, static_cast<double>(me * n + p)));
    expected.push_back(at::full({rows.out.back(), 5}, static_cast<double>(p * n + me)));
  }
  rows.sent = at::cat(sent);
  rows.expected = at::cat(expected);
  return rows;
}

void check_rows(Communicator& group) {
  const Rows rows = rows_of(group);
  const Tensor got = at::zeros_like(rows.expected);
  group.reset_traffic();
  group.all_to_all(got, rows.sent, rows.out, rows.in).wait();
  require(same_bits(got, rows.expected), "uneven all_to_all");
  for (int p = 0; p < group.size(); ++p) {
    const auto i = static_cast<size_t>(p);
    const int64_t bytes = p == group.rank() ? 0 : rows.in[i] * 5 * 4;
    require(group.traffic().bytes_to[i] == bytes, "{} bytes to member {}, of {}", group.traffic().bytes_to[i], p,
            bytes);
  }
}

void check_bytes(Communicator& group) {
  const int64_t n = group.size(), b = n * 4096 * 4;
  const Tensor x = at::ones({n * 4096}), y = at::empty_like(x), part = at::empty({4096});
  const auto sent = [&](const auto& collective) {
    group.reset_traffic();
    collective();
    return group.traffic().bytes();
  };
  const int64_t share = b * (n - 1) / n;
  require(sent([&] { group.reduce_scatter(part, x).wait(); }) == share, "bytes of reduce_scatter");
  require(sent([&] { group.all_gather(y, part).wait(); }) == share, "bytes of all_gather");
  require(sent([&] { group.all_to_all(y, x).wait(); }) == share, "bytes of all_to_all");
  const Tensor large = at::ones({n * 65536});
  require(sent([&] { group.all_reduce(large).wait(); }) == 2 * (n - 1) * 65536 * 4, "bytes of a large all_reduce");
  const Tensor total = at::full({1}, sent([&] { group.broadcast(x, 0).wait(); }), at::kLong);
  group.all_reduce(total).wait();
  require(total.item<int64_t>() == b * (n - 1), "bytes of broadcast, of all ranks");
}

// Starts many at once and waits for them in reverse order, in two groups whose members differ.
void check_several(World& world) {
  const int n = world.size();
  std::vector<std::vector<int>> by_parity(n > 1 ? 2 : 1), backwards(1);
  for (int r = 0; r < n; ++r) {
    by_parity[static_cast<size_t>(r) % by_parity.size()].push_back(r);
    backwards[0].push_back(n - 1 - r);
  }
  const auto half = world.make_group(by_parity, "parity"), mirrored = world.make_group(backwards, "mirrored");
  check_sums(*half);
  check_exchanges(*half);
  check_rows(*half);
  check_exchanges(*mirrored);
  std::vector<Tensor> results;
  std::vector<Pending> underway;
  std::vector<std::vector<Tensor>> terms;
  for (int i = 0; i < 12; ++i) {
    Communicator& group = i % 3 == 0 ? world.all() : i % 3 == 1 ? *half : *mirrored;
    terms.push_back(terms_of(group, 500 + i, 30'000 + i, at::kFloat));
    results.push_back(own(group, terms.back()).clone());
    underway.push_back(group.all_reduce(results.back()));
  }
  for (size_t i = underway.size(); i-- > 0;) underway[i].wait();
  for (size_t i = 0; i < results.size(); ++i) {
    require(same_bits(results[i], tree_of(terms[i], Reduction::kSum)), "all_reduce {} of those under way together", i);
  }
}

void check_two_level(World& world) {
  const int n = world.size();
  for (int inner = 1; inner <= n; ++inner) {
    if (n % inner != 0) continue;
    std::vector<std::vector<int>> places(static_cast<size_t>(n / inner)), across(static_cast<size_t>(inner));
    for (int r = 0; r < n; ++r) {
      places[static_cast<size_t>(r / inner)].push_back(r);
      across[static_cast<size_t>(r % inner)].push_back(r);
    }
    const auto inside = world.make_group(places, "inner"), outside = world.make_group(across, "outer");
    TwoLevel two(*inside, *outside);
    const Rows rows = rows_of(world.all());
    const Tensor got = at::zeros_like(rows.expected);
    two.all_to_all(got, rows.sent, rows.out, rows.in).wait();
    require(same_bits(got, rows.expected), "two-level all_to_all, {} inside", inner);
    if ((inner & (inner - 1)) != 0) continue;
    for (const auto type : {at::kFloat, at::kBFloat16}) {
      const auto terms = terms_of(world.all(), 900 + inner, 5001, type);
      const Tensor x = own(world.all(), terms).clone();
      two.all_reduce(x).wait();
      require(same_bits(x, tree_of(terms, Reduction::kSum)), "two-level all_reduce of {}, {} inside",
              at::toString(type), inner);
    }
  }
}

void check_store(World& world) {
  const auto store = open_store(world, 30s);
  store->set("rank" + std::to_string(world.rank()), std::vector<uint8_t>{static_cast<uint8_t>(world.rank())});
  for (int r = 0; r < world.size(); ++r) {
    require(store->get("rank" + std::to_string(r)).at(0) == static_cast<uint8_t>(r), "the store of device groups");
  }
  world.all().barrier();  // rank 0 serves until all have read
}

int collectives(World& world) {
  check_sums(world.all());
  check_exchanges(world.all());
  check_rows(world.all());
  check_bytes(world.all());
  check_several(world);
  check_two_level(world);
  if (world.size() > 1) check_store(world);
  world.all().barrier();
  if (world.rank() == 0) fmt::print("every collective is right on {} ranks\n", world.size());
  return 0;
}

double seconds(const std::function<void()>& call) {
  const auto start = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// A caller that computes three times as long as an all-reduce takes has little left to wait for.
int overlap(World& world) {
  const Tensor x = at::ones({8 << 20});
  double alone_s = 0, waited_s = 0;
  for (int attempt = 0; attempt < 8; ++attempt) {
    world.all().barrier();
    alone_s = seconds([&] { world.all().all_reduce(x, Reduction::kMean).wait(); });
    world.all().barrier();
    Pending underway = world.all().all_reduce(x, Reduction::kMean);
    std::this_thread::sleep_for(std::chrono::duration<double>(3 * alone_s));
    waited_s = seconds([&] { underway.wait(); });
    const Tensor worst = at::full({1}, waited_s / alone_s, at::kDouble);
    world.all().all_reduce(worst, Reduction::kMax).wait();
    if (worst.item<double>() < 0.3) {
      if (world.rank() == 0) fmt::print("waited {:.4f} s for what takes {:.4f} s alone\n", waited_s, alone_s);
      return 0;
    }
  }
  fail<Error>("waited {:.4f} s for what takes {:.4f} s alone: messages do not move by themselves", waited_s, alone_s);
}

int misbehave(World& world, RunContext& at, const std::string& how, const std::string& who) {
  const bool mine = who == "all" || std::stoi(who) == world.rank();
  const Tensor x = at::ones({100'000});
  for (at.step = 1; at.step < 7; ++at.step) world.all().all_reduce(x, Reduction::kMean).wait();
  if (mine && how == "throw") fail<DataError>("shard 3 is short");
  if (mine && how == "disorder") world.all().broadcast(x, 0).wait();
  if (mine && how == "freeze") ::raise(SIGSTOP);
  if (mine && (how == "die" || how == "elsewhere")) ::raise(SIGKILL);
  if (how == "elsewhere") std::this_thread::sleep_for(100s);
  world.all().all_reduce(x, Reduction::kMean).wait();
  world.all().barrier();
  return 0;
}

int serve() {
  c10d::TCPStoreOptions options;
  options.isServer = true;
  options.port = 0;  // any free port
  options.waitWorkers = false;
  const c10d::TCPStore store("localhost", options);
  fmt::print("{}\n", store.getPort());
  std::fflush(stdout);
  while (std::getchar() != EOF) {
  }
  return 0;
}

int run(int argc, char** argv) {
  at::set_num_threads(1);
  const std::string mode = argc > 1 ? argv[1] : "", who = argc > 2 ? argv[2] : "0";
  if (mode == "serve") return serve();
  WorldOptions options;
  options.check = mode == "disorder";
  options.timeout = mode == "freeze" ? 2s : 60s;
  return in_world(options, [&](World& world, RunContext& at) {
    if (mode == "collectives") return collectives(world);
    if (mode == "overlap") return overlap(world);
    return misbehave(world, at, mode, who);
  });
}

}  // namespace
}  // namespace athanor::comm

int main(int argc, char** argv) {
  try {
    return athanor::comm::run(argc, argv);
  } catch (...) {
    const athanor::Failure failure = athanor::describe_failure(std::current_exception());
    athanor::log::error("{}", failure.message);
    return failure.exit_code;
  }
}
