#include "config/checks.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "base/text.h"
#include "config/families.h"
#include "config/findings.h"
#include "config/mapping.h"
#include "config/optimizer_checks.h"
#include "config/training_stages.h"

namespace athanor::inline config {
namespace {

void check_sources(const std::string& key, const std::string& path, const std::vector<SourceConfig>& sources,
                   Findings& found) {
  found.require(path.empty() || sources.empty(), "{}path and {}sources are both set; keep one", key, key);
  std::set<std::string> names;
  for (size_t i = 0; i < sources.size(); ++i) {
    const auto& source = sources[i];
    found.require(!source.path.empty(),
                  "{}sources[{}].path is missing: set it to a folder that `athanor prepare` wrote", key, i);
    found.require(source.weight > 0, "{}sources[{}].weight is missing: set it to a number above 0", key, i);
    const auto& name = source.name.empty() ? source.path : source.name;
    found.require(name.empty() || names.insert(name).second,
                  "{}sources[{}]: \"{}\" is there twice; give it one weight, or other names", key, i, name);
  }
}

void check_products(const std::string& where, const RunConfig& config, Findings& found) {
  const auto& train = config.train;
  const int64_t seq_len = config.data.seq_len;
  const auto tokens = [&](int64_t sequences) { return static_cast<double>(sequences) * static_cast<double>(seq_len); };
  const double choices =
      tokens(train.micro_batch_size) * static_cast<double>(std::max<int64_t>(1, config.model.num_experts_per_tok));
  found.require(choices <= static_cast<double>(kMaxMicrobatchTokens),
                "{}train.micro_batch_size ({}) · data.seq_len ({}) · experts for each token are {:.4g} rows, more than "
                "the {} that are indexed; use a smaller micro_batch_size",
                where, train.micro_batch_size, seq_len, choices, kMaxMicrobatchTokens);
  found.require(tokens(train.global_batch_size) <= kMaxStepTokens,
                "{}train.global_batch_size ({}) · data.seq_len ({}) are {:.4g} tokens, more than the {:.4g} of a step",
                where, train.global_batch_size, seq_len, tokens(train.global_batch_size), kMaxStepTokens);
  const double all = tokens(train.global_batch_size) * static_cast<double>(train.steps);
  found.require(
      all <= kMaxRunTokens,
      "{}train.steps ({}) · train.global_batch_size ({}) · data.seq_len ({}) are {:.4g} tokens, more than the "
      "{:.4g} that are counted",
      where, train.steps, train.global_batch_size, seq_len, all, kMaxRunTokens);
}

// Checks the conditions of each training phase; `where` begins its messages.
void check_stage(const std::string& where, const RunConfig& config, Findings& found) {
  const auto& [model, data, train, optimizer, moe, checkpoint, metrics, eval, parallelism, topology, integrity,
               faults] = config;
  found.require(train.global_batch_size % train.micro_batch_size == 0,
                "{}train.micro_batch_size ({}) must divide train.global_batch_size ({})", where, train.micro_batch_size,
                train.global_batch_size);
  found.require(data.seq_len != 1, "{}data.seq_len (1): an instance needs at least 2 tokens to have a target", where);
  check_products(where, config, found);
  found.require(
      !model.from.empty() || data.seq_len <= model.max_position_embeddings,
      "{}data.seq_len ({}) is beyond model.max_position_embeddings ({}); raise that or prepare shorter instances",
      where, data.seq_len, model.max_position_embeddings);
  found.require(
      optimizer.warmup_steps <= count_schedule_steps(config),
      "{}optimizer.warmup_steps ({}) is beyond {} ({}): set it to fewer, or leave it out, which takes at most "
      "a tenth of them",
      where, optimizer.warmup_steps,
      optimizer.schedule_steps > 0 ? "schedule_steps"
      : where.empty()              ? "train.steps"
                                   : "its steps",
      count_schedule_steps(config));
  found.require(optimizer.min_lr <= optimizer.lr, "{}optimizer.min_lr ({}) is above optimizer.lr ({})", where,
                optimizer.min_lr, optimizer.lr);
  for (const auto& line : find_balance_contradictions(config)) found.require(false, "{}{}", where, line);
}

// A model-only checkpoint is a folder of `transformers`; a model that such a folder cannot express must be refused
// before step 1, not at step 1,000.
void check_exportable(const RunConfig& config, Findings& found) {
  if (config.checkpoint.model_interval == 0) return;
  if (family_of(config.model).architecture.empty()) {
    found.require(
        false,
        "model.family ({}): transformers has no class for it, so no model-only checkpoint can be written; set "
        "checkpoint.model_interval to 0",
        config.model.family);
    return;
  }
  auto beyond = beyond_family(config.model);
  if (config.moe.bias_update_rate > 0 && family_of(config.model).names.router_bias.empty()) {
    beyond.push_back(fmt::format("moe.bias_update_rate ({})", config.moe.bias_update_rate));
  }
  found.require(
      beyond.empty(),
      "{}: the class of family {} in transformers has nothing of the kind, so no model-only checkpoint can be "
      "written; set checkpoint.model_interval to 0",
      join(beyond), config.model.family);
}

// Rules and tasks themselves are checked when the run starts, since task files are read there.
void check_eval(const EvalConfig& eval, Findings& found) {
  found.require(!eval.on_start || eval.interval > 0,
                "eval.on_start needs eval.interval: set it to the steps between evaluations");
  if (eval.interval == 0) return;
  found.require(!eval.tasks.empty(),
                "eval.interval ({}) needs eval.tasks: name tasks, which `athanor eval --list` shows, or set it to 0",
                eval.interval);
  found.require(!eval.data.empty(), "eval.interval ({}) needs eval.data: set it to the folder with the tasks' rows",
                eval.interval);
}

// A schedule counts all of its parts in steps, or all of them in tokens.
void check_schedule(const RunConfig& config, Findings& found) {
  const OptimizerConfig& o = config.optimizer;
  if (o.schedule_tokens == 0) {
    for (const auto& [key, tokens] : {std::pair("warmup", o.warmup_tokens), std::pair("decay", o.decay_tokens)})
      found.require(tokens == 0,
                    "optimizer.{}_tokens ({}) needs optimizer.schedule_tokens: set it to the tokens of the whole "
                    "schedule, or use optimizer.{}_steps",
                    key, tokens, key);
    return;
  }
  found.require(o.schedule_steps == 0,
                "optimizer.schedule_steps ({}) and optimizer.schedule_tokens ({}) are both set; keep one",
                o.schedule_steps, o.schedule_tokens);
  for (const auto& [key, steps] : {std::pair("warmup", o.warmup_steps), std::pair("decay", o.decay_steps)})
    found.require(steps == 0,
                  "optimizer.{}_steps ({}) counts steps, and optimizer.schedule_tokens ({}) tokens: use "
                  "optimizer.{}_tokens",
                  key, steps, o.schedule_tokens, key);
  for (const auto& [key, tokens] : {std::pair("warmup", o.warmup_tokens), std::pair("decay", o.decay_tokens)})
    found.require(tokens <= o.schedule_tokens, "optimizer.{}_tokens ({}) is beyond optimizer.schedule_tokens ({})", key,
                  tokens, o.schedule_tokens);
  found.require(config.train.stages.empty(),
                "optimizer.schedule_tokens ({}) is a schedule of the whole run, and each of train.stages has its own, "
                "which counts steps: leave it out, or use the schedule_steps of the phases",
                o.schedule_tokens);
}

// Checks each size of a ramp by itself and with the one before it.
void check_ramp_sizes(const RunConfig& config, Findings& found) {
  const TrainConfig& train = config.train;
  int64_t sequences = 0;
  double tokens = 0, until_tokens = 0;
  for (size_t i = 0; i < train.batch_ramp.size(); ++i) {
    const BatchRampConfig& part = train.batch_ramp[i];
    const auto entry = fmt::format("train.batch_ramp[{}]", i);
    found.require(part.sequences > 0, "{}.sequences is missing: set it to the sequences of a step", entry);
    found.require(part.until_tokens > 0, "{}.until_tokens is missing: set it to the tokens at which the size ends",
                  entry);
    if (part.sequences == 0 || part.until_tokens == 0) return;
    found.require(sequences < part.sequences && part.sequences < train.global_batch_size,
                  "{}.sequences ({}) must be between the size before it ({}) and train.global_batch_size ({}): a ramp "
                  "grows",
                  entry, part.sequences, sequences, train.global_batch_size);
    found.require(part.sequences % train.micro_batch_size == 0,
                  "train.micro_batch_size ({}) must divide {}.sequences ({})", train.micro_batch_size, entry,
                  part.sequences);
    found.require(
        part.until_tokens > tokens,
        "{}.until_tokens ({}) leaves it no step: the size before it holds up to {}, and its last step ends at "
        "{} tokens; raise it, or leave the entry out",
        entry, part.until_tokens, until_tokens, tokens);
    const double step_tokens = static_cast<double>(part.sequences) * static_cast<double>(config.data.seq_len);
    if (part.until_tokens > tokens) tokens += std::ceil((part.until_tokens - tokens) / step_tokens) * step_tokens;
    sequences = part.sequences, until_tokens = part.until_tokens;
  }
}

void check_ramp(const RunConfig& config, Findings& found) {
  const TrainConfig& train = config.train;
  if (train.batch_ramp.empty()) {
    found.require(train.batch_ramp_lr == BatchRampLr::kNone,
                  "train.batch_ramp_lr \"{}\" needs a ramp: list the sizes under [[train.batch_ramp]], or set it to "
                  "\"none\"",
                  train.batch_ramp_lr.word());
    return;
  }
  found.require(
      train.stages.empty(),
      "train.batch_ramp and train.stages are both set: a training phase has one batch size and a schedule for "
      "its own steps, and the sizes of a ramp go by the tokens of the whole run; give phases a "
      "global_batch_size, or leave one of the two out");
  found.require(config.data.seq_len > 0,
                "train.batch_ramp counts tokens, and data.seq_len is 0: set it to the tokens of an instance");
  if (config.data.seq_len > 0) check_ramp_sizes(config, found);
}

void check_stages(const RunConfig& config, Findings& found) {
  check_sources("data.", config.data.path, config.data.sources, found);
  check_schedule(config, found);
  check_ramp(config, found);
  const auto stages = training_stages(config);
  found.require(
      config.train.steps <= stages.back().end(),
      "train.steps ({}) is beyond the sum of the training phases' steps ({}); leave it out, or lengthen a phase",
      config.train.steps, stages.back().end());
  found.require(stages.back().end() <= kMaxSteps, "the training phases' steps add up to {}, more than {}",
                stages.back().end(), kMaxSteps);
  for (size_t i = 0; i < config.train.stages.size(); ++i) {
    const auto& stage = config.train.stages[i];
    found.require(stage.steps > 0, "train.stages[{}].steps is missing: set it to the stage's optimizer steps", i);
    check_sources(fmt::format("train.stages[{}].", i), stage.path, stage.sources, found);
  }
  const auto check = [&](const std::string& where, const RunConfig& phase) {
    check_stage(where, phase, found);
    for (const auto& line : find_decay_faults(config.optimizer, phase.optimizer.lr))
      found.require(false, "{}{}", where, line);
  };
  if (stages.front().is_of_ramp) return check("", config);
  for (const auto& stage : stages) check(stage.name.empty() ? "" : stage.name + ": ", stage.config);
}

std::vector<std::string> optimizers_with_width_rule() {
  std::vector<std::string> names;
  for (const OptimizerRow& row : optimizer_table())
    if (row.width_rule) names.push_back(row.name);
  return names;
}

}  // namespace

bool is_resolved(const ModelConfig& model) { return model.from.empty() || model.written.resolved; }

std::vector<std::string> find_contradictions(const RunConfig& config) {
  // A model that comes from a folder is checked when it is read.
  auto lines = config.model.from.empty() ? find_contradictions(config.model) : std::vector<std::string>{};
  Findings found;
  const auto& [model, data, train, optimizer, moe, checkpoint, metrics, eval, parallelism, topology, integrity,
               faults] = config;
  check_stages(config, found);
  found.require(
      moe.aux_scope != AuxScope::kTransformers || parallelism.pipeline_parallel_degree == 1,
      "moe.aux_scope \"transformers\" pools over all layers and cannot be cut by pipeline_parallel_degree ({}); "
      "use \"sequence\"",
      parallelism.pipeline_parallel_degree);
  found.require(
      !is_resolved(model) || model.num_experts == 0 || model.num_experts % parallelism.expert_parallel_degree == 0,
      "parallelism.expert_parallel_degree ({}) must divide model.num_experts ({})", parallelism.expert_parallel_degree,
      model.num_experts);
  if (is_resolved(model)) check_exportable(config, found);
  check_eval(eval, found);
  for (const auto& line : find_optimizer_contradictions(optimizer)) found.require(false, "{}", line);
  if (is_resolved(model)) {
    for (const auto& line : find_scaling_contradictions(config)) found.require(false, "{}", line);
  }
  found.require(checkpoint.local_dir.empty() || checkpoint.local_dir.starts_with('/'),
                "checkpoint.local_dir ({}) must begin with /: each node has a folder of this name",
                checkpoint.local_dir);
  if (checkpoint.local_interval > 0) {
    found.require(
        !checkpoint.local_dir.empty(),
        "checkpoint.local_interval ({}) needs checkpoint.local_dir: set it to a folder of each node's memory or "
        "disk, such as \"/dev/shm\"",
        checkpoint.local_interval);
    found.require(
        checkpoint.async && !checkpoint.interval.is_off(),
        "checkpoint.local_interval ({}) needs checkpoint.async, and a checkpoint.interval that is not 0: local "
        "checkpoints are written in the background, and are lost with the nodes",
        checkpoint.local_interval);
  }
  found.require(!checkpoint.resume.empty(),
                "checkpoint.resume is \"\": set it to \"auto\", \"never\" or the path of a checkpoint");
  found.require(
      !checkpoint.fresh_moments || checkpoint.fresh_groups.empty(),
      "checkpoint.fresh_moments = true and checkpoint.fresh_groups contradict each other: the first begins all "
      "moments at zero, the second some; keep one of them");
  for (const auto& line : find_mapping_faults(parallelism.mapping)) found.require(false, "{}", line);
  for (auto& line : found.take()) lines.push_back(std::move(line));
  return lines;
}

std::vector<std::string> find_scaling_contradictions(const RunConfig& config) {
  const OptimizerConfig& o = config.optimizer;
  Findings found;
  if (o.scaling != WidthScaling::kMup) {
    found.require(o.base_width == 0,
                  "optimizer.base_width ({}) is used by optimizer.scaling \"mup\" alone, and that is \"{}\"; set it "
                  "to \"mup\", or leave base_width out",
                  o.base_width, o.scaling.word());
    return found.take();
  }
  found.require(o.base_width > 0,
                "optimizer.scaling \"mup\" needs optimizer.base_width: set it to the model.hidden_size for which "
                "optimizer.lr and model.initializer_range hold");
  for (const std::string& name : named_optimizers(o)) {
    found.require(
        optimizer_row(name).width_rule.has_value(),
        "optimizer.scaling \"mup\": how the rates of {} follow the width is not known; set it to \"none\", or "
        "the optimizer's name to one of {}",
        name, join(optimizers_with_width_rule()));
  }
  const Family* family = find_family(config.model.family);
  found.require(!family || (!family->scales_embedding && family->norm_offset == 0 && !family->latent_attention),
                "optimizer.scaling \"mup\": how the embedding's factor of √hidden_size, norms and latents of family {} "
                "follow the width is not known; set it to \"none\"",
                config.model.family);
  found.require(!family || !config.model.tie_word_embeddings || family->norm != NormKind::kLayerWithoutParameters,
                "optimizer.scaling \"mup\": with model.tie_word_embeddings the weights of the final norm follow the "
                "width, and family {} has none; set model.tie_word_embeddings to false",
                config.model.family);
  return found.take();
}

std::vector<std::string> find_overflows(const RunConfig& config) {
  Findings found;
  check_products("", config, found);
  return found.take();
}

std::vector<std::string> find_balance_contradictions(const RunConfig& config) {
  const auto& [model, data, train, optimizer, moe, checkpoint, metrics, eval, parallelism, topology, integrity,
               faults] = config;
  Findings found;
  if (moe.balance != Balance::kNone) {
    found.require(train.micro_batch_size % moe.balance_group == 0 || moe.balance_group % train.micro_batch_size == 0,
                  "moe.balance_group ({}) must divide train.micro_batch_size ({}), or be a multiple of it, which spans "
                  "data ranks",
                  moe.balance_group, train.micro_batch_size);
  }
  const double group_tokens = static_cast<double>(moe.balance_group) * static_cast<double>(data.seq_len);
  found.require(moe.balance == Balance::kNone || group_tokens <= kMaxStepTokens,
                "moe.balance_group ({}) · data.seq_len ({}) are {:.4g} tokens, more than a step may have",
                moe.balance_group, data.seq_len, group_tokens);
  found.require(
      moe.balance == Balance::kNone || moe.aux_scope != AuxScope::kTransformers ||
          moe.balance_group <= train.micro_batch_size,
      "moe.aux_scope \"transformers\" pools over a microbatch, and moe.balance_group ({}) is more than "
      "train.micro_batch_size ({}): no other layout would have the same pools; use \"sequence\" or \"global\"",
      moe.balance_group, train.micro_batch_size);
  // The experts of a model that comes from a folder are known when it is read.
  if (needs_equal_shares(moe.balance) && data.seq_len > 0 && model.num_experts > 0 && group_tokens <= kMaxStepTokens) {
    const int64_t choices = moe.balance_group * data.seq_len * model.num_experts_per_tok;
    found.require(
        choices % model.num_experts == 0,
        "moe.balance {}: {} experts cannot have equal shares of the {} choices of a group "
        "(moe.balance_group {} · data.seq_len {} · model.num_experts_per_tok {}); choose numbers whose product "
        "model.num_experts divides",
        moe.balance.word(), model.num_experts, choices, moe.balance_group, data.seq_len, model.num_experts_per_tok);
  }
  return found.take();
}

}  // namespace athanor::inline config
