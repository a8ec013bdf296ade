#include "wire/roll_call.h"

#include <functional>
#include <utility>

namespace athanor::comm {

void RollCall::open() {
  if (wire_.size() == 1) return;
  for (Note& room : heard_) listen(room);
}

void RollCall::listen(Note& room) {
  wire_.receive(Wire::kAnyPeer, Wire::kControlTag, &room, sizeof(Note), reinterpret_cast<uint64_t>(&room) | 1);
}

void RollCall::send(int rank, const Note& note) {
  auto said = std::make_unique<Note>(note);
  const Note* at = said.get();
  said_[at] = std::move(said);
  wire_.send(rank, Wire::kControlTag, at, sizeof(Note), reinterpret_cast<uint64_t>(at) | 1);
}

int64_t RollCall::send_question(Note::Kind kind, int rank, const CallId& call) {
  const int64_t number = next_question_++;
  questions_[number] = {};
  send(rank, {kind, number, call, {}, {}});
  return number;
}

void RollCall::finished(const Wire::Finished& message) {
  auto* note = reinterpret_cast<Note*>(message.token & ~uint64_t{1});
  if (said_.erase(note) > 0) return;
  const Note heard = *note;
  listen(*note);
  if (heard.kind != Note::kAnswer) {
    const bool known = heard.kind == Note::kFinding && heard.call == published_call_;
    send(message.peer,
         {Note::kAnswer, heard.question, heard.call, state_.answer(heard.call), known ? published_ : Finding()});
  } else if (const auto found = questions_.find(heard.question); found != questions_.end()) {
    found->second = {heard.answer, heard.finding};  // otherwise no rank waits for it any more
  }
}

Look::Look(RollCall& roll_call, const RankState& state, const Operation& operation)
    : roll_call_(roll_call), state_(state), group_(operation.members()->id) {
  const Operation* holding = operation.sequence().holding_up(operation.number());
  if (holding) follow(state_.rank(), state_.waits_for(*holding));
}

Look::~Look() {
  for (const Asked& asked : open_) roll_call_.forget(asked.question);
}

void Look::follow(int rank, const Answer& answer) {
  for (int i = 0; i < answer.num_peers; ++i) {
    const int peer = answer.peers[static_cast<size_t>(i)];
    ask({peer, seen_from_peer(answer.call, rank), rank, answer.group.data(), -1, RankState::Clock::now()});
  }
}

void Look::ask(Asked asked) {
  if (seen_.size() >= kMaxAsked || !seen_.insert({asked.rank, asked.call}).second) return;
  if (asked.rank == state_.rank()) return take(asked, state_.answer(asked.call));
  asked.question = roll_call_.ask(asked.rank, asked.call);
  open_.push_back(std::move(asked));
}

void Look::take(const Asked& asked, const Answer& answer) {
  if (answer.state == Answer::State::kWaits) return follow(asked.rank, answer);
  if (answer.state == Answer::State::kComplete) return;
  const bool answers = answer.state == Answer::State::kLate, elsewhere = asked.call.group != group_;
  late_.try_emplace(asked.rank, Late{asked.rank, answers, answer.worked, answer.still_ms,
                                     elsewhere ? asked.awaited_by : -1, elsewhere ? asked.group : ""});
}

bool Look::over() {
  const auto now = RankState::Clock::now();
  std::vector<Asked> asked = std::exchange(open_, {});  // handling an answer may add questions
  for (Asked& one : asked) {
    const Answer answer = roll_call_.answer(one.question);
    if (answer.state == Answer::State::kSilent && now - one.when < kPatience) {
      open_.push_back(std::move(one));
      continue;
    }
    roll_call_.forget(one.question);
    take(one, answer);
  }
  return open_.empty();
}

std::vector<Late> Look::late() const {
  std::vector<Late> all;
  for (const auto& [rank, late] : late_) all.push_back(late);
  return all;
}

}  // namespace athanor::comm
