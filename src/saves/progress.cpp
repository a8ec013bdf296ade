#include "saves/progress.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/text_template_json.h"
#include "checkpoint/json_members.h"
#include "checkpoint/rotation.h"
#include "checkpoint/strict_json.h"
#include "config/ranges.h"

namespace athanor::inline saves {
namespace fs = std::filesystem;
namespace {

using nlohmann::json;

constexpr auto kMaxTokens = static_cast<int64_t>(kMaxRunTokens);
constexpr int64_t kMaxWeight = int64_t{1} << 50;  // Interleave gives each source its share of this

std::string order_name(DataOrder order) { return order == DataOrder::kBlocks ? "blocks" : "shuffled rows"; }

json ledger_json(const DataLedger& ledger) {
  json sources = json::object(), mix = json::object();
  for (const auto& [hash, s] : ledger.sources) {
    sources[hash] = {{"name", s.name},
                     {"instances", s.num_instances},
                     {"seq_len", s.seq_len},
                     {"epoch", s.cursor.epoch},
                     {"next", s.cursor.next},
                     {"drawn", s.drawn},
                     {"grown_from", s.grown_from},
                     {"tokens_drawn", s.tokens_drawn()}};
  }
  for (const auto& [hash, share] : ledger.mix) mix[hash] = {{"weight", share.weight}, {"drawn", share.drawn}};
  return {{"sources", std::move(sources)}, {"mix", std::move(mix)}, {"order", order_name(ledger.order)}};
}

// A JSON object, with the name that messages use for it.
struct Written {
  const json& object;
  std::string where;

  int64_t whole(const char* key, int64_t low, int64_t high) const {
    const auto found = object.find(key);
    const bool there = found != object.end();
    ATHANOR_CHECK_CHECKPOINT(there && found->is_number_integer() && *found >= low && *found <= high,
                             "{}: {} is {}, expected a whole number from {} to {}; take another checkpoint", where, key,
                             there ? JsonMembers::shown(*found) : "missing", low, high);
    return found->get<int64_t>();
  }
};

std::vector<int64_t> read_growth(const Written& source, int64_t instances) {
  const json& list = source.object.at("grown_from");
  const bool right = list.is_array() && std::ranges::all_of(list, [&](const json& size) {
                       return size.is_number_integer() && size > 0 && size < instances;
                     });
  ATHANOR_CHECK_CHECKPOINT(
      right && std::is_sorted(list.begin(), list.end()),
      "{}: grown_from is {}, expected whole numbers from 1 to {} in order; take another checkpoint", source.where,
      JsonMembers::shown(list), instances - 1);
  return list.get<std::vector<int64_t>>();
}

// Epochs have at least one instance and never more than the last epoch, since sources only grow.
SourceAccount read_account(const Written& source) {
  SourceAccount account;
  account.name = source.object.at("name").get<std::string>();
  account.num_instances = source.whole("instances", 1, kMaxTokens);
  account.seq_len = source.whole("seq_len", 1, kMaxPositions);
  account.drawn = source.whole("drawn", 0, kMaxTokens / account.seq_len);
  account.cursor.epoch = source.whole("epoch", account.drawn / account.num_instances, account.drawn);
  account.cursor.next =
      source.whole("next", 0, std::min(account.num_instances - 1, account.drawn - account.cursor.epoch));
  account.grown_from = read_growth(source, account.num_instances);
  return account;
}

DataLedger read_ledger(const json& data, const std::string& where) {
  DataLedger ledger;
  const auto order = data.value("order", order_name(DataOrder::kShuffledRows));  // programs that had no other
  ledger.order = order == order_name(DataOrder::kBlocks) ? DataOrder::kBlocks : DataOrder::kShuffledRows;
  ATHANOR_CHECK_CHECKPOINT(order == order_name(ledger.order),
                           "{}: data.order is \"{}\", which this program does not know; "
                           "take another checkpoint",
                           where, shown_text(order));
  for (const auto& [hash, source] : data.at("sources").items())
    ledger.sources[hash] = read_account({source, fmt::format("{}: source {}", where, shown_text(hash))});
  for (const auto& [hash, share] : data.at("mix").items()) {
    const Written written{share, fmt::format("{}: source {} of the mix", where, shown_text(hash))};
    const auto source = ledger.sources.find(hash);
    ATHANOR_CHECK_CHECKPOINT(source != ledger.sources.end(),
                             "{} is not among those that were drawn from; take another checkpoint", written.where);
    ledger.mix[hash] = {written.whole("weight", 1, kMaxWeight), written.whole("drawn", 0, source->second.drawn)};
  }
  return ledger;
}

// @return true if nothing more must be compared.
bool is_of_other_tokens(const TrainState& state, const json& progress, const std::string& where, bool may_change) {
  const auto hash = progress.at("tokenizer_hash").get<std::string>();
  if (may_change && hash != state.data.tokenizer_hash) {
    log::warn_on_all("{} was trained on tokens of another tokenizer: its ids must mean the same in this one", where);
    return true;
  }
  ATHANOR_CHECK_CHECKPOINT(
      hash == state.data.tokenizer_hash,
      "{} was trained on tokens of another tokenizer ({}) than the data have ({}); prepare the documents with "
      "the run's own tokenizer",
      where, shown_text(hash), state.data.tokenizer_hash);
  return false;
}

// A model from elsewhere, at step 0, may learn to do without; a run does not change under way.
void check_template(const TrainState& state, const json& progress, const std::string& where) {
  const bool has_one = progress.contains(kTextTemplateKey);
  const auto around = has_one ? parse_text_template(progress.at(kTextTemplateKey)) : TextTemplate();
  ATHANOR_CHECK_CHECKPOINT(around, "{}: {} is {}, which is no template; take another checkpoint", where,
                           kTextTemplateKey, JsonMembers::shown(progress.at(kTextTemplateKey)));
  ATHANOR_CHECK_CHECKPOINT(*around == state.data.text_template,
                           "{} was trained on documents with the tokens {} around them, those of the data have {}; "
                           "prepare them again {} --add-special-tokens",
                           where, text_template_json(*around).dump(),
                           text_template_json(state.data.text_template).dump(), around->empty() ? "without" : "with");
}

void warn_of_other_template(const TrainState& state, const json& progress) {
  if (!progress.contains(kTextTemplateKey)) return;
  const auto around = parse_text_template(progress.at(kTextTemplateKey));
  if (around && *around != state.data.text_template)
    log::warn(
        "the imported model reads texts with the tokens {} around them, and the data have {}: it has to learn that; "
        "`athanor prepare --add-special-tokens` puts them there",
        text_template_json(*around).dump(), text_template_json(state.data.text_template).dump());
}

void check_tokens(const TrainState& state, const json& progress, const std::string& where, bool may_change) {
  if (is_of_other_tokens(state, progress, where, may_change)) return;
  const int64_t eos_id = Written{progress, where}.whole("eos_id", 0, UINT32_MAX);
  ATHANOR_CHECK_CHECKPOINT(eos_id == state.data.eos_id,
                           "{} was trained on documents that end with token {}, those of the data end with {}; prepare "
                           "them again with the run's own tokenizer",
                           where, eos_id, state.data.eos_id);
  check_template(state, progress, where);
}

void check_seed(const TrainState& state, int64_t seed, const std::string& where) {
  ATHANOR_CHECK(seed == state.config.train.seed,
                "train.seed is {} but {} was written with {}: the order of the data would change under its cursor; set "
                "train.seed={}, or start another train.run_dir",
                state.config.train.seed, where, seed, seed);
}

}  // namespace

json progress_json(const TrainState& state) {
  json progress{{"step", state.position.step},     {"tokens_seen", state.position.tokens_seen},
                {"seed", state.config.train.seed}, {"tokenizer_hash", state.data.tokenizer_hash},
                {"eos_id", state.data.eos_id},     {"data", ledger_json(state.position.ledger)}};
  if (!state.data.text_template.empty()) progress[kTextTemplateKey] = text_template_json(state.data.text_template);
  return progress;
}

RunPosition read_progress(const TrainState& state, const json& progress, const fs::path& folder,
                          bool vocabulary_may_change) try {
  const std::string where = folder.string();
  const Written written{progress, where};
  const int64_t step = written.whole("step", 0, kMaxSteps), tokens_seen = written.whole("tokens_seen", 0, kMaxTokens);
  const auto named = step_of_folder_name(folder.filename().string());
  ATHANOR_CHECK_CHECKPOINT(!named || *named == step,
                           "{}: step is {}, and its name has {}; take another checkpoint, or give it back its name",
                           where, step, named.value_or(0));
  RunPosition position = state.position;
  position.step = step;
  position.tokens_seen = tokens_seen;
  if (step == 0) {
    warn_of_other_template(state, progress);
    return position;
  }
  position.ledger = read_ledger(progress.at("data"), where);
  const bool with_data = !state.data.tokenizer_hash.empty();  // verify makes its batches itself
  ATHANOR_CHECK_CHECKPOINT(!with_data || !(position.ledger.sources.empty() || position.ledger.mix.empty()),
                           "{} is of step {} and names no data that it was trained on (data.sources and data.mix): its "
                           "first documents would come again; take another checkpoint",
                           where, step);
  check_seed(state, written.whole("seed", 0, INT64_MAX), where);
  check_tokens(state, progress, where, vocabulary_may_change);
  return position;
} catch (const json::exception& error) {
  fail<CheckpointError>("{}: its numbers cannot be read ({}); take another checkpoint", folder.string(),
                        json_reason(error));
}

void apply_progress(TrainState& state, const json& progress, const fs::path& folder, bool vocabulary_may_change) {
  state.position = read_progress(state, progress, folder, vocabulary_may_change);
}

}  // namespace athanor::inline saves
