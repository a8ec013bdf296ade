#pragma once
// Where parameters live: flat memory, and a table that says which tensor is where.
//
// Master (fp32), gradients (fp32) and the copy that forward reads (bf16; in fp32 it is the master itself) have one
// layout, so that optimizer, collectives and checkpoints work on flat ranges while layers see tensors.

#include <map>
#include <string>
#include <vector>

#include "ops/tensor.h"

namespace athanor {

/// One line of the bucket table.
struct BucketEntry {
  std::string name;
  std::string group;  ///< parameters of one group are sharded alike: "dense" or "expert"
  std::vector<int64_t> global_shape;
  std::vector<int64_t> offset, extent;   ///< the slice of the global tensor that is held here
  int64_t flat_begin = 0, flat_end = 0;  ///< elements in flat memory
};

class ParameterStore {
 public:
  enum class Use { kTraining, kInference };

  /// Lays `entries` out in order (flat ranges are filled in here), each begun at a multiple of 64 elements.
  /// Inference holds neither gradients nor, in bf16, the master.
  ParameterStore(std::vector<BucketEntry> entries, at::ScalarType compute_type, Use use);

  const std::vector<BucketEntry>& table() const { return table_; }
  const BucketEntry& entry(const std::string& name) const;
  int64_t flat_size() const { return flat_size_; }
  int64_t num_elements() const;

  /// As layers see it: shape of the held slice. @throws Error if there is no such parameter.
  Weight weight(const std::string& name) const;

  const Tensor& master() const { return master_; }    ///< [flat_size] fp32
  const Tensor& grad() const { return grad_; }        ///< [flat_size] fp32
  const Tensor& compute() const { return compute_; }  ///< [flat_size], compute type
  /// The fp32 values of one parameter, to be filled (initialisation, import) or read (export).
  Tensor master_of(const std::string& name) const;

  /// Rounds the master into the copy that forward reads.
  void refresh_compute();
  /// For inference: rounds fp32 values into the copy that forward reads.
  void set_compute(const std::string& name, const float* values);

 private:
  Tensor view(const Tensor& flat, const BucketEntry& entry) const;

  std::vector<BucketEntry> table_;
  std::map<std::string, size_t> by_name_;
  int64_t flat_size_ = 0;
  Tensor master_, grad_, compute_;
};

}  // namespace athanor
