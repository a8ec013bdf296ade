#include "ops/master.h"

#include <algorithm>

#include "kernels/master.h"
#include "ops/transfer.h"

namespace athanor::ops {
namespace {

using kernels::Bf16;

// The 16 bits of each element as int32, from 0 to 65535.
Tensor bits_of(const Tensor& x) { return x.view(at::kShort).to(at::kInt).bitwise_and_(0xFFFF); }

// On the host nothing is made for a range, which may be a few elements of many.

void read_on_host(const MasterRange& range, std::span<float> out) {
  const auto* high = pointer<Bf16>(range.weight) + range.begin;
  for (size_t i = 0; i < out.size(); ++i) out[i] = kernels::join_master(high[i], uint16_t{0});
  for (const auto& part : range.parts) {
    const auto* bits = pointer<uint16_t>(range.low) + part.begin;
    for (int64_t i = 0; i < part.count; ++i)
      out[static_cast<size_t>(part.first + i)] = kernels::join_master(high[part.first + i], bits[i]);
  }
}

void write_on_host(std::span<const float> values, const MasterRange& range) {
  auto* high = pointer<Bf16>(range.weight) + range.begin;
  for_rows(std::ssize(values), 1, [&](int64_t begin, int64_t end) {
    uint16_t lost = 0;
    for (int64_t i = begin; i < end; ++i) kernels::split_master(values[static_cast<size_t>(i)], high[i], lost);
  });
  for (const auto& part : range.parts) {
    auto* bits = pointer<uint16_t>(range.low) + part.begin;
    for_rows(part.count, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        kernels::split_master(values[static_cast<size_t>(part.first + i)], high[part.first + i], bits[i]);
    });
  }
}

Tensor weights_of(const MasterRange& range) { return range.weight.narrow(0, range.begin, range.size); }

void write_there(std::span<const float> values, const MasterRange& range) {
  const Tensor weight = weights_of(range);
  const Tensor master = at::empty({range.size}, weight.options().dtype(at::kFloat));
  send_bytes(master, values.data());
  split_master(master, weight, Tensor());
  for (const auto& each : range.parts) {
    const auto part = [&](const Tensor& x) { return x.narrow(0, each.first, each.count); };
    split_master(part(master), part(weight), range.low.narrow(0, each.begin, each.count));
  }
}

}  // namespace

Tensor join_master(const Tensor& weight, const Tensor& low) {
  const Tensor high = bits_of(weight);
  if (!low.defined()) return high.bitwise_left_shift(16).view(at::kFloat);
  const Tensor rest = bits_of(low);
  // In place: of a large block each copy counts (train/update_sums.h).
  return high.sub_((rest > 0x8000).to(at::kInt)).bitwise_left_shift_(16).bitwise_or_(rest).view(at::kFloat);
}

void split_master(const Tensor& values, const Tensor& weight, const Tensor& low) {
  const Tensor bits = values.contiguous().view(at::kInt);
  const Tensor stored = bits.bitwise_or((bits.bitwise_and(0x1FFFF) == 0x18000).to(at::kInt));
  weight.copy_(stored.view(at::kFloat));
  if (low.defined()) low.view(at::kShort).copy_(stored.to(at::kShort));
}

Tensor join_master(const MasterRange& range) {
  const Tensor weight = weights_of(range);
  if (weight.scalar_type() == at::kFloat) return weight;
  Tensor master = join_master(weight, Tensor());
  for (const auto& part : range.parts) {
    const Tensor low = range.low.narrow(0, part.begin, part.count);
    master.narrow(0, part.first, part.count).copy_(join_master(weight.narrow(0, part.first, part.count), low));
  }
  return master;
}

void fetch_master(const MasterRange& range, std::span<float> out) {
  if (!range.weight.is_cpu()) return fetch_bytes(join_master(range), out.data());
  if (range.weight.scalar_type() == at::kBFloat16) return read_on_host(range, out);
  std::copy_n(pointer<float>(range.weight) + range.begin, range.size, out.begin());
}

void send_master(std::span<const float> values, const MasterRange& range) {
  const bool is_fp32 = range.weight.scalar_type() == at::kFloat;
  if (!range.weight.is_cpu())
    return is_fp32 ? send_bytes(weights_of(range), values.data()) : write_there(values, range);
  if (!is_fp32) return write_on_host(values, range);
  std::copy_n(values.begin(), range.size, pointer<float>(range.weight) + range.begin);
}

}  // namespace athanor::ops
