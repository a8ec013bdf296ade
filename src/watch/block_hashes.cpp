#include "watch/block_hashes.h"

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "base/hash.h"
#include "ops/transfer.h"

namespace athanor::inline watch {
BlockHashes::BlockHashes(const Tensor& values, const ops::MemoryHasher& hasher)
    : size_(values.numel()), block_(hasher.block()), hashes_(hasher.hash(values)) {}

void BlockHashes::fetch(std::span<BlockHashes* const> all) {
  std::vector<Tensor*> hashes;
  for (BlockHashes* each : all) hashes.push_back(&each->hashes_);
  ops::fetch_together(hashes);
}

std::span<const int64_t> BlockHashes::on_host() const {
  return {ops::pointer<int64_t>(hashes_), static_cast<size_t>(hashes_.numel())};
}

std::optional<FlatRange> BlockHashes::first_difference(const BlockHashes& now) const {
  ATHANOR_ASSERT(size_ == now.size_ && block_ == now.block_);
  const auto before = on_host(), after = now.on_host();
  const auto at = std::ranges::mismatch(before, after).in1 - before.begin();
  if (at == std::ssize(before)) return std::nullopt;
  return FlatRange{at * block_, std::min(size_, (at + 1) * block_)};
}

int64_t BlockHashes::combined() const {
  const auto all = on_host();
  return static_cast<int64_t>(
      hash_u64(std::string_view(reinterpret_cast<const char*>(all.data()), all.size() * sizeof(int64_t))));
}

}  // namespace athanor::inline watch
