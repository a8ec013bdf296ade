#include "parallel/parameters.h"

#include "kernels/master.h"
#include "ops/flat_memory.h"

namespace athanor {
namespace {

constexpr int64_t kAlignment = 64;  // elements: 128 bytes of bf16, whole cache lines for every type

int64_t product(const std::vector<int64_t>& extent) {
  int64_t result = 1;
  for (const int64_t e : extent) result *= e;
  return result;
}

int64_t size_of(const BucketEntry& entry) { return entry.flat_end - entry.flat_begin; }

}  // namespace

ParameterStore::ParameterStore(std::vector<BucketEntry> entries, at::ScalarType compute_type, Use use)
    : table_(std::move(entries)) {
  for (size_t i = 0; i < table_.size(); ++i) {
    BucketEntry& entry = table_[i];
    entry.flat_begin = flat_size_;
    entry.flat_end = flat_size_ + product(entry.extent);
    flat_size_ = (entry.flat_end + kAlignment - 1) / kAlignment * kAlignment;
    ATHANOR_ASSERT(by_name_.emplace(entry.name, i).second);
  }
  compute_ = ops::flat_zeros(flat_size_, compute_type);
  if (use == Use::kInference) return;
  grad_ = ops::flat_zeros(flat_size_, at::kFloat);
  if (compute_type == at::kBFloat16) master_low_ = ops::flat_zeros(flat_size_, at::kUInt16);
}

const BucketEntry& ParameterStore::entry(const std::string& name) const {
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) fail<Error>("bug: the model has no parameter {}", name);
  return table_[found->second];
}

int64_t ParameterStore::num_elements() const {
  int64_t total = 0;
  for (const auto& entry : table_) total += size_of(entry);
  return total;
}

Tensor ParameterStore::view(const Tensor& flat, const BucketEntry& entry) const {
  return flat.narrow(0, entry.flat_begin, size_of(entry)).view(entry.extent);
}

Weight ParameterStore::weight(const std::string& name) const {
  const BucketEntry& e = entry(name);
  return {view(compute_, e), grad_.defined() ? view(grad_, e) : Tensor()};
}

void ParameterStore::read_master(const BucketEntry& entry, int64_t first, std::span<float> out) const {
  const auto count = static_cast<int64_t>(out.size()), at = entry.flat_begin + first;
  ATHANOR_ASSERT(first >= 0 && first + count <= size_of(entry));
  if (compute_.scalar_type() == at::kFloat) {
    std::copy_n(ops::pointer<float>(compute_) + at, count, out.begin());
    return;
  }
  const auto* weight = ops::pointer<kernels::Bf16>(compute_) + at;
  const auto* low = master_low_.defined() ? ops::pointer<uint16_t>(master_low_) + at : nullptr;
  for (size_t i = 0; i < out.size(); ++i) out[i] = kernels::join_master(weight[i], low ? low[i] : uint16_t{0});
}

void ParameterStore::write_master(const BucketEntry& entry, int64_t first, std::span<const float> values) {
  const auto count = static_cast<int64_t>(values.size()), at = entry.flat_begin + first;
  ATHANOR_ASSERT(first >= 0 && first + count <= size_of(entry));
  if (compute_.scalar_type() == at::kFloat) {
    std::copy_n(values.begin(), count, ops::pointer<float>(compute_) + at);
    return;
  }
  auto* weight = ops::pointer<kernels::Bf16>(compute_) + at;
  auto* low = master_low_.defined() ? ops::pointer<uint16_t>(master_low_) + at : nullptr;
  for (size_t i = 0; i < values.size(); ++i) {
    uint16_t lower_bits = 0;
    kernels::split_master(values[i], weight[i], lower_bits);
    if (low) low[i] = lower_bits;
  }
}

void ParameterStore::fill_master(const std::string& name, const Source& source) {
  constexpr int64_t kBlock = int64_t{1} << 16;  // 256 KiB: what a core's cache holds between source and rounding
  const BucketEntry& e = entry(name);
  const int64_t size = size_of(e), blocks = (size + kBlock - 1) / kBlock;
  at::parallel_for(0, blocks, 1, [&](int64_t begin, int64_t end) {
    std::vector<float> block(static_cast<size_t>(std::min(kBlock, size)));
    for (int64_t b = begin; b < end; ++b) {
      const auto values = std::span(block).first(static_cast<size_t>(std::min(kBlock, size - b * kBlock)));
      source(b * kBlock, values);
      write_master(e, b * kBlock, values);
    }
  });
}

Tensor ParameterStore::master_copy(const std::string& name) const {
  const BucketEntry& e = entry(name);
  Tensor copy = at::empty(e.extent, at::kFloat);
  read_master(e, 0, {copy.data_ptr<float>(), static_cast<size_t>(copy.numel())});
  return copy;
}

}  // namespace athanor
