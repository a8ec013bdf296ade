#include "ops/master.h"

#include "kernels/master.h"
#include "ops/transfer.h"

namespace athanor::ops {
namespace {

using kernels::Bf16;

// The 16 bits of each element as int32, from 0 to 65535.
Tensor bits_of(const Tensor& x) { return x.view(at::kShort).to(at::kInt).bitwise_and_(0xFFFF); }

void read_on_host(const Tensor& weight, std::span<const LowBits> low, std::span<float> out) {
  const auto* high = pointer<Bf16>(weight);
  for (size_t i = 0; i < out.size(); ++i) out[i] = kernels::join_master(high[i], uint16_t{0});
  for (const LowBits& part : low) {
    const auto* bits = pointer<uint16_t>(part.bits);
    for (int64_t i = 0; i < part.bits.numel(); ++i)
      out[static_cast<size_t>(part.first + i)] = kernels::join_master(high[part.first + i], bits[i]);
  }
}

void write_on_host(std::span<const float> values, const Tensor& weight, std::span<const LowBits> low) {
  auto* high = pointer<Bf16>(weight);
  for_rows(std::ssize(values), 1, [&](int64_t begin, int64_t end) {
    uint16_t lost = 0;
    for (int64_t i = begin; i < end; ++i) kernels::split_master(values[static_cast<size_t>(i)], high[i], lost);
  });
  for (const LowBits& part : low) {
    auto* bits = pointer<uint16_t>(part.bits);
    for_rows(part.bits.numel(), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        kernels::split_master(values[static_cast<size_t>(part.first + i)], high[part.first + i], bits[i]);
    });
  }
}

void write_there(std::span<const float> values, const Tensor& weight, std::span<const LowBits> low) {
  const Tensor master = at::empty({std::ssize(values)}, weight.options().dtype(at::kFloat));
  send_bytes(master, values.data());
  split_master(master, weight, Tensor());
  for (const LowBits& each : low) {
    const auto part = [&](const Tensor& x) { return x.narrow(0, each.first, each.bits.numel()); };
    split_master(part(master), part(weight), each.bits);
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

Tensor join_master(const Tensor& weight, std::span<const LowBits> low) {
  if (weight.scalar_type() == at::kFloat) return weight;
  Tensor master = join_master(weight, Tensor());
  for (const LowBits& part : low) {
    const int64_t count = part.bits.numel();
    master.narrow(0, part.first, count).copy_(join_master(weight.narrow(0, part.first, count), part.bits));
  }
  return master;
}

void fetch_master(const Tensor& weight, std::span<const LowBits> low, std::span<float> out) {
  if (weight.is_cpu() && weight.scalar_type() == at::kBFloat16) return read_on_host(weight, low, out);
  fetch_bytes(join_master(weight, low), out.data());
}

void send_master(std::span<const float> values, const Tensor& weight, std::span<const LowBits> low) {
  if (weight.scalar_type() == at::kFloat) return send_bytes(weight, values.data());
  return weight.is_cpu() ? write_on_host(values, weight, low) : write_there(values, weight, low);
}

}  // namespace athanor::ops
