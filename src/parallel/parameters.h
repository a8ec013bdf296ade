#pragma once
// Parameters in flat memory, and a table of the tensors in it.
//
// Flat memory has the slices of all parameters that this rank holds, one after another, with padding
// (layout/buckets.h). There is one flat tensor of the gradients, in fp32, and one of the weights that forward reads. An
// element has the same index in both, so optimizer, collectives and checkpoints work on flat ranges while layers see
// tensors. In fp32 the weights that forward reads are the master. In bf16 they are the master rounded, and its 16 lower
// bits are stored separately (kernels/master.h): the master itself is nowhere in memory as fp32, and is read and
// written by ranges.
//
// If several ranks hold the same parameters, each may own a part. Values that only the update needs (the lower bits
// here, the moments in the optimizer) are called state; memory for them has the owned ranges only, one after another.

#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "layout/buckets.h"
#include "ops/master.h"
#include "ops/tensor.h"

namespace athanor::inline parallel {

class ParameterStore {
 public:
  enum class Use { kTraining, kInference };

  /// Lays `entries` out (lay_out_buckets); all values are zero. Inference holds neither gradients nor, in bf16, the
  /// master's lower bits. On at::kMeta tensors have shapes and no memory, for dry runs.
  ParameterStore(std::vector<BucketEntry> entries, at::ScalarType compute_type, Use use, const Sharding& sharding = {},
                 c10::Device device = at::kCPU);

  const std::vector<BucketEntry>& table() const { return table_; }
  const std::vector<Bucket>& buckets() const { return buckets_; }
  const std::vector<OwnedRange>& owned() const { return owned_; }
  /// Returns the number of owned elements, with the padding in their ranges. One optimizer alone has state of this
  /// size; several divide it (OptimizedParameters::state_size).
  int64_t state_size() const;
  /// Calls visit(owned, index) for each owned part of `range`, in order: `owned` is the part in flat memory, and
  /// `index` the one in the state at which the state of this part begins.
  template <class Visit>
  void for_each_owned(FlatRange range, Visit visit) const {
    for (const OwnedRange& owned : owned_) {
      const FlatRange common = intersect(range, owned.flat);
      if (common.size() > 0) visit(common, owned.state_begin + common.begin - owned.flat.begin);
    }
  }
  /// Returns the index in the state at which the state of `owned` begins. The range must lie within one owned range.
  int64_t state_begin(FlatRange owned) const;
  /// Returns the table's entry of a parameter. @throws Error if this rank does not hold it.
  const BucketEntry& entry(const std::string& name) const;
  int64_t flat_size() const { return flat_size_; }  ///< number of elements of flat memory, with padding
  int64_t num_elements() const;                     ///< number of elements of the parameters, without padding

  /// Returns the parameter as layers see it: views of the held slice, in its shape; the gradient is undefined in
  /// inference. @throws Error if this rank does not hold it.
  Weight weight(const std::string& name) const;

  const Tensor& grad() const { return grad_; }        ///< [flat_size] fp32; undefined in inference
  const Tensor& compute() const { return compute_; }  ///< [flat_size], compute type
  /// [state_size] uint16; undefined in fp32 and in inference.
  const Tensor& master_low() const { return master_low_; }

  /// Reads the fp32 master of elements [first, first + out.size()) of the held slice of a parameter. Any thread may
  /// call it. In bf16, the weight itself is read if its lower bits are not held (in inference, or not owned).
  void read_master(const BucketEntry& entry, int64_t first, std::span<float> out) const;
  /// Sets elements [first, first + values.size()) of the held slice of a parameter's master, and with them the weights
  /// that forward reads. In bf16, lower bits that are not held are lost. Threads may write different ranges.
  void write_master(const BucketEntry& entry, int64_t first, std::span<const float> values);
  /// Do the same with the elements of flat memory from `flat_begin` on.
  void read_master(int64_t flat_begin, std::span<float> out) const;
  /// Returns the master of a range of flat memory where it is, fp32. It may be the memory of the weights.
  Tensor master_there(FlatRange range) const;
  void write_master(int64_t flat_begin, std::span<const float> values);

  /// Sets the held slice of a parameter, block by block, from elements of the slice (ops::fill_master).
  void fill_master(const std::string& name, const ops::MasterSource& source);
  /// Returns a copy of a parameter's master, fp32, in the shape of the held slice; for tests and small tensors.
  Tensor master_copy(const std::string& name) const;

 private:
  Tensor view(const Tensor& flat, const BucketEntry& entry) const;
  ops::MasterRange master_of(FlatRange range) const;

  std::vector<BucketEntry> table_;
  std::vector<Bucket> buckets_;
  std::vector<OwnedRange> owned_;
  std::map<std::string, size_t> by_name_;
  int64_t flat_size_ = 0;
  Tensor grad_, compute_, master_low_;
};

}  // namespace athanor::inline parallel
