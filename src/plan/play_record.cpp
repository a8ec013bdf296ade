#include "plan/play_record.h"

#include <algorithm>

namespace athanor::inline plan {

void PlayRecord::computed(const ops::Op& op) {
  events_.emplace_back(op);
  flops_ += op.flops;
}

void PlayRecord::sends(const comm::Communicator& group, const comm::SentCall& call) {
  if (group.size() == 1) return;
  const GroupKind kind = kinds_.at(&group);
  events_.emplace_back(SentMessage{kind, call});
  SentTotal& total = sent_[{call.purpose, kind, call.collective, call.peer}];
  ++total.calls;
  total.bytes += call.bytes;
  total.inside += call.inside;
}

void PlayRecord::begins(board::Phase phase) {
  phases_.push_back({phase, events_.size(), bytes_in_use_, bytes_in_use_});
}

void PlayRecord::watch(const Mesh& mesh) {
  for (const auto& [kind, group] : mesh.groups()) {
    kinds_[group.get()] = kind;
    group->show_traffic(this);
  }
}

void PlayRecord::begin() {
  events_.clear();
  phases_.clear();
  peak_bytes_ = bytes_in_use_;
  flops_ = 0;
  sent_.clear();
}

int64_t PlayRecord::bytes_sent(GroupKind group) const {
  int64_t bytes = 0;
  for (const auto& [what, total] : sent_)
    if (what.group == group) bytes += total.bytes;
  return bytes;
}

void PlayRecord::change(int64_t bytes) {
  events_.emplace_back(MemoryChange{bytes});
  bytes_in_use_ += bytes;
  peak_bytes_ = std::max(peak_bytes_, bytes_in_use_);
  if (!phases_.empty()) phases_.back().peak_bytes = std::max(phases_.back().peak_bytes, bytes_in_use_);
}

}  // namespace athanor::inline plan
