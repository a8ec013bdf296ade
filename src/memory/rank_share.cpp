#include "memory/rank_share.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include "base/process.h"
#include "base/start_processors.h"
#include "base/text.h"
#include "base/thread_waits.h"
#include "layout/memory.h"

namespace athanor::inline memory {
namespace {

constexpr int64_t kWords = CPU_SETSIZE / 64;

// Returns a bit for each processor that this process is bound to.
Tensor own_processors() {
  const cpu_set_t& set = start_processors().affinity;
  Tensor words = at::zeros({kWords}, at::kLong);
  auto* word = words.data_ptr<int64_t>();
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) word[cpu / 64] |= static_cast<int64_t>(uint64_t{1} << (cpu % 64));
  }
  return words;
}

int count_bits(const std::array<uint64_t, kWords>& words) {
  int bits = 0;
  for (const uint64_t word : words) bits += std::popcount(word);
  return bits;
}

// Counts the processors that any rank of this host is bound to, or those of its quota if that is less.
int count_processors_of_host(comm::World& world, const ThreadLimits& limits) {
  const Tensor all = at::empty({world.size(), kWords}, at::kLong);
  world.all().all_gather(all, own_processors()).wait();
  std::array<uint64_t, kWords> together{};
  for (int rank = 0; rank < world.size(); ++rank) {
    if (world.hosts()[static_cast<size_t>(rank)] != world.host()) continue;
    const int64_t* words = all[rank].const_data_ptr<int64_t>();
    for (size_t i = 0; i < together.size(); ++i) together[i] |= static_cast<uint64_t>(words[i]);
  }
  // Fewer than those it is bound to: a control group has a quota, which all ranks of the host share.
  const bool has_quota = limits.processors < CPU_COUNT(&start_processors().affinity);
  return has_quota ? std::min(count_bits(together), limits.processors) : count_bits(together);
}

}  // namespace

int count_ranks_of_host(const comm::World& world) {
  return static_cast<int>(std::ranges::count(world.hosts(), world.host()));
}

ThreadShare threads_of_rank(comm::World& world, int64_t wanted) {
  if (wanted > 0)
    return {.threads = thread_count("train.num_threads", wanted), .asked_for = true, .why = "train.num_threads"};
  ThreadLimits limits = find_thread_limits();
  if (world.size() > 1) {
    limits.of_host = count_processors_of_host(world, limits);
    limits.ranks_of_host = count_ranks_of_host(world);
  }
  return share_threads(limits);
}

bool share_cores(comm::World& world, int threads) {
  if (world.size() == 1) return false;
  return count_ranks_of_host(world) * threads > count_processors_of_host(world, find_thread_limits());
}

bool may_try_threads(const ThreadShare& share) { return !share.asked_for && share.multiply && share.threads > 1; }

std::string describe_threads(const ThreadShare& share, bool on_each_rank) {
  const std::string count = fmt::format("{} thread{}{} ({})", share.threads, share.threads == 1 ? "" : "s",
                                        on_each_rank ? " on each rank" : "", share.why);
  if (share.threads == 1) return count;
  return fmt::format("{}; waiting threads {}{}", count, describe_thread_waits(),
                     may_try_threads(share) ? "; fewer are tried during the run" : "");
}

std::vector<int64_t> gather_threads(comm::World& world, int threads) {
  const Tensor all = at::empty({world.size()}, at::kLong);
  world.all().all_gather(all, at::full({1}, threads, at::kLong)).wait();
  const auto* count = all.const_data_ptr<int64_t>();
  return {count, count + world.size()};
}

int64_t usual_threads(const std::vector<int64_t>& threads) {
  std::map<int64_t, int64_t> ranks_with;
  for (const int64_t count : threads) ++ranks_with[count];
  const auto fewer_ranks = [](const auto& a, const auto& b) {
    return std::tie(a.second, a.first) < std::tie(b.second, b.first);
  };
  return std::ranges::max_element(ranks_with, fewer_ranks)->first;
}

std::string describe_fewer_threads(const std::vector<int64_t>& threads, const std::vector<std::string>& hosts) {
  const int64_t usual = usual_threads(threads);
  std::vector<std::string> slow;
  for (size_t rank = 0; rank < threads.size(); ++rank) {
    if (threads[rank] < usual) slow.push_back(fmt::format("rank {} ({}) with {}", rank, hosts[rank], threads[rank]));
  }
  if (slow.empty()) return "";
  return fmt::format(
      "{} of {} ranks have fewer threads than the others with {}, and each step waits for them: {}. "
      "Bind every rank to as many processors, and give all the same OMP_NUM_THREADS",
      slow.size(), threads.size(), usual, join_first(slow, 4));
}

std::string describe_layout(const TrainState& state) {
  const Layout& layout = state.model.mesh.layout();
  const ParameterStore& store = state.model.parameters;
  const size_t weights = store.compute().nbytes(), gradients = store.grad().nbytes(),
               low = store.master_low().defined() ? store.master_low().nbytes() : 0,
               kept = static_cast<size_t>(state.optimizer.set.state_bytes()) + low;
  const auto text = [](size_t b) { return format_bytes(static_cast<double>(b)); };
  const auto& p = state.config.parallelism;
  std::string cut;
  if (layout.tensor() > 1)
    cut += fmt::format(", tensor {}{}", layout.tensor(), p.sequence_parallel ? " with sequence parallelism" : "");
  if (layout.pipeline() > 1) {
    cut += fmt::format(", pipeline {}", layout.pipeline());
    if (p.virtual_stages > 1) cut += fmt::format(" of {} stages each", p.virtual_stages);
    cut += fmt::format(" ({}, {} microbatches)", p.pipeline_schedule.word(), layout.microbatches());
  }
  return fmt::format(
      "{} ranks: replicate {} x shard {}, expert {}{}; sharding {}: {} of state on {} ({} weights, {} gradients, {} "
      "moments and what the master has in addition to the weights)",
      layout.world_size(), layout.replicate(), layout.shard(), layout.expert(), cut, p.sharding.word(),
      text(weights + gradients + kept), layout.tensor() * layout.pipeline() > 1 ? "the first rank" : "each rank",
      text(weights), text(gradients), text(kept));
}

}  // namespace athanor::inline memory
