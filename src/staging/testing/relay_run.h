#pragma once
// The relays of all nodes of a transfer, in one thread, on a computed network with computed disks.

#include <cstring>
#include <deque>
#include <functional>
#include <set>
#include <vector>

#include "base/error.h"
#include "staging/relay.h"
#include "staging/testing/virtual_network.h"

namespace athanor::staging {

struct RelayRun {
  struct Setting {
    int num_nodes = 1;
    uint64_t num_chunks = 0, chunk_bytes = 0;
    VirtualLink link = {};
    double source_bytes_per_s = 1e12, disk_bytes_per_s = 1e12;
    std::function<bool(int node, uint64_t chunk)> lacks = [](int, uint64_t) { return true; };
    std::function<bool(uint64_t chunk)> source_fails = [](uint64_t) { return false; };
    std::function<void(int from, int to, std::byte* bytes, int64_t count)> damage = {};
  };

  /// The bytes of a chunk: different for each, and not all equal.
  static void fill(uint64_t chunk, uint64_t bytes, std::byte* out) {
    for (uint64_t i = 0; i < bytes; ++i) out[i] = static_cast<std::byte>((chunk * 131 + i) % 251);
  }

  explicit RelayRun(Setting with)
      : setting(std::move(with)), network(clock, setting.num_nodes, setting.link),
        written(static_cast<size_t>(setting.num_nodes)),
        source(
            clock, setting.source_bytes_per_s, [this](ChunkBuffer& buffer) { read(buffer); },
            [this] { touched.insert(0); }) {
    network.touched = [this](int node) { touched.insert(node); };
    network.damage = setting.damage;
    for (uint64_t i = 0; i < setting.num_chunks; ++i) chunks.push_back(10 + i);  // not equal to their positions
    for (int node = 0; node < setting.num_nodes; ++node) {
      disks.emplace_back(
          clock, setting.disk_bytes_per_s, [this, node](ChunkBuffer& buffer) { write(node, buffer); },
          [this, node] { touched.insert(node); });
      relays.emplace_back(
          network.wire(node), RelayPlace{node, setting.num_nodes, [](int other) { return other; }},
          RelayWork{setting.chunk_bytes, chunks, [this, node](uint64_t chunk) { return setting.lacks(node, chunk); },
                    node == 0 ? &source : nullptr, &disks.back()});
      touched.insert(node);
    }
    do {
      while (!touched.empty()) {
        const int node = *touched.begin();
        touched.erase(touched.begin());
        while (relays[static_cast<size_t>(node)].poll()) {
        }
      }
    } while (clock.advance());
  }

  bool all_done() const {
    return std::all_of(relays.begin(), relays.end(), [](const Relay& relay) { return relay.done(); });
  }

  const Setting setting;
  VirtualClock clock;  ///< now_s() is when the last node was done
  VirtualNetwork network;
  std::vector<uint64_t> chunks;
  std::vector<std::vector<uint64_t>> written;  ///< by node, in the order of writing
  bool all_right = true;                       ///< what was written has the bytes of its chunk
  std::deque<Relay> relays;

 private:
  void read(ChunkBuffer& buffer) {
    const uint64_t chunk = chunks[buffer.position];
    if (setting.source_fails(chunk)) {
      buffer.header().bytes = 0;
      buffer.failure = std::make_exception_ptr(DataError("the source is gone"));
      return;
    }
    fill(chunk, setting.chunk_bytes, buffer.payload());
    buffer.seal(chunk, setting.chunk_bytes);
  }

  void write(int node, ChunkBuffer& buffer) {
    std::vector<std::byte> right(setting.chunk_bytes);
    fill(buffer.header().chunk, setting.chunk_bytes, right.data());
    all_right &= std::memcmp(right.data(), buffer.payload(), right.size()) == 0;
    written[static_cast<size_t>(node)].push_back(buffer.header().chunk);
  }

  std::set<int> touched;
  std::deque<VirtualDisk> disks;
  VirtualDisk source;
};

}  // namespace athanor::staging
