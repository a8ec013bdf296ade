#include "train/block_hashes.h"

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "base/hash.h"
#include "ops/transfer.h"

namespace athanor {
namespace {

constexpr int64_t kHostBlock = int64_t{1} << 16, kDeviceBlock = int64_t{1} << 22;  // elements

Tensor as_integers(const Tensor& values) {
  switch (values.element_size()) {
    case 2: return values.view(at::kShort);
    case 4: return values.view(at::kInt);
    default: ATHANOR_ASSERT(values.element_size() == 8); return values.view(at::kLong);
  }
}

// An odd factor for each element of a block: a flipped bit b changes the sum by ±2^b times an odd number, which is not
// 0 modulo 2^64. A function of the index alone, so that all ranks have the same (splitmix64).
Tensor odd_factors(int64_t size, at::Device device) {
  const Tensor factors = at::empty({size}, at::kLong);
  auto* out = factors.data_ptr<int64_t>();
  for (int64_t i = 0; i < size; ++i) {
    uint64_t x = static_cast<uint64_t>(i + 1) * 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    out[i] = static_cast<int64_t>((x ^ (x >> 31)) | 1);
  }
  return ops::send(factors, device);
}

Tensor hash_on_device(const Tensor& values) {
  const int64_t size = values.numel(), blocks = (size + kDeviceBlock - 1) / kDeviceBlock;
  const Tensor integers = as_integers(values), factors = odd_factors(std::min(size, kDeviceBlock), values.device());
  const Tensor hashes = at::empty({blocks}, values.options().dtype(at::kLong));
  for (int64_t block = 0; block < blocks; ++block) {
    const int64_t begin = block * kDeviceBlock, count = std::min(kDeviceBlock, size - begin);
    const Tensor products = integers.narrow(0, begin, count).to(at::kLong).mul_(factors.narrow(0, 0, count));
    hashes.select(0, block).copy_(products.sum());
  }
  return hashes;
}

Tensor hash_on_host(const Tensor& values) {
  const int64_t size = values.numel(), blocks = (size + kHostBlock - 1) / kHostBlock;
  const Tensor hashes = at::empty({blocks}, at::kLong);
  const auto* bytes = static_cast<const char*>(values.const_data_ptr());
  auto* out = hashes.data_ptr<int64_t>();
  const int64_t width = values.element_size();
  at::parallel_for(0, blocks, 1, [&](int64_t first, int64_t last) {
    for (int64_t block = first; block < last; ++block) {
      const int64_t begin = block * kHostBlock, count = std::min(kHostBlock, size - begin);
      out[block] = static_cast<int64_t>(hash_u64(
          std::string_view(bytes + begin * width, static_cast<size_t>(count * width)), static_cast<uint64_t>(block)));
    }
  });
  return hashes;
}

}  // namespace

BlockHashes::BlockHashes(const Tensor& values)
    : size_(values.numel()), block_(values.is_cpu() ? kHostBlock : kDeviceBlock),
      hashes_(values.is_cpu() ? hash_on_host(values) : hash_on_device(values)) {}

std::vector<int64_t> BlockHashes::on_host() const {
  const Tensor here = hashes_.is_cpu() ? hashes_ : ops::fetch(hashes_);
  const auto* begin = here.const_data_ptr<int64_t>();
  return {begin, begin + here.numel()};
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

}  // namespace athanor
