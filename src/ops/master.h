#pragma once
// The fp32 master as a bf16 weight and its lower bits (kernels/master.h), on any device: for what is read and written
// now and then. The optimizer's kernels work on the two parts.

#include <functional>
#include <span>
#include <vector>

#include "ops/tensor.h"

namespace athanor::ops {

/// Returns the master of `weight` (bf16), fp32. `low` (uint16) has its lower bits; undefined: they are zero.
Tensor join_master(const Tensor& weight, const Tensor& low);

/// Stores fp32 `values` into `weight`, and their lower bits into `low` if it is defined. The host waits for nothing.
void split_master(const Tensor& values, const Tensor& weight, const Tensor& low);

/// A range of a flat master.
struct MasterRange {
  /// Elements [first, first + count) of the range have the lower bits [begin, begin + count) of `low`.
  struct Part {
    int64_t first, begin, count;
  };

  Tensor weight;            ///< the flat weights, bf16 or fp32, contiguous
  int64_t begin, size;      ///< the range in `weight`
  Tensor low;               ///< flat lower bits, uint16; undefined: none are held
  std::vector<Part> parts;  ///< elements in no part are those of the weight
};

/// Returns the master of a range where it is, fp32; of fp32 weights the weights themselves.
Tensor join_master(const MasterRange& range);

/// Copies the master of a range to the host, `out` having its size. The host waits. Any thread may call it.
void fetch_master(const MasterRange& range, std::span<float> out);

/// Sets the master of a range to values of the host. Lower bits that have no place are lost. The host waits. Threads
/// may write different memory.
void send_master(std::span<const float> values, const MasterRange& range);

/// Writes elements [first, first + out.size()) of a range to `out`.
using MasterSource = std::function<void(int64_t first, std::span<float> out)>;

/// Sets the master of a range block by block, from `source`, which is called from several threads at once.
void fill_master(const MasterRange& range, const MasterSource& source);

}  // namespace athanor::ops
