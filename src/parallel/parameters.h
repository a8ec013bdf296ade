#pragma once
// Parameters in flat memory, and a table of the tensors in it.
//
// Gradients (fp32) and the weights that forward reads have one layout, so that optimizer, collectives and checkpoints
// work on flat ranges while layers see tensors. In fp32 the weights that forward reads are the master. In bf16 they are
// the master's upper half, rounded, and its 16 lower bits are stored separately (kernels/master.h): the master itself
// is nowhere in memory as fp32, and is read and written by ranges.
//
// If several ranks hold the same parameters, each may own a part. State that only the update needs (the lower bits
// here, the moments in the optimizer) is held for the owned ranges only, one after another.

#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "layout/buckets.h"
#include "ops/tensor.h"

namespace athanor {

class ParameterStore {
 public:
  enum class Use { kTraining, kInference };

  /// Lays `entries` out (lay_out_buckets); all values are zero. Inference holds neither gradients nor, in bf16, the
  /// master's lower bits. On kMeta there are shapes and no memory, for dry runs.
  ParameterStore(std::vector<BucketEntry> entries, at::ScalarType compute_type, Use use, const Sharding& sharding = {},
                 c10::Device device = at::kCPU);

  const std::vector<BucketEntry>& table() const { return table_; }
  const std::vector<Bucket>& buckets() const { return buckets_; }
  const std::vector<OwnedRange>& owned() const { return owned_; }
  /// Returns the number of owned elements: the size of the optimizer's state.
  int64_t state_size() const;
  /// Calls visit(flat range, its first element in the state) for each owned part of `range`, in order.
  template <class Visit>
  void for_each_owned(FlatRange range, Visit visit) const {
    for (const OwnedRange& owned : owned_) {
      const FlatRange common = intersect(range, owned.flat);
      if (common.size() > 0) visit(common, owned.state_begin + common.begin - owned.flat.begin);
    }
  }
  /// Returns the first element of the state of a range that lies within one bucket's owned part.
  int64_t state_begin(FlatRange owned) const;
  const BucketEntry& entry(const std::string& name) const;
  int64_t flat_size() const { return flat_size_; }
  int64_t num_elements() const;

  /// Returns the parameter as layers see it, in the shape of the held slice. @throws Error if there is no such
  /// parameter.
  Weight weight(const std::string& name) const;

  const Tensor& grad() const { return grad_; }        ///< [flat_size] fp32
  const Tensor& compute() const { return compute_; }  ///< [flat_size], compute type
  /// [state_size] uint16; undefined in fp32 and in inference.
  const Tensor& master_low() const { return master_low_; }

  /// Reads the fp32 master of elements [first, first + out.size()) of the held slice of a parameter. Any thread may
  /// call it. In bf16, if the lower bits are not held (in inference, or not owned), it reads the weights themselves.
  void read_master(const BucketEntry& entry, int64_t first, std::span<float> out) const;
  /// Sets these elements of the master, and with them the weights that forward reads. Threads may write different
  /// ranges.
  void write_master(const BucketEntry& entry, int64_t first, std::span<const float> values);
  /// Do the same with the elements of flat memory from `flat_begin` on.
  void read_master(int64_t flat_begin, std::span<float> out) const;
  void write_master(int64_t flat_begin, std::span<const float> values);

  /// A function that writes elements [first, first + out.size()) of a parameter's held slice to `out`.
  using Source = std::function<void(int64_t first, std::span<float> out)>;
  /// Sets all of a parameter, block by block. `source` is called from several threads at once.
  void fill_master(const std::string& name, const Source& source);
  /// Returns a copy of the master, for tests and small tensors.
  Tensor master_copy(const std::string& name) const;

 private:
  Tensor view(const Tensor& flat, const BucketEntry& entry) const;

  std::vector<BucketEntry> table_;
  std::vector<Bucket> buckets_;
  std::vector<OwnedRange> owned_;
  std::map<std::string, size_t> by_name_;
  int64_t flat_size_ = 0;
  Tensor grad_, compute_, master_low_;
};

}  // namespace athanor
