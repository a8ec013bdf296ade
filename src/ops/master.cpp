#include "ops/master.h"

#include <algorithm>

#include "kernels/master.h"
#include "ops/transfer.h"

namespace athanor::ops {
namespace {

using kernels::Bf16;

// The 16 bits of each element as int32, from 0 to 65535.
Tensor bits_of(const Tensor& x) { return x.view(at::kShort).to(at::kInt).bitwise_and_(0xFFFF); }

constexpr int64_t kFilled = int64_t{1} << 16;        // 256 KiB: what a core's cache holds between source and rounding
constexpr int64_t kSentTogether = int64_t{1} << 22;  // 16 MiB at a time to a device

// Elements [first, first + size) of a range that are in `part`.
MasterRange::Part common(const MasterRange::Part& part, int64_t first, int64_t size) {
  const int64_t begin = std::max(part.first, first), end = std::min(part.first + part.count, first + size);
  return {begin, part.begin + begin - part.first, std::max<int64_t>(0, end - begin)};
}

// On the host nothing is made for a range, which may be a few elements of many, and no thread is woken: several threads
// may be at work already.

void read_on_host(const MasterRange& range, std::span<float> out) {
  const auto* high = pointer<Bf16>(range.weight) + range.begin;
  for (size_t i = 0; i < out.size(); ++i) out[i] = kernels::join_master(high[i], uint16_t{0});
  for (const auto& part : range.parts) {
    const auto* bits = pointer<uint16_t>(range.low) + part.begin;
    for (int64_t i = 0; i < part.count; ++i)
      out[static_cast<size_t>(part.first + i)] = kernels::join_master(high[part.first + i], bits[i]);
  }
}

// Sets elements [first, first + values.size()) of the range.
void write_on_host(std::span<const float> values, const MasterRange& range, int64_t first) {
  if (range.weight.scalar_type() == at::kFloat) {
    std::ranges::copy(values, pointer<float>(range.weight) + range.begin + first);
    return;
  }
  auto* high = pointer<Bf16>(range.weight) + range.begin;
  uint16_t lost = 0;
  for (size_t i = 0; i < values.size(); ++i)
    kernels::split_master(values[i], high[first + static_cast<int64_t>(i)], lost);
  for (const auto& each : range.parts) {
    const auto part = common(each, first, std::ssize(values));
    auto* bits = pointer<uint16_t>(range.low) + part.begin;
    for (int64_t i = 0; i < part.count; ++i)
      kernels::split_master(values[static_cast<size_t>(part.first - first + i)], high[part.first + i], bits[i]);
  }
}

void write_there(std::span<const float> values, const MasterRange& range, int64_t first) {
  const Tensor weight = range.weight.narrow(0, range.begin + first, std::ssize(values));
  if (weight.scalar_type() == at::kFloat) return send_bytes(weight, values.data());
  const Tensor master = at::empty({std::ssize(values)}, weight.options().dtype(at::kFloat));
  send_bytes(master, values.data());
  split_master(master, weight, Tensor());
  for (const auto& each : range.parts) {
    const auto part = common(each, first, std::ssize(values));
    const auto of = [&](const Tensor& x) { return x.narrow(0, part.first - first, part.count); };
    if (part.count > 0) split_master(of(master), of(weight), range.low.narrow(0, part.begin, part.count));
  }
}

// Calls take(begin, size) for blocks of [0, size) on all threads.
template <class Take>
void for_blocks(int64_t size, Take take) {
  at::parallel_for(0, (size + kFilled - 1) / kFilled, 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) take(i * kFilled, std::min(kFilled, size - i * kFilled));
  });
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
  const Tensor weight = range.weight.narrow(0, range.begin, range.size);
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
  range.weight.is_cpu() ? write_on_host(values, range, 0) : write_there(values, range, 0);
}

void fill_master(const MasterRange& range, const MasterSource& source) {
  if (range.weight.is_cpu()) {
    return for_blocks(range.size, [&](int64_t first, int64_t size) {
      std::vector<float> block(static_cast<size_t>(size));
      source(first, block);
      write_on_host(block, range, first);
    });
  }
  std::vector<float> values(static_cast<size_t>(std::min(kSentTogether, range.size)));
  for (int64_t begin = 0; begin < range.size; begin += kSentTogether) {
    const auto sent = std::span(values).first(static_cast<size_t>(std::min(kSentTogether, range.size - begin)));
    for_blocks(std::ssize(sent), [&](int64_t first, int64_t size) {
      source(begin + first, sent.subspan(static_cast<size_t>(first), static_cast<size_t>(size)));
    });
    write_there(sent, range, begin);
  }
}

}  // namespace athanor::ops
