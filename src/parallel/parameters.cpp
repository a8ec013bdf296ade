#include "parallel/parameters.h"

#include "kernels/master.h"
#include "ops/flat_memory.h"

namespace athanor {

ParameterStore::ParameterStore(std::vector<BucketEntry> entries, at::ScalarType compute_type, Use use,
                               const Sharding& sharding, c10::Device device)
    : table_(std::move(entries)), buckets_(lay_out_buckets(table_, sharding)),
      owned_(find_owned_ranges(buckets_, sharding)), flat_size_(buckets_.empty() ? 0 : buckets_.back().range.end) {
  for (size_t i = 0; i < table_.size(); ++i) ATHANOR_ASSERT(by_name_.emplace(table_[i].name, i).second);
  compute_ = ops::flat_zeros(flat_size_, compute_type, device);
  if (use == Use::kInference) return;
  grad_ = ops::flat_zeros(flat_size_, at::kFloat, device);
  if (compute_type == at::kBFloat16) master_low_ = ops::flat_zeros(state_size(), at::kUInt16, device);
}

int64_t ParameterStore::state_size() const {
  return owned_.empty() ? 0 : owned_.back().state_begin + owned_.back().flat.size();
}

const BucketEntry& ParameterStore::entry(const std::string& name) const {
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) fail<Error>("bug: the model has no parameter {}", name);
  return table_[found->second];
}

int64_t ParameterStore::num_elements() const {
  int64_t total = 0;
  for (const auto& entry : table_) total += entry.num_elements();
  return total;
}

Tensor ParameterStore::view(const Tensor& flat, const BucketEntry& entry) const {
  return flat.narrow(0, entry.flat_begin, entry.num_elements()).view(entry.extent);
}

Weight ParameterStore::weight(const std::string& name) const {
  const BucketEntry& e = entry(name);
  return {view(compute_, e), grad_.defined() ? view(grad_, e) : Tensor()};
}

int64_t ParameterStore::state_begin(FlatRange range) const {
  int64_t begin = -1;
  for_each_owned(range, [&](FlatRange owned, int64_t at) {
    ATHANOR_ASSERT(owned == range);
    begin = at;
  });
  ATHANOR_ASSERT(begin >= 0);
  return begin;
}

void ParameterStore::read_master(const BucketEntry& entry, int64_t first, std::span<float> out) const {
  ATHANOR_ASSERT(first >= 0 && first + std::ssize(out) <= entry.num_elements());
  read_master(entry.flat_begin + first, out);
}

void ParameterStore::write_master(const BucketEntry& entry, int64_t first, std::span<const float> values) {
  ATHANOR_ASSERT(first >= 0 && first + std::ssize(values) <= entry.num_elements());
  write_master(entry.flat_begin + first, values);
}

void ParameterStore::read_master(int64_t at, std::span<float> out) const {
  const auto count = static_cast<int64_t>(out.size());
  if (compute_.scalar_type() == at::kFloat) {
    std::copy_n(ops::pointer<float>(compute_) + at, count, out.begin());
    return;
  }
  const auto* weight = ops::pointer<kernels::Bf16>(compute_) + at;
  for (size_t i = 0; i < out.size(); ++i) out[i] = kernels::join_master(weight[i], uint16_t{0});
  if (!master_low_.defined()) return;
  const auto* low = ops::pointer<uint16_t>(master_low_);
  for_each_owned({at, at + count}, [&](FlatRange range, int64_t state) {
    for (int64_t i = 0; i < range.size(); ++i) {
      const int64_t in_out = range.begin - at + i;
      out[static_cast<size_t>(in_out)] = kernels::join_master(weight[in_out], low[state + i]);
    }
  });
}

void ParameterStore::write_master(int64_t at, std::span<const float> values) {
  const auto count = static_cast<int64_t>(values.size());
  if (compute_.scalar_type() == at::kFloat) {
    std::copy_n(values.begin(), count, ops::pointer<float>(compute_) + at);
    return;
  }
  auto* weight = ops::pointer<kernels::Bf16>(compute_) + at;
  uint16_t lower_bits = 0;
  for (size_t i = 0; i < values.size(); ++i) kernels::split_master(values[i], weight[i], lower_bits);
  if (!master_low_.defined()) return;
  auto* low = ops::pointer<uint16_t>(master_low_);
  for_each_owned({at, at + count}, [&](FlatRange range, int64_t state) {
    for (int64_t i = 0; i < range.size(); ++i) {
      const int64_t in_values = range.begin - at + i;
      kernels::split_master(values[static_cast<size_t>(in_values)], weight[in_values], low[state + i]);
    }
  });
}

void ParameterStore::fill_master(const std::string& name, const Source& source) {
  constexpr int64_t kBlock = int64_t{1} << 16;  // 256 KiB: what a core's cache holds between source and rounding
  const BucketEntry& e = entry(name);
  const int64_t size = e.num_elements(), blocks = (size + kBlock - 1) / kBlock;
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
