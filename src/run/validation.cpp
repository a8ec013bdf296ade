#include "run/validation.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <set>

#include "base/log.h"
#include "base/text.h"
#include "ops/device_traits.h"
#include "ops/transfer.h"
#include "run/kept_defaults.h"
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
  const at::Device device = model.device();
  const size_t sent_at_once = ops::traits_of(device).sent_at_once;
  std::vector<Tensor> sums;
  for (size_t begin = 0, count = 0; begin < own.size(); begin += count) {
    count = std::min(own.size() - begin, sent_at_once);
    const auto first = own.begin() + static_cast<std::ptrdiff_t>(begin);
    std::vector<Microbatch> some(first, first + static_cast<std::ptrdiff_t>(count));
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

std::optional<RunValidation::NotFinite> RunValidation::validate(const StageData& data, StepMetrics& metrics) {
  const auto& sources = data.validation;
  if (sources.empty()) return std::nullopt;
  const auto sequences = static_cast<double>(state_.config.train.validation_sequences);
  double loss = 0;
  for (size_t i = 0; i < sources.size(); ++i) {
    const auto& [name, share, dataset] = sources[i];
    const std::string source = sources.size() > 1 ? name : "";
    const double source_loss =
        validation_loss(state_.model, dataset, std::max<int64_t>(1, std::llround(share * sequences)), state_.config,
                        state_.data.eos_id);
    if (i == unigram_entropies_.size())
      unigram_entropies_.push_back(
          unigram_entropy(dataset, mesh_, [this](int64_t num_bytes) { mesh_.world().note_work(num_bytes); }));
    if (!std::isfinite(source_loss)) return NotFinite{source_loss, source};
    log::info("step {}: validation loss {:.4f}{} (unigram entropy of the same split: {:.4f})", metrics.step,
              source_loss, source.empty() ? "" : " of " + name, unigram_entropies_[i]);
    if (!source.empty()) metrics.validation_losses[name] = source_loss;
    loss += share * source_loss;
  }
  metrics.validation_loss = loss;
  if (sources.size() > 1) log::info("step {}: validation loss {:.4f} of the mix", metrics.step, loss);
  return std::nullopt;
}

namespace {

std::vector<std::string> names_without_validation(const StageData& data) {
  std::set<std::string> with;
  for (const auto& source : data.validation) with.insert(source.name);
  std::vector<std::string> without;
  for (const auto& source : data.train.sources())
    if (!with.contains(source.name)) without.push_back(source.name);
  return without;
}

void tell_what_is_not_validated(const std::vector<StageData>& stages) {
  std::set<std::string> told;  // phases often have the same sources, and a ramp always
  for (const StageData& data : stages) {
    const auto without = names_without_validation(data);
    if (without.empty() || !told.insert(join(without)).second) continue;
    if (data.validation.empty())
      log::warn_on_all("no validation instances in {}{}, so it is not validated", join(without),
                       data.stage.name.empty() || data.stage.is_of_ramp ? "" : ", the data of " + data.stage.name);
    else
      log::warn_on_all("no validation split, so not in the validation loss: {}", join(without));
  }
}

}  // namespace

void settle_validation_interval(RunConfig& config, std::vector<StageData>& stages, const Team& team) {
  CountOrAuto& interval = config.train.validation_interval;
  const bool any = std::ranges::any_of(stages, [](const StageData& data) { return !data.validation.empty(); });
  if (interval.is_auto) {
    interval = any ? kDefaultValidationInterval : 0;
    keep_validation_interval(config, team);
  } else {
    ATHANOR_CHECK(any || interval.is_off(),
                  "train.validation_interval is {} but {} has no validation split; prepare it with "
                  "--validation-fraction 0.01, or set the interval to 0",
                  interval.count, join(names_without_validation(stages.front())));
  }
  for (StageData& data : stages) data.stage.config.train.validation_interval = interval;
  if (any && !interval.is_off()) tell_what_is_not_validated(stages);
}

}  // namespace athanor::inline run
