#include "comm/roll_call.h"

#include <algorithm>

namespace athanor::comm {

void RollCall::open() {
  if (wire_.size() > 1) listen();
}

void RollCall::listen() {
  wire_.receive(Wire::kAnyPeer, Wire::kControlTag, &heard_, sizeof(Note), reinterpret_cast<uint64_t>(&heard_) | 1);
}

void RollCall::send(int rank, const Note& note) {
  said_.push_back(note);
  wire_.send(rank, Wire::kControlTag, &said_.back(), sizeof(Note), reinterpret_cast<uint64_t>(&said_.back()) | 1);
}

int64_t RollCall::ask(const Members& members) {
  const int64_t number = next_question_++;
  Question& question = questions_[number];
  question.wire_ranks = members.wire_ranks;
  question.num_started.assign(members.wire_ranks.size(), kSilent);
  question.num_started[static_cast<size_t>(members.index)] = members.num_started;
  question.num_open = members.size() - 1;
  for (int i = 0; i < members.size(); ++i) {
    if (i != members.index) send(members.wire_ranks[static_cast<size_t>(i)], {0, number, members.id, 0});
  }
  return number;
}

std::vector<int64_t> RollCall::take(int64_t question) {
  const auto found = questions_.find(question);
  std::vector<int64_t> num_started = std::move(found->second.num_started);
  questions_.erase(found);
  return num_started;
}

void RollCall::finished(const Wire::Finished& message) {
  const auto* note = reinterpret_cast<const Note*>(message.token & ~uint64_t{1});
  if (note != &heard_) {
    said_.remove_if([&](const Note& said) { return &said == note; });
    return;
  }
  const Note heard = heard_;
  listen();
  if (heard.is_answer == 0) {
    const auto group = groups_.find(heard.group);
    const std::shared_ptr<const Members> members = group == groups_.end() ? nullptr : group->second.lock();
    send(message.peer, {1, heard.question, heard.group, members ? members->num_started.load() : 0});
    return;
  }
  const auto found = questions_.find(heard.question);
  if (found == questions_.end()) return;  // nobody waits for it any more
  Question& question = found->second;
  const auto member = std::find(question.wire_ranks.begin(), question.wire_ranks.end(), message.peer);
  if (member == question.wire_ranks.end()) return;
  question.num_started[static_cast<size_t>(member - question.wire_ranks.begin())] = heard.num_started;
  --question.num_open;
}

}  // namespace athanor::comm
