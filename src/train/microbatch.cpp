#include "train/microbatch.h"

#include "base/random.h"
#include "kernels/cross_entropy.h"
#include "ops/document_tables.h"
#include "ops/transfer.h"

namespace athanor::inline train {
namespace {

Tensor tokens_of(const Batch& batch, int64_t first, int64_t count) {
  Tensor tokens = at::empty({count, batch.seq_len}, at::kLong);
  std::copy_n(batch.sequence(first), tokens.numel(), tokens.data_ptr<int64_t>());
  return tokens;
}

Tensor targets_of(const Tensor& tokens) {
  Tensor targets = at::full_like(tokens, kernels::kNoTarget);
  const int64_t num_targets = tokens.size(1) - 1;
  targets.narrow(1, 0, num_targets).copy_(tokens.narrow(1, 1, num_targets));
  return targets;
}

ops::DocumentLengths documents_of(const Batch& batch, int64_t first, int64_t count, uint32_t eos_id) {
  ops::DocumentLengths lengths(static_cast<size_t>(count));
  for (int64_t b = 0; b < count; ++b) {
    document_lengths(batch.sequence(first + b), batch.seq_len, eos_id, lengths[static_cast<size_t>(b)]);
  }
  return lengths;
}

Microbatch make_microbatch(const Batch& batch, int64_t first, int64_t count, const RunConfig& config, uint32_t eos_id,
                           int64_t step) {
  const auto sequences = static_cast<double>(batch.num_sequences),
             layers = static_cast<double>(std::max<int64_t>(1, config.model.num_sparse_layers()));
  const auto tokens = sequences * static_cast<double>(batch.seq_len);
  Microbatch m;
  m.tokens = tokens_of(batch, first, count);
  m.labels.targets = targets_of(m.tokens);
  if (config.data.attention_scope == AttentionScope::kDocument)
    m.labels.documents = documents_of(batch, first, count, eos_id);
  m.labels.num_targets = count * (batch.seq_len - 1);
  m.labels.loss_scale = 1 / (sequences * static_cast<double>(batch.seq_len - 1));
  m.labels.aux_scale = config.moe.router_aux_loss_coef / (layers * sequences);
  m.labels.z_scale = config.moe.router_z_loss_coef / (layers * tokens);
  m.labels.step = step;
  m.labels.first_sequence = first;
  return m;
}

}  // namespace

std::vector<Microbatch> split_batch(const Batch& batch, const RunConfig& config, uint32_t eos_id, int64_t step) {
  std::vector<Microbatch> microbatches;
  for (int64_t first = 0; first < batch.num_sequences; first += config.train.micro_batch_size) {
    const int64_t count = std::min(config.train.micro_batch_size, batch.num_sequences - first);
    microbatches.push_back(make_microbatch(batch, first, count, config, eos_id, step));
  }
  return microbatches;
}

void relabel(Microbatch& microbatch, const OtherLabels& labels, int64_t seed) {
  Labels& own = microbatch.labels;
  own.aux_scale = own.z_scale = 0;
  if (!labels) {
    const CounterRandom random(static_cast<uint64_t>(seed), "drawn labels");
    own.draw = {.draws = true,
                .key = random.u64(static_cast<uint64_t>(own.step)),
                .first_row = own.first_sequence * own.targets.size(1)};
    return;
  }
  own.targets = own.targets.clone();
  auto* target = own.targets.data_ptr<int64_t>();
  for (int64_t b = 0; b < own.targets.size(0); ++b) {
    for (int64_t t = 0; t < own.targets.size(1); ++t, ++target)
      if (*target != kernels::kNoTarget) *target = labels(own.first_sequence + b, t, *target);
  }
}

std::vector<Microbatch> pick_microbatches(const Batch& batch, const std::vector<int64_t>& numbers,
                                          const RunConfig& config, uint32_t eos_id) {
  const int64_t size = config.train.micro_batch_size;
  std::vector<Microbatch> microbatches;
  for (const int64_t number : numbers) {
    const int64_t first = number * size, count = std::min(size, batch.num_sequences - first);
    microbatches.push_back(make_microbatch(batch, first, count, config, eos_id, 0));
  }
  return microbatches;
}

std::vector<Microbatch> split_batch(const Batch& batch, const RunConfig& config, uint32_t eos_id, int64_t step,
                                    const Layout& layout, int data_rank) {
  std::vector<Microbatch> microbatches;
  for (int64_t i = 0; i < layout.microbatches(); ++i) {
    const int64_t first = layout.first_sequence(data_rank, i);
    microbatches.push_back(make_microbatch(batch, first, config.train.micro_batch_size, config, eos_id, step));
  }
  return microbatches;
}

void send_to(at::Device device, std::vector<Microbatch>& microbatches) {
  if (microbatches.empty() || microbatches.front().tokens.device() == device) return;
  if (ops::on_host(device)) {  // in a played step, where tokens are in the host's memory
    for (Microbatch& each : microbatches)
      for (Tensor* const x : {&each.tokens, &each.labels.targets}) *x = ops::send(*x, device);
    return;
  }
  // The tables of all microbatches have the same room.
  int64_t room = 1;
  for (const Microbatch& each : microbatches)
    room = std::max(room, ops::document_room(each.labels.documents, each.tokens.size(1)));
  std::vector<Tensor> parts;
  for (const Microbatch& each : microbatches) {
    const ops::DocumentLengths& documents = each.labels.documents;
    parts.push_back(each.tokens.reshape({-1}));
    parts.push_back(each.labels.targets.reshape({-1}));
    parts.push_back(documents.empty() ? at::empty({0}, at::kLong)
                                      : ops::pack_tables(documents, each.tokens.size(1), room));
  }
  const Tensor packed = ops::send(at::cat(parts), device);
  int64_t begin = 0;
  for (size_t i = 0; i < microbatches.size(); ++i) {
    int64_t count = 0;
    for (size_t part = 3 * i; part < 3 * i + 3; ++part) count += parts[part].numel();
    view_packed(packed.narrow(0, std::exchange(begin, begin + count), count), microbatches[i].tokens,
                microbatches[i].labels);
  }
}

void view_packed(const Tensor& packed, Tensor& tokens, Labels& labels) {
  int64_t begin = 0;
  const auto take = [&](int64_t count) { return packed.narrow(0, std::exchange(begin, begin + count), count); };
  const int64_t batch = tokens.size(0), seq_len = tokens.size(1);
  tokens = take(tokens.numel()).view({batch, seq_len});
  labels.targets = take(labels.targets.numel()).view({batch, seq_len});
  const Tensor tables = take(packed.numel() - begin);
  if (tables.numel() > 0) labels.documents.tables = ops::unpack_tables(tables, batch, seq_len);
  labels.packed = packed;
}

std::vector<int64_t> sequences_of(const Layout& layout, int data_rank, int64_t micro_batch_size) {
  std::vector<int64_t> sequences;
  for (int64_t i = 0; i < layout.microbatches(); ++i) {
    for (int64_t b = 0; b < micro_batch_size; ++b) sequences.push_back(layout.first_sequence(data_rank, i) + b);
  }
  return sequences;
}

}  // namespace athanor::inline train
