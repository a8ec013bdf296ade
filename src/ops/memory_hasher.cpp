#include "ops/memory_hasher.h"

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "base/hash.h"

namespace athanor::ops {
namespace {

Tensor as_integers(const Tensor& values) {
  switch (values.element_size()) {
    case 2: return values.view(at::kShort);
    case 4: return values.view(at::kInt);
    default: ATHANOR_ASSERT(values.element_size() == 8); return values.view(at::kLong);
  }
}

class HostHasher : public MemoryHasher {
 public:
  int64_t block() const override { return int64_t{1} << 16; }

  Tensor hash(const Tensor& values) const override {
    const int64_t size = values.numel(), blocks = (size + block() - 1) / block();
    const Tensor hashes = at::empty({blocks}, at::kLong);
    const auto* bytes = static_cast<const char*>(values.const_data_ptr());
    auto* out = hashes.data_ptr<int64_t>();
    const int64_t width = values.element_size();
    at::parallel_for(0, blocks, 1, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        const int64_t begin = i * block(), count = std::min(block(), size - begin);
        out[i] = static_cast<int64_t>(hash_u64(
            std::string_view(bytes + begin * width, static_cast<size_t>(count * width)), static_cast<uint64_t>(i)));
      }
    });
    return hashes;
  }

  Tensor fingerprint(const Tensor& values) const override {
    const Tensor hashes = hash(values);
    const std::string_view bytes(static_cast<const char*>(hashes.const_data_ptr()), hashes.nbytes());
    return at::full({}, static_cast<int64_t>(hash_u64(bytes)), at::kLong);
  }
};

// Multiplies each element by an odd factor of its place in the block. A flipped bit b changes the sum of a block by
// ±2^b times an odd number, which is not 0 modulo 2^64.
class DeviceHasher : public MemoryHasher {
 public:
  explicit DeviceHasher(at::Device device) : factors_(factors_of(block(), device)) {}

  int64_t block() const override { return int64_t{1} << 22; }

  Tensor hash(const Tensor& values) const override {
    const int64_t size = values.numel(), blocks = (size + block() - 1) / block();
    const Tensor integers = as_integers(values);
    const Tensor hashes = at::empty({blocks}, values.options().dtype(at::kLong));
    for (int64_t i = 0; i < blocks; ++i) {
      const int64_t begin = i * block(), count = std::min(block(), size - begin);
      const Tensor products = integers.narrow(0, begin, count).to(at::kLong).mul_(factors_.narrow(0, 0, count));
      hashes.select(0, i).copy_(products.sum());
    }
    return hashes;
  }

  Tensor fingerprint(const Tensor& values) const override { return as_integers(values).sum(at::kLong); }

 private:
  // A function of the index alone, so that all ranks have the same (splitmix64); a right shift of int64 copies the
  // sign, which the mask takes away.
  static Tensor factors_of(int64_t count, at::Device device) {
    const at::NoGradGuard no_grad;
    const auto mix = [](const Tensor& x, int64_t shift, uint64_t factor) {
      const int64_t mask = (int64_t{1} << (64 - shift)) - 1;
      return x.bitwise_xor(x.bitwise_right_shift(shift).bitwise_and(mask)).mul(static_cast<int64_t>(factor));
    };
    const Tensor index = at::arange(1, count + 1, at::TensorOptions(at::kLong).device(device));
    Tensor x = index.mul(static_cast<int64_t>(0x9E3779B97F4A7C15u));
    x = mix(x, 30, 0xBF58476D1CE4E5B9u);
    x = mix(x, 27, 0x94D049BB133111EBu);
    return mix(x, 31, 1).bitwise_or(1);
  }

  Tensor factors_;  // [block] int64
};

}  // namespace

std::shared_ptr<const MemoryHasher> MemoryHasher::of(at::Device device) {
  if (device.is_cpu()) return std::make_shared<HostHasher>();
  return std::make_shared<DeviceHasher>(device);
}

}  // namespace athanor::ops
