#pragma once
// Attention on tiles, cut into pieces of work: the runs of tokens whose keys are packed, and loops over pieces.

#include <type_traits>
#include <vector>

#include "kernels/attention.h"
#include "ops/attention.h"
#include "ops/taken_in_turn.h"
#include "ops/tiles.h"

namespace athanor::ops {

// Tokens of one sequence whose keys are packed together.
struct Run {
  int64_t sequence, begin, length;
};

template <class T>
kernels::HeadRows<T> rows_of(const Tensor& x, const Run& run, int64_t head) {
  ATHANOR_ASSERT(x.scalar_type() == scalar_type_of<std::remove_const_t<T>>() && x.stride(3) == 1 && x.is_cpu());
  auto* data = static_cast<std::remove_const_t<T>*>(x.data_ptr());
  return {data + run.sequence * x.stride(0) + run.begin * x.stride(1) + head * x.stride(2), x.stride(1)};
}

/// @param sinks  those of all heads, or undefined.
inline kernels::AttentionShape shape_of(const Tensor& q, const Run& run, const AttentionOptions& options = {},
                                        const Tensor& sinks = {}, int64_t head = 0) {
  kernels::AttentionShape shape{.length = run.length,
                                .head_dim = q.size(3),
                                .scale = static_cast<float>(options.scale_of(q)),
                                .path = matmul_path(q, ProductKind::kAttention),
                                .window = options.window,
                                .soft_cap = static_cast<float>(options.soft_cap)};
  if (sinks.defined()) shape.sink = pointer<float>(sinks)[head];
  return shape;
}

// Calls f(index, scratch) for each of `count` pieces of work on `like`, whose cost may differ, on all threads.
template <class F>
void for_each_piece(const Tensor& like, int64_t count, int64_t scratch_bytes, F f) {
  const Tensor scratch = at::empty({num_slots(count), (scratch_bytes + 63) / 64 * 64}, like.options().dtype(at::kByte));
  if (like.is_meta()) return;
  for_each_in_turn(
      count, [&](int64_t i, int64_t slot) { f(i, static_cast<char*>(scratch.data_ptr()) + slot * scratch.size(1)); });
}

// Packed keys and values of every run and key head; sizes in bytes.
template <class T>
class PackedKeys {
 public:
  PackedKeys(const Tensor& k, const Tensor& v, const std::vector<Run>& runs) : num_heads_(k.size(2)) {
    int64_t total = 0;
    for (const Run& run : runs) {
      const kernels::AttentionShape shape = shape_of(k, run);
      first_.push_back(total);
      keys_.push_back(kernels::packed_transposed_bytes<T>(shape));
      total += num_heads_ * (keys_.back() + kernels::packed_bytes<T>(shape));
      all_.push_back(total);
    }
    packed_ = at::empty({total}, k.options().dtype(at::kByte));
    for_each_piece(k, static_cast<int64_t>(runs.size()) * num_heads_, 0, [&](int64_t i, void*) {
      const Run& run = runs[static_cast<size_t>(i / num_heads_)];
      const kernels::AttentionShape shape = shape_of(k, run);
      kernels::pack_transposed(shape, rows_of<const T>(k, run, i % num_heads_), keys(i));
      kernels::pack(shape, rows_of<const T>(v, run, i % num_heads_), values(i));
    });
  }

  uint8_t* keys(int64_t piece) const {
    const auto run = static_cast<size_t>(piece / num_heads_);
    return packed_.data_ptr<uint8_t>() + first_[run] + piece % num_heads_ * ((all_[run] - first_[run]) / num_heads_);
  }
  uint8_t* values(int64_t piece) const { return keys(piece) + keys_[static_cast<size_t>(piece / num_heads_)]; }

 private:
  int64_t num_heads_;
  std::vector<int64_t> first_, keys_, all_;
  Tensor packed_;
};

}  // namespace athanor::ops
