#pragma once
// Sends a list of chunks from the first node to all others (two_trees.h): each node receives the next chunks, forwards
// those that have come and writes those that it lacks, all at the same time, within the memory of a few chunks.
//
// It never waits: poll() starts what can be started. So a test can run thousands of nodes in one thread, on a network
// and disks with a clock of their own (testing/virtual_network.h).
//
// Chunks of even positions in the list travel along the first tree, the others along the second. In each tree messages
// come in the order of the list, and each tree has its own buffers, so no chunk waits for one behind it.

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "staging/chunk.h"
#include "staging/two_trees.h"
#include "wire/wire.h"

namespace athanor::staging {

/// One of the nodes that take part.
struct RelayPlace {
  int node = 0, num_nodes = 1;
  std::function<int(int)> rank_of;  ///< the rank on the wire of a node
};

struct RelayWork {
  uint64_t chunk_bytes = 0;             ///< the most that one has
  std::vector<uint64_t> chunks;         ///< what is sent, the same list on all nodes
  std::function<bool(uint64_t)> lacks;  ///< whether this node lacks a chunk, and its sink gets it
  ChunkWork* source = nullptr;  ///< fills buffers, on node 0 only: position is set, and the chunk is chunks[position]
  ChunkWork* sink = nullptr;    ///< writes them
};

class Relay {
 public:
  /// Buffers of a tree, of kTreeBytes in all: some for chunks that are received, forwarded and written, and the rest
  /// for those that wait because a link or a disk is late.
  static constexpr uint64_t kTreeBytes = 16 << 20, kLeastBuffers = 4, kMostBuffers = 16;
  static uint64_t buffers_of_tree(uint64_t chunk_bytes) {
    return std::clamp(kTreeBytes / std::max<uint64_t>(chunk_bytes, 1), kLeastBuffers, kMostBuffers);
  }
  /// Messages on their way to a child at the same time. An MPI that is given many sends their parts by turns, so that
  /// all arrive late together, and those behind the receivers wait; with one the link would idle between two messages.
  static constexpr int kSendsAtOnce = 2;
  static constexpr int kFirstTag = 1;           ///< uses kNumTrees tags
  static constexpr uint64_t kLeastRoom = 1024;  ///< in a buffer, for the reason of a stop

  struct Damaged {
    uint64_t chunk;
    int from;      ///< the rank that sent it
    bool is_told;  ///< it was damaged before it came there
  };

  /// The object must live until the wire is closed: after a stop, receives stay for which nothing will come.
  Relay(comm::Wire& wire, RelayPlace place, RelayWork work);

  /// Moves what can be moved. @return whether anything did. @throws what the wire throws.
  bool poll();
  /// True if all chunks were received, forwarded and written, or the transfer was stopped.
  bool done() const;

  /// Chunks that did not arrive as they were read. They are forwarded, and not written.
  const std::vector<Damaged>& damaged() const { return damaged_; }
  /// Why node 0 ended the transfer early; empty if it did not.
  const std::string& stop_reason() const { return stop_reason_; }
  /// On node 0: the failure of its source.
  std::exception_ptr failure() const { return failure_; }
  uint64_t bytes_moved() const { return bytes_moved_; }  ///< that node 0 has sent, or this one has received

 private:
  struct Held {
    std::unique_ptr<ChunkBuffer> buffer;
    int tree = 0;
    int uses = 0;          ///< sends and writes that are under way
    bool is_good = false;  ///< a chunk as its source has sealed it
  };
  struct Child {
    int rank = 0;
    int num_sending = 0;
    std::deque<Held*> waiting = {};
  };
  struct Sending {
    Held* held;
    Child* child;
  };
  struct Tree {
    TreePlace place;
    std::vector<Child> children;
    std::vector<Held*> free;
    uint64_t num_chunks = 0, num_passed = 0;  ///< in this tree; received, or read, and passed on
    uint64_t next = 0;                        ///< position that is read or received next
    uint64_t next_to_pass = 0;                ///< that is passed on next
    std::map<uint64_t, Held*> ready;          ///< what was read or received before its turn
    bool stopped = false;
    bool is_complete() const { return stopped || num_passed == num_chunks; }
  };

  Held& add_buffer(int tree);
  Held* take_free(Tree& tree);
  bool begin_reads();
  bool take_read();
  void send_stop();
  bool begin_receives();
  void received(Held& held, int64_t bytes);
  void pass_on_in_order(Held& last);
  void pass_on(Held& held);
  void begin_sends(Child& child);
  void sent(Sending& sending);
  void release(Held& held);
  Held& held_of(const ChunkBuffer* buffer);
  comm::Wire& wire_;
  const RelayPlace place_;
  const RelayWork work_;
  std::array<Tree, kNumTrees> trees_;
  std::deque<Held> held_;
  std::vector<comm::Wire::Finished> finished_;
  std::deque<Sending> sendings_;  ///< their addresses are tokens
  std::vector<Sending*> free_sendings_;
  int num_reading_ = 0, num_in_use_ = 0;  ///< buffers with the source; with sends and writes under way
  uint64_t bytes_moved_ = 0;
  std::vector<Damaged> damaged_;
  std::string stop_reason_;
  std::exception_ptr failure_;
};

}  // namespace athanor::staging
