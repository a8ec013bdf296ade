#include "staging/tree_messages.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/error.h"
#include "base/hash.h"
#include "wire/index_tree.h"

namespace athanor::staging {
namespace {

/// Precedes a text.
struct Front {
  uint64_t size = 0, hash = 0;
};

}  // namespace

void IdleWait::wait() {
  constexpr int kYields = 50, kShortest_us = 10;
  if (++idle_ <= kYields) {
    sched_yield();
    return;
  }
  const int doublings = std::min((idle_ - kYields) / 8, 16);
  std::this_thread::sleep_for(std::chrono::microseconds(std::min(kShortest_us << doublings, most_us_)));
}

void LoneWire::abort(int exit_code) { ::_exit(exit_code); }

void TreeMessages::wait(size_t num_messages) {
  IdleWait idle(2000);  // others may send for a long time meanwhile
  for (finished_.clear(); finished_.size() < num_messages;) {
    const size_t before = finished_.size();
    wire_.poll(finished_);
    finished_.size() > before || wire_.has_moved() ? idle.moved() : idle.wait();
  }
}

void TreeMessages::send(const std::vector<int>& peers, const std::string& text) {
  const Front front{text.size(), hash_u64(text)};
  for (const int peer : peers) wire_.send(peer, kTag, &front, sizeof front, 0);
  wait(peers.size());
  for (uint64_t at = 0; at < front.size; at += comm::Wire::kMaxMessage) {
    const auto bytes = static_cast<int64_t>(std::min<uint64_t>(front.size - at, comm::Wire::kMaxMessage));
    for (const int peer : peers) wire_.send(peer, kTag, text.data() + at, bytes, 0);
    wait(peers.size());
  }
}

std::string TreeMessages::receive(int peer) {
  Front front;
  wire_.receive(peer, kTag, &front, sizeof front, 0);
  wait(1);
  std::string text(front.size, '\0');
  for (uint64_t at = 0; at < front.size; at += comm::Wire::kMaxMessage) {
    const auto bytes = static_cast<int64_t>(std::min<uint64_t>(front.size - at, comm::Wire::kMaxMessage));
    wire_.receive(peer, kTag, text.data() + at, bytes, 0);
    wait(1);
  }
  if (hash_u64(text) != front.hash) fail<CommError>("a message from rank {} came damaged; run it again", peer);
  return text;
}

std::string TreeMessages::broadcast(std::string text) {
  if (wire_.rank() > 0) text = receive(comm::tree_parent(wire_.rank()));
  send(comm::tree_children(wire_.rank(), wire_.size()), text);
  return text;
}

std::string TreeMessages::reduce(std::string own, const Merge& merge) {
  for (const int child : comm::tree_children(wire_.rank(), wire_.size())) merge(own, receive(child));
  if (wire_.rank() > 0) send({comm::tree_parent(wire_.rank())}, own);
  return own;
}

}  // namespace athanor::staging
