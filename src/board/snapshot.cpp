#include "board/snapshot.h"

#include <sched.h>

#include <algorithm>

#include "base/wall_clock.h"
#include "board/process_state.h"

namespace athanor::board {
namespace {

constexpr int kTries = 10'000;  // a change takes some tens of nanoseconds: this many tries are a stopped writer

std::string state_name(const Identity& identity) {
  if (identity.state.load(std::memory_order_acquire) == SlotState::kEnded) return "ended";
  switch (state_of_process(identity.process, identity.process_start)) {
    case ProcessState::kRunning: return "running";
    case ProcessState::kStopped: return "stopped";
    case ProcessState::kGone: return "gone";
  }
  return "gone";
}

double seconds_between(int64_t begin_ns, int64_t end_ns) {
  return static_cast<double>(std::max<int64_t>(0, end_ns - begin_ns)) / 1e9;
}

GroupReport report_of_group(const Record& record, uint32_t index, uint64_t identity) {
  const GroupName& group = record.groups[index];
  char name[sizeof(group.name) + 1] = {};
  std::copy(std::begin(group.name), std::end(group.name), name);
  return {identity, name, group.size, record.started[index].load(std::memory_order_relaxed)};
}

RankReport report_of_rank(const Record& record) {
  const Identity& identity = record.identity;
  const LiveCopy live = copy_live(record.live);
  const int64_t now = clock_ns();
  RankReport rank;
  rank.rank = identity.rank;
  rank.process = identity.process;
  rank.state = state_name(identity);
  rank.attempt = identity.attempt;
  rank.step = live.step;
  rank.phase = phase_name(live.phase);
  rank.microbatch = live.microbatch;
  rank.phase_s = seconds_between(live.phase_ns, now);
  rank.change_s = seconds_between(live.changed_ns, now);
  rank.torn = live.torn;
  for (uint32_t i = 0; i < kMaxGroups && rank.state != "ended"; ++i) {
    const uint64_t group = record.groups[i].identity.load(std::memory_order_acquire);
    if (group != 0) rank.groups.push_back(report_of_group(record, i, group));
  }
  if (live.wait_group < 0 || live.wait_group >= static_cast<int32_t>(kMaxGroups) || rank.state == "ended") return rank;
  const auto at = static_cast<uint32_t>(live.wait_group);
  const GroupReport group = report_of_group(record, at, record.groups[at].identity.load(std::memory_order_acquire));
  rank.waits = WaitReport{group.group, group.name, live.wait_number,
                          collective_name(static_cast<Collective>(live.wait_kind)), live.wait_peer};
  return rank;
}

}  // namespace

LiveCopy copy_live(const LiveState& live) {
  LiveCopy copy;
  for (int i = 0; i < kTries; ++i) {
    if (i % 64 == 63) ::sched_yield();  // the writer may wait for this processor
    const uint32_t before = live.sequence.load(std::memory_order_acquire);
    const auto get = [](const auto& value) { return value.load(std::memory_order_relaxed); };
    copy = {
        get(live.phase),      get(live.step),       get(live.phase_ns),  get(live.changed_ns), get(live.wait_number),
        get(live.microbatch), get(live.wait_group), get(live.wait_kind), get(live.wait_peer),  false};
    std::atomic_thread_fence(std::memory_order_acquire);
    if (before % 2 == 0 && live.sequence.load(std::memory_order_relaxed) == before) return copy;
  }
  copy.torn = true;
  return copy;
}

NodeReport snapshot(const SharedMemory& memory) {
  NodeReport report;
  report.node = memory.header().node;
  report.written = unix_time_s();
  for (uint32_t slot = 0; slot < kNumSlots; ++slot) {
    const Record& record = memory.record(slot);
    if (record.identity.state.load(std::memory_order_acquire) == SlotState::kFree) continue;
    report.ranks.push_back(report_of_rank(record));
    report.job_ranks = std::max(report.job_ranks, record.identity.job_ranks);
  }
  std::ranges::stable_sort(report.ranks, {}, &RankReport::rank);
  return report;
}

void for_each_live(const SharedMemory& memory, const std::function<void(uint32_t, const Record&)>& visit) {
  for (uint32_t slot = 0; slot < kNumSlots; ++slot) {
    const Record& record = memory.record(slot);
    if (record.identity.state.load(std::memory_order_acquire) == SlotState::kLive) visit(slot, record);
  }
}

bool has_processes(const SharedMemory& memory) {
  bool found = false;
  for_each_live(memory, [&](uint32_t, const Record& record) {
    const Identity& identity = record.identity;
    found = found || state_of_process(identity.process, identity.process_start) != ProcessState::kGone;
  });
  return found;
}

}  // namespace athanor::board
