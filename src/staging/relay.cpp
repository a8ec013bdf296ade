#include "staging/relay.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace athanor::staging {
namespace {

constexpr uint32_t kDamagedMagic = 0xdea0d;

std::string text_of(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace

Relay::Relay(comm::Wire& wire, RelayPlace place, RelayWork work)
    : wire_(wire), place_(std::move(place)), work_(std::move(work)) {
  for (int t = 0; t < kNumTrees; ++t) {
    Tree& tree = trees_[static_cast<size_t>(t)];
    tree.place = place_in_tree(t, place_.node, place_.num_nodes);
    tree.next = tree.next_to_pass = static_cast<uint64_t>(t);
    for (const int child : tree.place.children) tree.children.push_back({place_.rank_of(child)});
    tree.num_chunks = (work_.chunks.size() + kNumTrees - 1 - static_cast<uint64_t>(t)) / kNumTrees;
    const uint64_t buffers = std::min(tree.num_chunks, buffers_of_tree(work_.chunk_bytes));
    while (tree.free.size() < buffers) tree.free.push_back(&add_buffer(t));
  }
}

Relay::Held& Relay::add_buffer(int tree) {
  Held& held = held_.emplace_back();
  held.buffer = std::make_unique<ChunkBuffer>(std::max(work_.chunk_bytes, kLeastRoom));
  held.tree = tree;
  return held;
}

Relay::Held* Relay::take_free(Tree& tree) {
  if (tree.stopped || tree.free.empty() || tree.next >= work_.chunks.size()) return nullptr;
  Held* held = tree.free.back();
  tree.free.pop_back();
  held->buffer->position = std::exchange(tree.next, tree.next + kNumTrees);
  return held;
}

bool Relay::begin_reads() {
  bool any = false;
  // By turns, so that the source is read from its front to its back.
  while (true) {
    Tree& tree =
        *std::min_element(trees_.begin(), trees_.end(), [](const Tree& a, const Tree& b) { return a.next < b.next; });
    Held* held = take_free(tree);
    if (held == nullptr) return any;
    work_.source->start(*held->buffer);
    ++num_reading_;
    any = true;
  }
}

bool Relay::take_read() {
  bool any = false;
  while (ChunkBuffer* buffer = work_.source->take_done()) {
    any = true;
    --num_reading_;
    Held& held = held_of(buffer);
    if (buffer->failure && !failure_) {
      failure_ = buffer->failure;
      send_stop();
    }
    Tree& tree = trees_[static_cast<size_t>(held.tree)];
    held.is_good = true;
    tree.stopped ? tree.free.push_back(&held) : pass_on_in_order(held);
  }
  return any;
}

// A short message may be complete before a longer one that was begun earlier, and a block may be read before the one in
// front of it. Receivers know a chunk by its turn.
void Relay::pass_on_in_order(Held& last) {
  Tree& tree = trees_[static_cast<size_t>(last.tree)];
  tree.ready[last.buffer->position] = &last;
  while (!tree.ready.empty() && tree.ready.begin()->first == tree.next_to_pass) {
    Held& held = *tree.ready.begin()->second;
    tree.ready.erase(tree.ready.begin());
    tree.next_to_pass += kNumTrees;
    pass_on(held);
  }
}

// What was read and has not been sent is dropped: a message with the reason takes the place of the next chunk.
void Relay::send_stop() {
  stop_reason_ = text_of(failure_);
  for (int t = 0; t < kNumTrees; ++t) {
    Tree& tree = trees_[static_cast<size_t>(t)];
    tree.stopped = true;
    for (const auto& [position, held] : tree.ready) tree.free.push_back(held);
    tree.ready.clear();
    if (tree.num_passed == tree.num_chunks) continue;  // nothing is awaited
    Held& held = add_buffer(t);
    held.buffer->seal_stop(stop_reason_);
    pass_on(held);
  }
}

bool Relay::begin_receives() {
  bool any = false;
  for (int t = 0; t < kNumTrees; ++t) {
    Tree& tree = trees_[static_cast<size_t>(t)];
    while (Held* held = take_free(tree)) {
      wire_.receive(place_.rank_of(tree.place.parent), kFirstTag + t, held->buffer->message(), held->buffer->room(),
                    reinterpret_cast<uint64_t>(held) | 1);
      any = true;
    }
  }
  return any;
}

void Relay::received(Held& held, int64_t bytes) {
  ChunkBuffer& buffer = *held.buffer;
  Tree& tree = trees_[static_cast<size_t>(held.tree)];
  const uint64_t chunk = work_.chunks[buffer.position];
  const bool is_intact = buffer.is_intact(bytes);
  const bool is_stop = is_intact && buffer.header().kind == ChunkHeader::kStop;
  held.is_good = is_intact && !is_stop && buffer.header().chunk == chunk;
  if (!held.is_good && !is_stop) {
    // A header without content tells those behind this node that there is nothing to blame their senders for.
    const bool is_told = bytes == static_cast<int64_t>(sizeof(ChunkHeader)) && buffer.header().magic == kDamagedMagic;
    damaged_.push_back({chunk, place_.rank_of(tree.place.parent), is_told});
    buffer.header() = {.magic = kDamagedMagic, .kind = ChunkHeader::kZeros};
  }
  pass_on_in_order(held);
}

void Relay::pass_on(Held& held) {
  Tree& tree = trees_[static_cast<size_t>(held.tree)];
  ChunkBuffer& buffer = *held.buffer;
  ++num_in_use_;
  held.uses = 1;
  for (Child& child : tree.children) {
    ++held.uses;
    child.waiting.push_back(&held);
    begin_sends(child);
  }
  if (buffer.header().kind == ChunkHeader::kStop) {
    tree.stopped = true;
    stop_reason_ = buffer.reason();
  } else {
    ++tree.num_passed;
  }
  if (held.is_good) {
    bytes_moved_ += buffer.header().bytes;
    if (work_.lacks(buffer.header().chunk)) {
      ++held.uses;
      work_.sink->start(buffer);
    }
  }
  release(held);
}

void Relay::begin_sends(Child& child) {
  for (; child.num_sending < kSendsAtOnce && !child.waiting.empty(); ++child.num_sending) {
    if (free_sendings_.empty()) free_sendings_.push_back(&sendings_.emplace_back());
    Sending* sending = free_sendings_.back();
    free_sendings_.pop_back();
    *sending = {child.waiting.front(), &child};
    child.waiting.pop_front();
    ChunkBuffer& buffer = *sending->held->buffer;
    wire_.send(child.rank, kFirstTag + sending->held->tree, buffer.message(), buffer.message_bytes(),
               reinterpret_cast<uint64_t>(sending));
  }
}

void Relay::sent(Sending& sending) {
  Held& held = *sending.held;
  --sending.child->num_sending;
  begin_sends(*sending.child);
  free_sendings_.push_back(&sending);
  release(held);
}

void Relay::release(Held& held) {
  if (--held.uses > 0) return;
  --num_in_use_;
  held.buffer->failure = nullptr;
  trees_[static_cast<size_t>(held.tree)].free.push_back(&held);
}

Relay::Held& Relay::held_of(const ChunkBuffer* buffer) {
  return *std::find_if(held_.begin(), held_.end(), [&](const Held& held) { return held.buffer.get() == buffer; });
}

bool Relay::poll() {
  bool any = place_.node == 0 ? begin_reads() : begin_receives();
  if (place_.node == 0) any |= take_read();
  finished_.clear();
  wire_.poll(finished_);
  for (const auto& one : finished_) {
    any = true;
    // The lowest bit of an address is free: it marks receives.
    if ((one.token & 1) != 0)
      received(*reinterpret_cast<Held*>(one.token & ~uint64_t{1}), one.bytes);
    else
      sent(*reinterpret_cast<Sending*>(one.token));
  }
  while (ChunkBuffer* buffer = work_.sink->take_done()) {
    any = true;
    release(held_of(buffer));
  }
  return any || wire_.has_moved();
}

bool Relay::done() const {
  return num_in_use_ == 0 && num_reading_ == 0 &&
         std::all_of(trees_.begin(), trees_.end(), [](const Tree& tree) { return tree.is_complete(); });
}

}  // namespace athanor::staging
