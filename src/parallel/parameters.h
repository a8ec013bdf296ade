#pragma once
// Where parameters live: flat memory, and a table that says which tensor is where.
//
// Gradients (fp32) and what forward reads have one layout, so that optimizer, collectives and checkpoints work on flat
// ranges while layers see tensors. In fp32 what forward reads is the master. In bf16 it is the master's upper half,
// rounded, and its 16 lower bits lie beside it (kernels/master.h): the master itself is nowhere in memory as fp32, and
// is read and written by ranges.

#include <functional>
#include <map>
#include <span>
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

  /// Lays `entries` out in order (flat ranges are filled in here), each begun at a multiple of 64 elements; all zero.
  /// Inference holds neither gradients nor, in bf16, the master's lower bits.
  ParameterStore(std::vector<BucketEntry> entries, at::ScalarType compute_type, Use use);

  const std::vector<BucketEntry>& table() const { return table_; }
  const BucketEntry& entry(const std::string& name) const;
  int64_t flat_size() const { return flat_size_; }
  int64_t num_elements() const;

  /// As layers see it: shape of the held slice. @throws Error if there is no such parameter.
  Weight weight(const std::string& name) const;

  const Tensor& grad() const { return grad_; }              ///< [flat_size] fp32
  const Tensor& compute() const { return compute_; }        ///< [flat_size], compute type
  const Tensor& master_low() const { return master_low_; }  ///< [flat_size] uint16; undefined in fp32 and in inference

  /// The fp32 master of elements [first, first + out.size()) of the held slice of a parameter. Any thread.
  /// In bf16 inference, where there is no master, the weights themselves.
  void read_master(const BucketEntry& entry, int64_t first, std::span<float> out) const;
  /// Sets it, and with it what forward reads. Threads may write different ranges.
  void write_master(const BucketEntry& entry, int64_t first, std::span<const float> values);

  /// Gives elements [first, first + out.size()) of a parameter's held slice.
  using Source = std::function<void(int64_t first, std::span<float> out)>;
  /// Sets all of a parameter, block by block. `source` is called from several threads at once.
  void fill_master(const std::string& name, const Source& source);
  /// A copy, for tests and small tensors.
  Tensor master_copy(const std::string& name) const;

 private:
  Tensor view(const Tensor& flat, const BucketEntry& entry) const;

  std::vector<BucketEntry> table_;
  std::map<std::string, size_t> by_name_;
  int64_t flat_size_ = 0;
  Tensor grad_, compute_, master_low_;
};

}  // namespace athanor
