// Messages that travel along the tree itself: small sums go up, broadcasts go down.

#include <algorithm>
#include <array>

#include "wire/index_tree.h"
#include "wire/phases.h"

namespace athanor::comm {

namespace {

class SumToFirst : public Phase {
 public:
  SumToFirst(Element element, Combine combine, Scale scale, char* x, int64_t count)
      : element_(element), combine_(combine), scale_(scale), x_(x), count_(count) {}

  void start(Operation& operation) override {
    bytes_ = count_ * wide_bytes(element_);
    children_ = tree_children(operation.index(), operation.size());
    memory_.resize(static_cast<size_t>(bytes_) * (1 + children_.size()));
    awaited_ = children_.size();
    for (size_t i = 0; i < children_.size(); ++i) operation.receive(children_[i], term(i + 1), bytes_, 0);
    widen(element_, scale_.first, x_, count_, term(0));
    if (awaited_ == 0) hand_on(operation);
  }

  void received(Operation& operation, int64_t) override {
    if (--awaited_ == 0) hand_on(operation);
  }

 private:
  char* term(size_t i) { return memory_.data() + i * static_cast<size_t>(bytes_); }

  void hand_on(Operation& operation) {
    for (size_t i = 0; i < children_.size(); ++i) add_wide(element_, combine_, term(0), term(i + 1), count_);
    if (operation.index() > 0) {
      operation.send(tree_parent(operation.index()), term(0), bytes_, 0);
    } else {
      narrow(element_, scale_.last, term(0), count_, x_);
    }
  }

  Element element_;
  Combine combine_;
  Scale scale_;
  char* x_;
  int64_t count_, bytes_ = 0;
  std::vector<int> children_;
  std::vector<char> memory_;  // operator new aligns it for every wide type
  size_t awaited_ = 0;
};

class GatherToFirst : public Phase {
 public:
  GatherToFirst(const char* own, int64_t bytes, char* out) : own_(own), bytes_(bytes), out_(out) {}

  void start(Operation& operation) override {
    const int me = operation.index(), size = operation.size();
    if (part(me) != own_) std::copy_n(own_, bytes_, part(me));
    const auto children = tree_children(me, size);
    awaited_ = children.size();
    for (const int child : children) operation.receive(child, part(child), (tree_end(child, size) - child) * bytes_, 0);
    if (awaited_ == 0) pass_on(operation);
  }

  void received(Operation& operation, int64_t) override {
    if (--awaited_ == 0) pass_on(operation);
  }

 private:
  char* part(int member) { return out_ + member * bytes_; }

  void pass_on(Operation& operation) {
    const int me = operation.index();
    if (me > 0) operation.send(tree_parent(me), part(me), (tree_end(me, operation.size()) - me) * bytes_, 0);
  }

  const char* own_;
  int64_t bytes_;
  char* out_;
  size_t awaited_ = 0;
};

/// A chunk is received, then sent to every child; a few chunks are in flight at once.
class Broadcast : public Phase {
 public:
  Broadcast(char* x, int64_t bytes, int root) : x_(x), bytes_(bytes), root_(root) {}

  void start(Operation& operation) override {
    const int n = operation.size(), place = (operation.index() - root_ + n) % n;
    for (int child : tree_children(place, n)) children_.push_back((child + root_) % n);
    std::reverse(children_.begin(), children_.end());  // the largest subtree first
    parent_ = place == 0 ? -1 : (tree_parent(place) + root_) % n;
    num_chunks_ = (bytes_ + kChunk - 1) / kChunk;
    sends_left_.assign(static_cast<size_t>(kWindow), 0);
    take_more(operation);
  }

  /// The later and shorter one of two messages may be complete first. The next member takes them in the order in which
  /// they are sent.
  void received(Operation& operation, int64_t chunk) override {
    has_come_[static_cast<size_t>(chunk % kWindow)] = true;
    while (passed_ < taken_ && has_come_[static_cast<size_t>(passed_ % kWindow)]) {
      has_come_[static_cast<size_t>(passed_ % kWindow)] = false;
      pass_on(operation, passed_++);
    }
  }

  void sent(Operation& operation, int64_t chunk) override {
    if (--sends_left_[static_cast<size_t>(chunk % kWindow)] == 0) chunk_over(operation, chunk);
  }

 private:
  static constexpr int64_t kChunk = 1 << 20;
  static constexpr int64_t kWindow = 8;

  int64_t length(int64_t chunk) const { return std::min(kChunk, bytes_ - chunk * kChunk); }

  /// Chunk c begins when all before c − kWindow + 1 are complete, so that each has its own counter.
  void take_more(Operation& operation) {
    while (taken_ < num_chunks_ && taken_ < over_ + kWindow) {
      const int64_t chunk = taken_++;
      if (parent_ >= 0) {
        operation.receive(parent_, x_ + chunk * kChunk, length(chunk), chunk);
      } else {
        pass_on(operation, chunk);
      }
    }
  }

  void pass_on(Operation& operation, int64_t chunk) {
    sends_left_[static_cast<size_t>(chunk % kWindow)] = static_cast<int>(children_.size());
    for (int child : children_) operation.send(child, x_ + chunk * kChunk, length(chunk), chunk);
    if (children_.empty()) chunk_over(operation, chunk);
  }

  /// Chunks may complete out of order; the window advances to the first incomplete chunk.
  void chunk_over(Operation& operation, int64_t chunk) {
    ended_[static_cast<size_t>(chunk % kWindow)] = true;
    while (over_ < taken_ && ended_[static_cast<size_t>(over_ % kWindow)]) {
      ended_[static_cast<size_t>(over_++ % kWindow)] = false;
    }
    take_more(operation);
  }

  char* x_;
  int64_t bytes_;
  int root_, parent_ = -1;
  std::vector<int> children_;
  int64_t num_chunks_ = 0, taken_ = 0, passed_ = 0, over_ = 0;
  std::vector<int> sends_left_;
  std::array<bool, kWindow> has_come_{}, ended_{};
};

}  // namespace

std::unique_ptr<Phase> sum_to_first(Element element, Combine combine, Scale scale, char* x, int64_t count) {
  return std::make_unique<SumToFirst>(element, combine, scale, x, count);
}

std::unique_ptr<Phase> gather_to_first(const char* own, int64_t bytes, char* out) {
  return std::make_unique<GatherToFirst>(own, bytes, out);
}

std::unique_ptr<Phase> broadcast_along_tree(char* x, int64_t bytes, int root) {
  return std::make_unique<Broadcast>(x, bytes, root);
}

}  // namespace athanor::comm
