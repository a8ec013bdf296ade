#include "parallel/parameters.h"

#include "kernels/master.h"
#include "ops/flat_memory.h"
#include "ops/transfer.h"
#include "ops/update_memory.h"

namespace athanor::inline parallel {

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

Tensor ParameterStore::master_there(FlatRange range) const {
  const Tensor weight = compute_.narrow(0, range.begin, range.size());
  if (compute_.scalar_type() == at::kFloat) return weight;
  Tensor master = ops::join_master(weight, {});
  if (!master_low_.defined()) return master;
  for_each_owned(range, [&](FlatRange own, int64_t state) {
    const auto owned = [&](const Tensor& x) { return x.narrow(0, own.begin - range.begin, own.size()); };
    owned(master).copy_(ops::join_master(owned(weight), master_low_.narrow(0, state, own.size())));
  });
  return master;
}

void ParameterStore::read_from_device(int64_t at, std::span<float> out) const {
  ops::fetch_bytes(master_there({at, at + std::ssize(out)}), out.data());
}

void ParameterStore::write_to_device(int64_t at, std::span<const float> values) {
  const int64_t count = std::ssize(values);
  const Tensor weight = compute_.narrow(0, at, count);
  if (compute_.scalar_type() == at::kFloat) return ops::send_bytes(weight, values.data());
  const Tensor master = at::empty({count}, compute_.options().dtype(at::kFloat));
  ops::send_bytes(master, values.data());
  ops::split_master(master, weight, {});
  if (!master_low_.defined()) return;
  for_each_owned({at, at + count}, [&](FlatRange range, int64_t state) {
    const auto owned = [&](const Tensor& x) { return x.narrow(0, range.begin - at, range.size()); };
    ops::split_master(owned(master), owned(weight), master_low_.narrow(0, state, range.size()));
  });
}

void ParameterStore::read_master(int64_t at, std::span<float> out) const {
  if (!compute_.is_cpu()) return read_from_device(at, out);
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
  if (!compute_.is_cpu()) return write_to_device(at, values);
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

void ParameterStore::fill_master(const std::string& name,
                                 const std::function<void(int64_t first, std::span<float> out)>& source) {
  constexpr int64_t kBlock = int64_t{1} << 16;  // 256 KiB: what a core's cache holds between source and rounding
  const BucketEntry& e = entry(name);
  const auto fill = [&](int64_t begin, int64_t size, auto take) {
    at::parallel_for(0, (size + kBlock - 1) / kBlock, 1, [&](int64_t first, int64_t last) {
      for (int64_t b = first; b < last; ++b) take(begin + b * kBlock, std::min(kBlock, size - b * kBlock));
    });
  };
  if (compute_.is_cpu()) {
    return fill(0, e.num_elements(), [&](int64_t first, int64_t count) {
      std::vector<float> block(static_cast<size_t>(count));
      source(first, block);
      write_master(e, first, block);
    });
  }
  constexpr int64_t kSent = int64_t{1} << 22;  // 16 MiB at a time to a device
  std::vector<float> values(static_cast<size_t>(std::min(kSent, e.num_elements())));
  for (int64_t begin = 0; begin < e.num_elements(); begin += kSent) {
    const auto sent = std::span(values).first(static_cast<size_t>(std::min(kSent, e.num_elements() - begin)));
    fill(begin, std::ssize(sent), [&](int64_t first, int64_t count) {
      source(first, sent.subspan(static_cast<size_t>(first - begin), static_cast<size_t>(count)));
    });
    write_master(e, begin, sent);
  }
}

Tensor ParameterStore::master_copy(const std::string& name) const {
  const BucketEntry& e = entry(name);
  Tensor copy = at::empty(e.extent, at::kFloat);
  read_master(e, 0, {copy.data_ptr<float>(), static_cast<size_t>(copy.numel())});
  return copy;
}

}  // namespace athanor::inline parallel
