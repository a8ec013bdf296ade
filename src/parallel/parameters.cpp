#include "parallel/parameters.h"

#include "ops/flat_memory.h"

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

ops::MasterRange ParameterStore::master_of(FlatRange range) const {
  ops::MasterRange master{compute_, range.begin, range.size(), master_low_, {}};
  if (!master_low_.defined()) return master;
  for_each_owned(range, [&](FlatRange own, int64_t state) {
    master.parts.push_back({own.begin - range.begin, state, own.size()});
  });
  return master;
}

Tensor ParameterStore::master_there(FlatRange range) const { return ops::join_master(master_of(range)); }

void ParameterStore::read_master(int64_t at, std::span<float> out) const {
  ops::fetch_master(master_of({at, at + std::ssize(out)}), out);
}

void ParameterStore::write_master(int64_t at, std::span<const float> values) {
  ops::send_master(values, master_of({at, at + std::ssize(values)}));
}

void ParameterStore::fill_master(const std::string& name, const ops::MasterSource& source) {
  ops::fill_master(master_of(entry(name).range()), source);
}

Tensor ParameterStore::master_copy(const std::string& name) const {
  const BucketEntry& e = entry(name);
  Tensor copy = at::empty(e.extent, at::kFloat);
  read_master(e, 0, {copy.data_ptr<float>(), static_cast<size_t>(copy.numel())});
  return copy;
}

}  // namespace athanor::inline parallel
