#include "saves/staging_pool.h"

#include <ATen/Parallel.h>

#include <algorithm>

#include "base/fault.h"

namespace athanor::inline saves {
namespace {

constexpr int64_t kAlign = 16;                // elements: a piece begins at a line of the cache
constexpr int64_t kBlock = int64_t{1} << 20;  // elements that are copied at a time

int64_t padded(int64_t count) { return (count + kAlign - 1) / kAlign * kAlign; }

int64_t count_all(const std::vector<PieceView>& pieces, const std::vector<Tensor>& values) {
  int64_t count = 0;
  for (const PieceView& each : pieces) count += padded(each.slice.num_elements());
  for (const Tensor& each : values) count += each.defined() ? padded(each.numel()) : 0;
  return count;
}

struct Block {
  const PieceView* piece;
  int64_t first, count;
  float* to;

  void copy() const {
    const std::span<float> out(to, static_cast<size_t>(count));
    if (piece->queue) return piece->queue(first, out);
    if (!piece->data) return piece->read(first, out);
    std::copy_n(piece->data + first, count, to);
  }
};

}  // namespace

StagingPool::StagingPool(const std::vector<PieceView>& pieces, const std::vector<Tensor>& values, at::Device device)
    : memory_(ops::empty_on_host(count_all(pieces, values), device)), copies_(device) {
  memory_.zero_();  // the pages are taken now
}

StagingPool::Copy StagingPool::copy(const std::vector<PieceView>& pieces, const std::vector<Tensor>& values) {
  ATHANOR_ASSERT(count_all(pieces, values) <= memory_.numel());
  Copy copy;
  std::vector<Block> blocks;
  float* to = memory_.data_ptr<float>();
  for (const PieceView& each : pieces) {
    const int64_t count = each.slice.num_elements();
    copy.pieces.push_back({each.tensor, each.slice, to});
    for (int64_t first = 0; first < count; first += kBlock)
      blocks.push_back({&each, first, std::min(kBlock, count - first), to + first});
    to += padded(count);
  }
  copies_.run([&] {
    const auto copy_blocks = [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        fault_point("checkpoint.copy");
        blocks[static_cast<size_t>(i)].copy();
      }
    };
    const bool queues = !pieces.empty() && pieces.front().queue;
    if (queues) {
      copy_blocks(0, std::ssize(blocks));
    } else {
      at::parallel_for(0, std::ssize(blocks), 1, copy_blocks);
    }
    for (const Tensor& each : values) {
      copy.values.emplace_back();
      if (!each.defined()) continue;
      copy.values.back() = at::from_blob(to, each.sizes(), at::TensorOptions(at::kFloat));
      ops::FetchAside::copy(each, copy.values.back());
      to += padded(each.numel());
    }
  });
  return copy;
}

}  // namespace athanor::inline saves
