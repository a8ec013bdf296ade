#include "run/validation.h"

#include <algorithm>
#include <exception>
#include <set>

#include "ops/transfer.h"
#include "train/microbatch.h"
#include "train/unreadable_data.h"

namespace athanor::inline run {

namespace {

// Returns the first `rows` rows as a batch that has only those of the microbatches `numbers`.
Batch read_rows(const Dataset& validation, int64_t rows, const std::vector<int64_t>& numbers,
                int64_t micro_batch_size) {
  std::set<int64_t> held;
  for (const int64_t number : numbers) {
    for (int64_t b = 0; b < micro_batch_size; ++b) held.insert(std::min(number * micro_batch_size + b, rows - 1));
  }
  Batch batch;
  batch.num_sequences = rows;
  batch.seq_len = validation.seq_len();
  batch.held.assign(held.begin(), held.end());
  batch.tokens.resize(held.size() * static_cast<size_t>(batch.seq_len));
  int32_t* out = batch.tokens.data();
  for (const int64_t row : held) {
    validation.read(row, out);
    out += batch.seq_len;
  }
  return batch;
}

int64_t first_of_part(int64_t rows, int64_t part, int64_t parts) {
  return rows / parts * part + std::min(part, rows % parts);
}

// Returns the result of `read`, or throws UnreadableData on every rank if it fails on one.
template <class Read>
auto read_together(const Mesh& mesh, Read read) {
  decltype(read()) result;
  std::exception_ptr failure;
  try {
    result = read();
  } catch (...) {
    failure = std::current_exception();
  }
  agree_on_reading(mesh.group(GroupKind::kWorld), failure);
  return result;
}

}  // namespace

double validation_loss(ModelState& model, const Dataset& validation, int64_t num_sequences, const RunConfig& config,
                       uint32_t eos_id) {
  const Mesh& mesh = model.mesh;
  const int64_t rows = std::min(num_sequences, validation.num_instances());
  const int64_t at_once = config.train.micro_batch_size, all = (rows + at_once - 1) / at_once;
  std::vector<int64_t> numbers;
  size_t counted = 0;
  for (int64_t round = 0; round < all; round += mesh.layout().data()) {
    // A rank without a microbatch left scores the first one again, because other ranks need its experts.
    const bool counts = round + mesh.data_rank() < all;
    numbers.push_back(counts ? round + mesh.data_rank() : 0);
    counted += counts;
  }
  const Batch batch = read_together(mesh, [&] { return read_rows(validation, rows, numbers, at_once); });
  auto own = pick_microbatches(batch, numbers, config, eos_id);
  // Pinned memory holds what is sent at once, and is kept.
  constexpr size_t kSentAtOnce = 16;
  const at::Device device = model.device();
  const size_t slice = device.is_cpu() ? own.size() : kSentAtOnce;
  std::vector<Tensor> sums;
  for (size_t begin = 0; begin < own.size(); begin += slice) {
    std::vector<Microbatch> some(own.begin() + static_cast<std::ptrdiff_t>(begin),
                                 own.begin() + static_cast<std::ptrdiff_t>(std::min(own.size(), begin + slice)));
    send_to(device, some);
    for (const TokenScores& scores : model.pipeline.score(some))  // none except on the last stage's rank
      if (sums.size() < counted) sums.push_back(scores.log_probability.sum(at::kDouble));
  }
  double loss_sum = 0;
  if (!sums.empty()) {
    const Tensor here = ops::fetch(at::stack(sums));
    for (int64_t i = 0; i < here.numel(); ++i) loss_sum -= here[i].item<double>();
  }
  const Tensor sum = ops::send(at::full({1}, loss_sum, at::kDouble), device);
  mesh.group(GroupKind::kPipeline).all_reduce(sum).wait();
  mesh.group(GroupKind::kData).all_reduce(sum).wait();
  return ops::fetch_item<double>(sum) / static_cast<double>(rows * (validation.seq_len() - 1));
}

double unigram_entropy(const Dataset& dataset, const Mesh& mesh, const Worked& worked) {
  comm::Communicator& world = mesh.group(GroupKind::kWorld);
  const int64_t rows = dataset.num_instances(), rank = world.rank(), size = world.size();
  // The counts are whole numbers, so their sum is exact, whichever rank counts which rows.
  auto counts = read_together(mesh, [&] {
    std::vector<int64_t> own(dataset.vocab_size());
    count_targets(dataset, first_of_part(rows, rank, size), first_of_part(rows, rank + 1, size), own, worked);
    return own;
  });
  world.all_reduce(at::from_blob(counts.data(), {static_cast<int64_t>(counts.size())}, at::kLong)).wait();
  return dataset::unigram_entropy(counts);
}

}  // namespace athanor::inline run
