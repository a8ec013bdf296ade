#include "ops/rotation_tables.h"

#include <utility>

#include "ops/document_tables.h"
#include "ops/transfer.h"

namespace athanor::ops {
RotationTables::RotationTables(RotaryFrequencies frequencies, at::Device device)
    : frequencies_(std::move(frequencies)), device_(device) {}

Rotation RotationTables::of_positions(const Tensor& positions) const { return make(positions, 0); }

Rotation RotationTables::make(const Tensor& positions, int64_t seq_len) const {
  const bool is_long = frequencies_.of_long.defined() && seq_len > frequencies_.short_tokens;
  const Rotation here =
      make_rotation(positions, is_long ? frequencies_.of_long : frequencies_.frequency, frequencies_.scale);
  if (device_.is_cpu()) return here;
  if (on_host(device_)) return {send(here.cos, device_), send(here.sin, device_)};
  const Tensor both = send(at::stack({here.cos, here.sin}), device_);
  return {both[0], both[1]};
}

Rotation RotationTables::of_sequences(int64_t batch, int64_t seq_len, const DocumentLengths& documents) {
  return on_host(device_) ? make(positions_of_tokens(batch, seq_len, documents, at::kCPU), seq_len)
                          : of_sequences_there(batch, seq_len, documents);
}

Rotation RotationTables::of_sequences_there(int64_t batch, int64_t seq_len, const DocumentLengths& documents) {
  const int64_t rows = documents.empty() ? batch : 1;
  const bool is_training = at::GradMode::is_enabled() || of_training_.contains({rows, seq_len});
  if (!is_training && !of_evaluation_.contains({rows, seq_len})) of_evaluation_.clear();
  Rotation& kept = (is_training ? of_training_ : of_evaluation_)[{rows, seq_len}];
  if (!kept.cos.defined()) kept = make(positions_of_tokens(rows, seq_len, {}, at::kCPU), seq_len);
  if (documents.empty()) return kept;
  const Tensor positions = documents.tables.positions.reshape({-1});
  const auto at_positions = [&](const Tensor& angles) {
    return angles[0].index_select(0, positions).view({batch, seq_len, -1});
  };
  return {at_positions(kept.cos), at_positions(kept.sin)};
}

}  // namespace athanor::ops
