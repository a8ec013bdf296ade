#include "ops/block_heap.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

namespace athanor::ops::block_heap_test {
namespace {

constexpr size_t kMiB = 1 << 20;

TEST(BlockHeap, NeighboursThatAreFreedBecomeOneBlockAgain) {
  BlockHeap heap(64 * kMiB);
  void* a = heap.allocate(3 * kMiB);
  void* b = heap.allocate(3 * kMiB);
  void* c = heap.allocate(3 * kMiB);
  void* last = heap.allocate(kMiB);
  heap.free(a);
  heap.free(c);
  heap.free(b);  // joins both sides
  EXPECT_EQ(heap.allocate(9 * kMiB), a);
  heap.free(last);
}

TEST(BlockHeap, ASmallBlockIsCutFromTheSmallestThatFits) {
  BlockHeap heap(64 * kMiB);
  void* large = heap.allocate(8 * kMiB);
  void* wall = heap.allocate(kMiB);
  void* small = heap.allocate(2 * kMiB);
  void* end = heap.allocate(kMiB);
  heap.free(large);
  heap.free(small);
  EXPECT_EQ(heap.allocate(2 * kMiB - 512), small);
  EXPECT_EQ(heap.allocate(8 * kMiB), large);
  heap.free(wall);
  heap.free(end);
}

TEST(BlockHeap, FreedMemoryIsUsedAgainWithoutAskingTheSystem) {
  BlockHeap heap(256 * kMiB);
  size_t fresh = 0;
  for (int round = 0; round < 5; ++round) {
    std::vector<void*> blocks;
    for (size_t i = 0; i < 20; ++i) blocks.push_back(heap.allocate((i % 7 + 1) * kMiB));
    for (void* block : blocks) heap.free(block);
    if (round == 0) fresh = heap.num_fresh();
  }
  EXPECT_EQ(heap.num_fresh(), fresh);
  EXPECT_EQ(heap.num_blocks(), 1u);
}

TEST(BlockHeap, ReleasedMemoryIsCountedAndTakenAgain) {
  BlockHeap heap(64 * kMiB);
  auto* a = static_cast<char*>(heap.allocate(16 * kMiB));
  void* b = heap.allocate(4 * kMiB);
  std::memset(a, 7, 16 * kMiB);
  heap.free(a);
  heap.release();
  EXPECT_EQ(heap.bytes_held(), 4 * kMiB);
  heap.release();  // nothing more to release
  EXPECT_EQ(heap.bytes_held(), 4 * kMiB);
  const size_t fresh = heap.num_fresh();
  auto* again = static_cast<char*>(heap.allocate(16 * kMiB));
  EXPECT_EQ(again, a);
  EXPECT_EQ(again[8 * kMiB], 0) << "the pages were not given back";
  EXPECT_EQ(heap.num_fresh(), fresh + 1);
  EXPECT_EQ(heap.bytes_held(), 20 * kMiB);
  heap.free(b);
}

TEST(BlockHeap, AUsedUpRangeAndARefusedOneAnswerNull) {
  BlockHeap heap(4 * kMiB);
  EXPECT_EQ(heap.allocate(5 * kMiB), nullptr);
  void* all = heap.allocate(4 * kMiB);
  EXPECT_NE(all, nullptr);
  EXPECT_EQ(heap.allocate(1), nullptr);
  heap.free(all);
  BlockHeap impossible(size_t{1} << 60);
  EXPECT_FALSE(impossible.usable());
  EXPECT_EQ(impossible.allocate(1), nullptr);
}

// Blocks never overlap, keep the bytes written into them, and all become one in the end.
TEST(BlockHeap, AThousandRandomBlocksKeepTheirBytes) {
  BlockHeap heap(512 * kMiB);
  std::mt19937_64 random(1);
  struct Held {
    unsigned char* at;
    size_t size;
    unsigned char mark;
  };
  std::vector<Held> held;
  const auto check_and_free = [&](size_t i) {
    for (size_t byte = 0; byte < held[i].size; byte += 509) ASSERT_EQ(held[i].at[byte], held[i].mark);
    heap.free(held[i].at);
    held[i] = held.back();
    held.pop_back();
  };
  for (int round = 0; round < 1000; ++round) {
    if (held.size() > 40 || (!held.empty() && random() % 2)) check_and_free(random() % held.size());
    const size_t size = 1 + random() % (random() % 8 == 0 ? 4 * kMiB : 200000);
    auto* at = static_cast<unsigned char*>(heap.allocate(size));
    ASSERT_NE(at, nullptr);
    ASSERT_EQ(reinterpret_cast<size_t>(at) % 64, 0u);
    ASSERT_GE(heap.size_of(at), size);
    ASSERT_LT(heap.size_of(at), size + BlockHeap::kGranule_bytes + BlockHeap::kLeastRest_bytes);
    held.push_back({at, size, static_cast<unsigned char>(round)});
    std::memset(at, held.back().mark, size);
    if (round % 100 == 0) heap.release();
  }
  while (!held.empty()) check_and_free(held.size() - 1);
  EXPECT_EQ(heap.num_blocks(), 1u);
}

}  // namespace
}  // namespace athanor::ops::block_heap_test
