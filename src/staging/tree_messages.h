#pragma once
// Short texts between all ranks of a job: from rank 0 to all, and from all to rank 0, merged on the way. Both run along
// a tree (wire/index_tree.h), so that no rank gets more than log₂ n messages.

#include <functional>
#include <string>
#include <vector>

#include "wire/wire.h"

namespace athanor::staging {

/// Both functions are collective over the wire, and wait. They throw what the wire throws, and CommError for a text
/// that came damaged.
class TreeMessages {
 public:
  static constexpr int kTag = 0;

  explicit TreeMessages(comm::Wire& wire) : wire_(wire) {}

  /// Returns the text of rank 0 on all ranks.
  std::string broadcast(std::string text);

  /// Merges the texts of all ranks. @param merge  adds another rank's text; a rank's children come in the order of
  ///                their ranks. @return on rank 0 the merged text of all.
  using Merge = std::function<void(std::string& into, const std::string& other)>;
  std::string reduce(std::string own, const Merge& merge);

 private:
  void send(const std::vector<int>& peers, const std::string& text);
  std::string receive(int peer);
  void wait(size_t num_messages);

  comm::Wire& wire_;
  std::vector<comm::Wire::Finished> finished_;
};

/// Gives the processor away for longer and longer while nothing moves.
class IdleWait {
 public:
  /// @param most_us  the longest sleep. Some MPIs move a part of a long message at each poll, and nothing between.
  explicit IdleWait(int most_us) : most_us_(most_us) {}
  void moved() { idle_ = 0; }
  void wait();

 private:
  const int most_us_;
  int idle_ = 0;
};

/// A job of one process: there is no one to send to.
class LoneWire : public comm::Wire {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  int max_tag() const override { return 32767; }
  std::string library() const override { return ""; }
  void send(int, int, const void*, int64_t, uint64_t) override {}
  void receive(int, int, void*, int64_t, uint64_t) override {}
  void poll(std::vector<Finished>&) override {}
  void close() override {}
  [[noreturn]] void abort(int exit_code) override;
};

}  // namespace athanor::staging
