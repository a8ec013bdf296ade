#include "run/run_data.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include "base/log.h"
#include "base/text.h"
#include "base/text_template_json.h"
#include "base/wall_clock.h"
#include "memory/preflight.h"

namespace athanor::inline run {
namespace {

// The texts of each folder's manifest.json, which the first member reads: there may be thousands of other members.
std::map<std::string, std::string> read_manifests(const RunConfig& config, const Team& team) {
  std::map<std::string, std::string> texts;  // by path
  for (const auto& stage : training_stages(config)) {
    for (const auto& source : stage.config.data.sources) {
      if (texts.contains(source.path)) continue;
      texts[source.path] = team.from_first([&] { return read_data_manifest_text(source.path); });
    }
  }
  return texts;
}

// Training phases often share their folders; a folder is opened, and checked, once.
class OpenFolders {
 public:
  OpenFolders(const std::map<std::string, std::string>& manifests, bool verify)
      : texts_(manifests), access_(std::make_shared<ShardAccess>(verify)) {}

  const Dataset& train(const std::string& path) { return open(path, "train"); }
  /// Null if the folder has none.
  const Dataset* validation(const std::string& path) {
    return manifest_of(path)->splits.contains("validation") ? &open(path, "validation") : nullptr;
  }

  /// Returns every file once, in the same order on all ranks.
  std::vector<std::pair<const Dataset*, size_t>> files() const {
    std::vector<std::pair<const Dataset*, size_t>> found;
    std::set<std::filesystem::path> known;  // the splits of a folder share one tokenizer
    for (const auto& [name, dataset] : open_) {
      for (size_t i = 0; i < dataset.files().size(); ++i)
        if (known.insert(dataset.files()[i].path).second) found.emplace_back(&dataset, i);
    }
    return found;
  }

 private:
  const std::shared_ptr<const DataManifest>& manifest_of(const std::string& path) {
    auto& manifest = manifests_[path];
    if (!manifest) {
      const auto name = std::filesystem::path(path) / kDataManifestName;
      manifest = std::make_shared<DataManifest>(parse_data_manifest(texts_.at(path), name.string()));
    }
    return manifest;
  }

  const Dataset& open(const std::string& path, const std::string& split) {
    const auto known = open_.find({path, split});
    if (known != open_.end()) return known->second;
    return open_.emplace(std::pair{path, split}, Dataset::open(path, split, manifest_of(path), access_)).first->second;
  }

  const std::map<std::string, std::string>& texts_;
  std::map<std::string, std::shared_ptr<const DataManifest>> manifests_;
  std::shared_ptr<ShardAccess> access_;
  std::map<std::pair<std::string, std::string>, Dataset> open_;
};

std::string name_of(const SourceConfig& source) { return source.name.empty() ? source.path : source.name; }

Mixture open_mixture(const TrainingStage& stage, OpenFolders& folders) {
  std::vector<MixtureSource> sources;
  for (const auto& source : stage.config.data.sources) {
    sources.push_back({name_of(source), folders.train(source.path), source.weight, source.max_epochs});
  }
  return Mixture(std::move(sources));
}

// They are ordered by name, since the mean over them is a sum: the order of the configuration must not change its
// rounding.
std::vector<ValidationSource> open_validation(const TrainingStage& stage, OpenFolders& folders) {
  auto sources = stage.config.data.sources;
  std::ranges::sort(sources, {}, name_of);
  std::vector<ValidationSource> found;
  double largest = 0;
  for (const auto& source : sources) {
    const Dataset* dataset = folders.validation(source.path);
    if (!dataset) continue;
    found.push_back({name_of(source), source.weight, *dataset});
    largest = std::max(largest, source.weight);
  }
  double sum = 0;  // sum of weights relative to the largest, which cannot overflow
  for (const auto& source : found) sum += source.share / largest;
  for (auto& source : found) source.share /= largest * sum;
  return found;
}

// Returns " of training phase x" if the run has several.
std::string of_phase(const TrainingStage& stage) {
  return stage.name.empty() ? "" : (stage.is_of_ramp ? " with a " : " of training phase ") + stage.name;
}

std::string describe_warmup(const OptimizerConfig& o) {
  if (o.schedule_tokens > 0 && o.warmup_tokens > 0)
    return fmt::format(" after {} tokens of warm-up", format_thousands(o.warmup_tokens));
  return o.warmup_steps > 0 ? fmt::format(" after {} of warm-up", o.warmup_steps) : "";
}

// Tells of a schedule that is not that of these steps.
std::string describe_schedule(const TrainingStage& stage, int64_t end) {
  const OptimizerConfig& o = stage.config.optimizer;
  if (o.schedule_tokens > 0) return fmt::format(", in a schedule of {} tokens", format_thousands(o.schedule_tokens));
  const int64_t steps = count_schedule_steps(stage.config);
  return steps == end - stage.schedule_begin && !stage.is_of_ramp ? ""
                                                                  : fmt::format(", in a schedule of {} steps", steps);
}

// `step` steps are done.
std::string describe_stage(const TrainingStage& stage, int64_t end, int64_t step) {
  const auto& [name, begin, config, schedule_begin, is_of_ramp, batch_key] = stage;
  const auto& o = config.optimizer;
  return fmt::format("{}steps {} to {}{}: {} sequences of {} tokens each; lr {:.3g} to {:.3g}, {}{}{}",
                     name.empty() ? "" : name + ", ", begin + 1, end,
                     step > begin ? fmt::format(", from {} on", step + 1) : "", config.train.global_batch_size,
                     config.data.seq_len, o.lr, o.min_lr, o.schedule.word(), describe_warmup(o),
                     describe_schedule(stage, end));
}

// How many instances of the source may be drawn in the run. The product may be off by two roundings, where 2.3 epochs
// of 10 instances mean 23.
double most_allowed(const MixtureSource& source) {
  if (source.max_epochs == 0) return std::numeric_limits<double>::infinity();
  return std::floor(source.max_epochs * static_cast<double>(source.dataset.num_instances()) * (1 + 0x1p-51));
}

// `drawn` instances of the source will have been drawn at most when the training phase ends, `passed_over` of them at
// most in batches that were passed over.
void add_source(const TrainingStage& stage, const MixtureSource& source, double share, int64_t drawn,
                int64_t passed_over, Supply& supply) {
  const auto instances = static_cast<double>(source.dataset.num_instances());
  const double epochs = static_cast<double>(drawn) / instances, allowed = most_allowed(source);
  supply.lines.push_back(fmt::format("  {}: {:.4g}% of the tokens; {} of its {} instances by the end, {:.4g} epochs",
                                     source.name, 100 * share, format_thousands(static_cast<double>(drawn)),
                                     format_thousands(instances), epochs));
  if (static_cast<double>(drawn) <= allowed) return;
  const std::string numbers = fmt::format(
      "source \"{}\"{}: its share of {:.4g}% takes {} instances, and it has {}: {:.4g} epochs, where max_epochs allows "
      "{}; ",
      source.name, of_phase(stage), 100 * share, format_thousands(static_cast<double>(drawn)),
      format_thousands(instances), epochs, source.max_epochs);
  const double enough = std::ceil(10 * epochs) / 10;
  if (static_cast<double>(drawn - passed_over) <= allowed)
    supply.short_by_skips.push_back(
        fmt::format("{}that is since batches were passed over. The run ends before the first step that would take "
                    "more; to have all steps, set its max_epochs to {} (0: no limit)",
                    numbers, enough));
  else
    supply.shortages.push_back(fmt::format(
        "{}lower its weight or the steps, prepare more documents, or set its max_epochs to {} (0: no limit)", numbers,
        enough));
}

// Tokens that were drawn in batches whose steps were not applied.
int64_t tokens_passed_over(const RunPosition& position) {
  int64_t drawn = 0;
  for (const auto& [hash, account] : position.ledger.sources) drawn += account.tokens_drawn();
  return std::max<int64_t>(0, drawn - position.tokens_seen);
}

std::vector<StageData> open_stages(RunConfig& config, OpenFolders& folders) {
  std::vector<StageData> all;
  for (auto& stage : training_stages(config)) {
    ATHANOR_CHECK(!stage.config.data.sources.empty(),
                  "data.path is empty{}: set it to a folder that `athanor prepare` wrote, or list several under "
                  "[[data.sources]]",
                  of_phase(stage));
    Mixture mixture = open_mixture(stage, folders);
    for (const auto& source : mixture.sources()) resolve_with_data(stage.config, source.dataset);
    const size_t i = all.size();
    (config.train.stages.empty() ? config.data.seq_len : config.train.stages[i].seq_len) = stage.config.data.seq_len;
    auto validation = open_validation(stage, folders);
    all.push_back({std::move(stage), std::move(mixture), std::move(validation)});
  }
  return all;
}

std::string how_verified(bool verify, double later_bytes) {
  if (!verify) return "nothing compares them with their checksums (data.verify)";
  if (later_bytes == 0) return "each block is compared with its checksum when it is read";
  return fmt::format("{} have no checksums of blocks, and the ranks compare them during the run",
                     format_bytes(later_bytes));
}

// A file belongs to the member in whose part of all bytes its middle is. The parts have equal sizes, members without
// files are spread evenly, and the first member that finds a wrong file has the first of them.
std::vector<UnverifiedFile> look_at_files(const OpenFolders& folders, bool verify, const Team& team) {
  const auto files = folders.files();
  std::vector<UnverifiedFile> unverified;
  double unverified_bytes = 0;  // those of all members
  double total = 0;
  for (const auto& [dataset, i] : files) total += static_cast<double>(dataset->files()[i].num_bytes);
  const auto start = std::chrono::steady_clock::now();
  team.on_all([&] {
    double before = 0;
    for (const auto& [dataset, i] : files) {
      const auto bytes = static_cast<double>(dataset->files()[i].num_bytes);
      const auto owner = static_cast<int>((before + bytes / 2) / total * team.size);
      before += bytes;
      const bool later = verify && dataset->is_shard(i) && !dataset->files()[i].has_blocks;
      if (later) unverified_bytes += bytes;
      if (std::min(owner, team.size - 1) != team.index) continue;
      dataset->check_file(i);
      if (verify && i == 0) dataset->verify_file(i);  // the tokenizer
      if (later) unverified.push_back({*dataset, i});
    }
  });
  log::info("data: {} in {} files have the right sizes ({:.1f} s); {}", format_bytes(total), files.size(),
            seconds_since(start), how_verified(verify, unverified_bytes));
  return unverified;
}

}  // namespace

RunData open_run_data(RunConfig& config, const Team& team) {
  const auto manifests = read_manifests(config, team);
  OpenFolders folders(manifests, config.data.verify);
  RunData data;
  team.on_all([&] { data.stages = open_stages(config, folders); });
  data.unverified = look_at_files(folders, config.data.verify, team);
  return data;
}

DataIdentity data_identity(const std::vector<StageData>& stages) {
  const Dataset& first = stages.front().train.sources().front().dataset;
  for (const auto& stage : stages) {
    for (const auto& source : stage.train.sources()) {
      const auto& data = source.dataset;
      ATHANOR_CHECK_DATA(
          data.manifest().tokenizer_hash == first.manifest().tokenizer_hash && data.eos_id() == first.eos_id(),
          "{} and {} have other tokenizers or end-of-document tokens; a run needs one: prepare one of "
          "them again with the other's tokenizer",
          first.folder().string(), data.folder().string());
      ATHANOR_CHECK_DATA(data.manifest().text_template == first.manifest().text_template,
                         "{} and {} have other tokens around each document ({} and {}); a run needs one kind: prepare "
                         "one of them again, with or without --add-special-tokens",
                         first.folder().string(), data.folder().string(),
                         text_template_json(first.manifest().text_template).dump(),
                         text_template_json(data.manifest().text_template).dump());
    }
  }
  return {first.manifest().tokenizer_hash, first.eos_id(), first.manifest().text_template};
}

void refuse_other_ramp(const std::vector<StageData>& stages, const RunPosition& position) {
  const TrainingStage& last = stages.back().stage;
  if (!last.is_of_ramp || position.step >= last.begin) return;
  int64_t planned = 0;
  for (const StageData& each : stages) planned += each.stage.tokens_between(0, position.step);
  ATHANOR_CHECK(planned == position.tokens_seen,
                "this run has seen {} tokens in {} steps, and with this train.batch_ramp it would have seen {}: a ramp "
                "counts from step 1; give it the sizes with which the run began, or leave it out",
                position.tokens_seen, position.step, planned);
}

void Supply::refuse_shortages() const { ATHANOR_CHECK_DATA(shortages.empty(), "{}", join(shortages, "\n")); }

Supply plan_supply(const std::vector<StageData>& stages, const RunConfig& config, const RunPosition& position) {
  Supply supply;
  DataLedger ledger = position.ledger;
  const int64_t passed_over = tokens_passed_over(position);
  std::optional<int64_t> samples;  // that the mix has given since it began
  for (const auto& [stage, mixture, validation] : stages) {
    const int64_t end = std::min(stage.end(), config.train.steps), left = end - std::max(stage.begin, position.step);
    if (left <= 0) continue;
    ledger = mixture.enter(ledger);
    int64_t known = 0;  // 0 if the mix begins here
    for (const auto& [hash, share] : ledger.mix) known += share.drawn;
    samples = (known > 0 && samples ? *samples : known) + left * stage.config.train.global_batch_size;
    supply.lines.push_back(describe_stage(stage, end, position.step));
    for (size_t i = 0; i < mixture.sources().size(); ++i) {
      const auto& source = mixture.sources()[i];
      const auto& hash = source.dataset.content_hash();
      int64_t &drawn = ledger.sources.at(hash).drawn, &of_mix = ledger.mix.at(hash).drawn;
      const int64_t before = drawn - of_mix;
      of_mix = mixture.interleave().most_drawn(i, *samples);
      drawn = before + of_mix;
      add_source(stage, source, mixture.interleave().share(i), drawn, passed_over / mixture.seq_len(), supply);
    }
  }
  return supply;
}

std::string describe_excess(const Mixture& mixture, const DataLedger& next) {
  for (const MixtureSource& source : mixture.sources()) {
    const int64_t drawn = next.sources.at(source.dataset.content_hash()).drawn;
    if (static_cast<double>(drawn) <= most_allowed(source)) continue;
    return fmt::format(
        "source \"{}\" would have given {} instances after this step, and has {}, where max_epochs allows {}",
        source.name, format_thousands(static_cast<double>(drawn)),
        format_thousands(static_cast<double>(source.dataset.num_instances())), source.max_epochs);
  }
  return "";
}

}  // namespace athanor::inline run
