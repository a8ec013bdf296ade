#include "wire/sequence.h"

#include "base/error.h"

namespace athanor::comm {

void Sequence::start(std::shared_ptr<Operation> operation) {
  operation->set_number(num_started());
  if (!failure_.empty()) operation->fail(failure_);
  line_.push_back(std::move(operation));
}

int Sequence::advance(Wire& wire) {
  int num_dropped = 0;
  while (true) {
    for (; num_begun_ > 0 && line_.front()->done(); line_.pop_front(), --num_begun_, ++first_, ++num_dropped) {
      taken_[static_cast<size_t>(first_ % kWindow)] = false;
    }
    if (!failure_.empty() || num_begun_ == line_.size() || !has_room()) return num_dropped;
    Operation& next = *line_[num_begun_++];
    bool& taken = taken_[static_cast<size_t>(next.number() % kWindow)];
    ATHANOR_ASSERT(!taken && next.number() < first_ + kWindow);  // two in flight would share a tag
    taken = true;
    next.begin(wire);
  }
}

bool Sequence::has_room() const {
  if (num_begun_ == 0) return true;
  if (num_begun_ >= static_cast<size_t>(kWindow)) return false;
  int64_t bytes = 0;
  for (size_t i = 0; i < num_begun_; ++i) bytes += line_[i]->scratch_bytes();
  return bytes < kScratchBytes;
}

void Sequence::fail(const std::string& error) {
  if (!failure_.empty()) return;
  failure_ = error;
  for (size_t i = num_begun_; i < line_.size(); ++i) line_[i]->fail(error);
}

int Sequence::tag_of(const Operation& operation, int phase) const {
  ATHANOR_ASSERT(phase < num_phases());
  const int64_t column = kind_ == Kind::kCollective ? phase : kMaxPhases;
  return static_cast<int>(first_tag_ + column * kWindow + operation.number() % kWindow);
}

const Operation* Sequence::holding_up(int64_t number) const {
  const int64_t place = number - first_;
  if (place < 0 || place >= static_cast<int64_t>(line_.size())) return nullptr;
  const Operation& asked = *line_[static_cast<size_t>(place)];
  if (asked.done() || asked.failed()) return nullptr;
  return static_cast<size_t>(place) < num_begun_ ? &asked : line_.front().get();
}

Members::Members(std::string group_name, std::vector<int> ranks, int own_index, int64_t group_id)
    : name(std::move(group_name)), id(group_id), wire_ranks(std::move(ranks)), index(own_index),
      bytes_sent(std::make_unique<std::atomic<int64_t>[]>(wire_ranks.size())),
      collectives(group_id * Sequence::kTags, Kind::kCollective, -1) {}

Sequence& Members::between(Kind kind, int peer) {
  return pairs.try_emplace({kind, peer}, id * Sequence::kTags, kind, peer).first->second;
}

Sequence* Members::find(Kind kind, int peer) {
  if (kind == Kind::kCollective) return &collectives;
  const auto found = pairs.find({kind, peer});
  return found == pairs.end() ? nullptr : &found->second;
}

}  // namespace athanor::comm
