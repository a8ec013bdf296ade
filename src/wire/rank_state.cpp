#include "wire/rank_state.h"

#include <algorithm>

namespace athanor::comm {

void RankState::note_work(int64_t amount) {
  if (amount <= 0) return;
  worked_ += amount;
  last_move_ = Clock::now();
}

void RankState::end_wait(const Operation& operation, bool was_long, bool gave_up) {
  if (gave_up) {
    given_up_ = waits_for(operation);
    given_up_->worked = worked_;
  }
  const auto found = std::find_if(waits_.begin(), waits_.end(), [&](const Wait& wait) {
    return wait.operation == &operation && wait.thread == std::this_thread::get_id();
  });
  if (found != waits_.end()) waits_.erase(found);
  if (was_long) last_move_ = Clock::now();
}

Answer RankState::answer(const CallId& call) const {
  const auto group = groups_.find(call.group);
  const std::shared_ptr<Members> members = group == groups_.end() ? nullptr : group->second.lock();
  Answer answer;
  if (members) {
    const auto& ranks = members->wire_ranks;
    const auto partner = static_cast<int>(std::find(ranks.begin(), ranks.end(), call.partner) - ranks.begin());
    const Sequence* sequence = members->find(call.kind, partner);
    if (sequence && sequence->num_started() > call.number) {
      if (const Operation* holding = sequence->holding_up(call.number)) return waits_for(*holding);
      answer.state = Answer::State::kComplete;
      return answer;
    }
  }
  if (const Operation* before = wait_before(members.get())) {
    const Operation* holding = before->sequence().holding_up(before->number());
    if (holding) return waits_for(*holding);
    answer.state = Answer::State::kComplete;  // complete: the rank is about to continue
    return answer;
  }
  if (given_up_ && given_up_->worked == worked_) return *given_up_;
  answer.state = Answer::State::kLate;
  answer.worked = worked_;
  const Clock::time_point moved = last_move_;
  if (moved != Clock::time_point::min())
    answer.still_ms = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - moved).count();
  return answer;
}

Answer RankState::waits_for(const Operation& operation) const {
  const Members& members = *operation.members();
  const Sequence& sequence = operation.sequence();
  Answer answer;
  answer.state = Answer::State::kWaits;
  answer.call = {members.id, operation.number(), sequence.kind(), -1};
  if (sequence.peer() >= 0) answer.call.partner = members.wire_ranks[static_cast<size_t>(sequence.peer())];
  for (const int peer : operation.peers()) {
    if (answer.num_peers == Answer::kMaxPeers) break;
    answer.peers[static_cast<size_t>(answer.num_peers++)] = members.wire_ranks[static_cast<size_t>(peer)];
  }
  members.name.copy(answer.group.data(), answer.group.size() - 1);
  return answer;
}

/// Returns the wait that holds up the calls of this group on this rank. Before the first call any thread may make it.
const Operation* RankState::wait_before(const Members* members) const {
  for (const Wait& wait : waits_) {
    if (!members || members->thread == std::thread::id() || members->thread == wait.thread) return wait.operation;
  }
  return nullptr;
}

}  // namespace athanor::comm
