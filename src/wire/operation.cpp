#include "wire/operation.h"

#include "base/span_log.h"

#include <algorithm>

#include "base/error.h"
#include "wire/sequence.h"

namespace athanor::comm {

Operation::Operation(std::shared_ptr<Members> members, Sequence& sequence, Phases phases, std::shared_ptr<void> held)
    : members_(std::move(members)), sequence_(sequence), phases_(std::move(phases)), held_(std::move(held)) {
  ATHANOR_ASSERT(phases_.size() <= static_cast<size_t>(sequence_.num_phases()));
}

int Operation::index() const { return members_->index; }
int Operation::size() const { return members_->size(); }

void Operation::send(int peer, const void* data, int64_t bytes, int64_t item) {
  members_->bytes_sent[static_cast<size_t>(peer)].fetch_add(bytes, std::memory_order_relaxed);
  post(true, peer, const_cast<void*>(data), bytes, item);
}

void Operation::receive(int peer, void* data, int64_t bytes, int64_t item) { post(false, peer, data, bytes, item); }

void Operation::post(bool sending, int peer, void* data, int64_t bytes, int64_t item) {
  ATHANOR_ASSERT(bytes > 0 && bytes <= Wire::kMaxMessage && peer != index());
  if (free_.empty()) {
    transfers_.emplace_back();
    free_.push_back(&transfers_.back());
  }
  Transfer* transfer = free_.back();
  free_.pop_back();
  *transfer = {this, peer, sending, bytes, item, true};
  ++in_flight_;
  const int rank = members_->wire_ranks[static_cast<size_t>(peer)];
  const int tag = sequence_.tag_of(*this, static_cast<int>(phase_index_));
  const auto token = reinterpret_cast<uint64_t>(transfer);
  if (sending) {
    wire_->send(rank, tag, data, bytes, token);
  } else {
    wire_->receive(rank, tag, data, bytes, token);
  }
}

void Operation::begin(Wire& wire) {
  wire_ = &wire;
  if (!phases_.empty()) start_phase();
  go_on();
}

void Operation::start_phase() {
  phase_.reset();  // its memory is free before the next phase takes memory
  phase_ = phases_[phase_index_]();
  phase_->start(*this);
}

void Operation::finished(Transfer& transfer, int64_t bytes) {
  const Transfer was = transfer;
  transfer.in_flight = false;
  free_.push_back(&transfer);
  --in_flight_;
  if (!was.sending && bytes != was.bytes && error_.empty()) {
    error_ = bytes == Wire::kTooMuch
                 ? fmt::format("rank {{{}}} sent more than the {} bytes that were expected of it", was.peer, was.bytes)
                 : fmt::format("rank {{{}}} sent {} bytes where {} were expected of it", was.peer, bytes, was.bytes);
    failed_.store(true, std::memory_order_release);
  }
  // After an error nothing new is posted; the messages in flight still own their memory.
  if (error_.empty()) {
    if (was.sending) {
      phase_->sent(*this, was.item);
    } else {
      phase_->received(*this, was.item);
    }
  }
  go_on();
}

void Operation::go_on() {
  while (in_flight_ == 0 && !done()) {
    if (!error_.empty() || phase_index_ + 1 >= phases_.size()) {
      phase_.reset();
      phases_.clear();
      held_.reset();
      completed_ns_.store(span_clock_ns(), std::memory_order_relaxed);
      done_.store(true, std::memory_order_release);
      return;
    }
    ++phase_index_;
    start_phase();
  }
}

void Operation::fail(const std::string& error) {
  error_ = error;
  failed_.store(true, std::memory_order_release);
}

std::vector<int> Operation::peers() const {
  std::vector<int> members;
  for (const Transfer& transfer : transfers_) {
    if (transfer.in_flight) members.push_back(transfer.peer);
  }
  std::sort(members.begin(), members.end());
  members.erase(std::unique(members.begin(), members.end()), members.end());
  return members;
}

}  // namespace athanor::comm
