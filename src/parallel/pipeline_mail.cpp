#include "parallel/pipeline_mail.h"

#include "base/error.h"
#include "comm/watches.h"

namespace athanor::inline parallel {

std::vector<Message> messages_between(const Schedule& schedule, int from, int to) {
  std::vector<Message> messages;
  for (const Action& a : schedule.actions[static_cast<size_t>(from)]) {
    const int stage = schedule.stage_of(from, a.chunk), next = a.work == Work::kForward ? stage + 1 : stage - 1;
    if (next < 0 || next >= schedule.num_stages() || next % schedule.ranks != to) continue;
    messages.push_back({a.work, a.microbatch, next});
  }
  return messages;
}

PipelineMail::PipelineMail(const Schedule& schedule, comm::Communicator& ranks, MakeRoom make_room)
    : ranks_(ranks), make_room_(std::move(make_room)) {
  ATHANOR_ASSERT(schedule.ranks == ranks.size());
  for (int rank = 0; rank < ranks.size(); ++rank) {
    if (rank == ranks.rank()) continue;
    Peer peer{rank, {}};
    for (const Message& message : messages_between(schedule, rank, ranks.rank())) {
      places_[message] = {peers_.size(), peer.expected.size()};
      peer.expected.push_back({message, {}, {}});
    }
    if (!peer.expected.empty()) peers_.push_back(std::move(peer));
  }
  for (Peer& peer : peers_) post_ahead(peer);
}

void PipelineMail::put(const Message& message, Tensor content) {
  const int to = rank_of(message.stage);
  if (to == ranks_.rank()) {
    kept_[message] = std::move(content);
    return;
  }
  while (!sent_.empty() && sent_.front().pending.done()) {
    sent_.front().pending.wait();  // throws if the sending failed
    sent_.pop_front();
  }
  content = content.contiguous();
  const comm::SendsFor purpose(TrafficPurpose::kStages);
  comm::Pending pending = ranks_.send(content, to);
  sent_.push_back({std::move(pending), std::move(content)});
}

void PipelineMail::post(Peer& peer) {
  Expected& next = peer.expected[peer.num_posted++];
  ++peer.num_waiting;
  next.room = make_room_(next.message);
  next.pending = ranks_.receive(next.room, peer.rank);
}

void PipelineMail::post_ahead(Peer& peer) {
  while (peer.num_posted < peer.expected.size() && peer.num_waiting < kAhead) post(peer);
}

Tensor PipelineMail::take(const Message& message) {
  if (const auto kept = kept_.find(message); kept != kept_.end()) {
    Tensor content = std::move(kept->second);
    kept_.erase(kept);
    return content;
  }
  const auto place = places_.find(message);
  ATHANOR_ASSERT(place != places_.end());
  Peer& peer = peers_[place->second.first];
  const size_t number = place->second.second;
  // Messages of a peer arrive in its order, so memory is needed for all that come before.
  while (peer.num_posted <= number) post(peer);
  Expected& expected = peer.expected[number];
  expected.pending.wait();
  Tensor content = std::move(expected.room);
  expected.room.reset();
  expected.pending = {};
  --peer.num_waiting;
  post_ahead(peer);
  return content;
}

void PipelineMail::finish() {
  for (Sent& sent : sent_) sent.pending.wait();
  sent_.clear();
}

}  // namespace athanor::inline parallel
