#include "parallel/parameters.h"

namespace athanor {
namespace {

constexpr int64_t kAlignment = 64;  // elements: 128 bytes of bf16, whole cache lines for every type

int64_t product(const std::vector<int64_t>& extent) {
  int64_t result = 1;
  for (const int64_t e : extent) result *= e;
  return result;
}

void round_into(const Tensor& to, const float* from) {
  auto* out = ops::pointer<kernels::Bf16>(to);
  ops::for_rows(to.numel(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) kernels::store(out[i], from[i]);
  });
}

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
  const bool separate_compute = compute_type != at::kFloat;
  if (use == Use::kTraining || !separate_compute) master_ = at::zeros({flat_size_}, at::kFloat);
  if (use == Use::kTraining) grad_ = at::zeros({flat_size_}, at::kFloat);
  compute_ = separate_compute ? at::zeros({flat_size_}, compute_type) : master_;
}

const BucketEntry& ParameterStore::entry(const std::string& name) const {
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) fail<Error>("bug: the model has no parameter {}", name);
  return table_[found->second];
}

int64_t ParameterStore::num_elements() const {
  int64_t total = 0;
  for (const auto& entry : table_) total += entry.flat_end - entry.flat_begin;
  return total;
}

Tensor ParameterStore::view(const Tensor& flat, const BucketEntry& entry) const {
  return flat.narrow(0, entry.flat_begin, entry.flat_end - entry.flat_begin).view(entry.extent);
}

Weight ParameterStore::weight(const std::string& name) const {
  const BucketEntry& e = entry(name);
  return {view(compute_, e), grad_.defined() ? view(grad_, e) : Tensor()};
}

Tensor ParameterStore::master_of(const std::string& name) const { return view(master_, entry(name)); }

void ParameterStore::refresh_compute() {
  if (compute_.is_same(master_)) return;
  round_into(compute_, master_.const_data_ptr<float>());
}

void ParameterStore::set_compute(const std::string& name, const float* values) {
  const Tensor to = view(compute_, entry(name));
  if (to.scalar_type() == at::kFloat) {
    std::copy_n(values, to.numel(), to.data_ptr<float>());
  } else {
    round_into(to, values);
  }
}

}  // namespace athanor
