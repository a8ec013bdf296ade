#include "saves/checkpointing.h"

#include <algorithm>
#include <exception>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <utility>

#include "arch/inventory.h"
#include "arch/width_scaling.h"
#include "base/bounded_json.h"
#include "base/console.h"
#include "base/error.h"
#include "base/file_moves.h"
#include "base/files.h"
#include "base/log.h"
#include "base/random.h"
#include "checkpoint/hf_export.h"
#include "checkpoint/hf_import.h"
#include "checkpoint/hf_kept.h"
#include "checkpoint/hf_tokenizer.h"
#include "checkpoint/model_identity.h"
#include "config/dump.h"
#include "config/precision.h"
#include "record/run_folder.h"
#include "saves/path_in_run.h"
#include "saves/progress.h"
#include "saves/router_state.h"
#include "train/state_pieces.h"

namespace athanor::inline saves {
namespace fs = std::filesystem;
namespace {

using nlohmann::json;

constexpr const char* kProgressFile = "athanor.json";  // in a model-only checkpoint

void say_what_changes(const std::vector<std::string>& changes, const std::string& where) {
  for (const auto& each : changes) log::info("{}: {}, as checkpoint.allow_model_change permits", where, each);
}

// The first weight of a model that is not finite. Several threads may add at once.
class FirstNotFinite {
 public:
  void look_at(const std::string& name, const Slice& whole, int64_t first, std::span<const float> values) {
    std::optional<NotFinite> found;
    note_not_finite(name, whole, first, std::as_bytes(values).data(), std::ssize(values), found);
    if (!found) return;
    const std::lock_guard lock(mutex_);
    if (!found_ || found->before(*found_)) found_ = std::move(found);
  }
  const std::optional<NotFinite>& found() const { return found_; }

 private:
  std::mutex mutex_;
  std::optional<NotFinite> found_;
};

// Only the embedding, the output layer and learned positions have rows that a model may gain.
double initial_deviation(const RunConfig& config, const std::string& name) {
  return config.model.initializer_range *
         initial_factor(find_parameter(config.model, name).width, width_ratio(config.optimizer, config.model));
}

// The weights of a smaller table are the first of a larger one's: rows are contiguous.
void read_or_begin(const HfFolder& folder, const std::map<std::string, int64_t>& stored, const TrainState& state,
                   const std::string& name, int64_t first, std::span<float> out) {
  const int64_t there = std::clamp<int64_t>(stored.at(name) - first, 0, static_cast<int64_t>(out.size()));
  if (there > 0) folder.read(name, first, out.first(static_cast<size_t>(there)));
  const auto begin = static_cast<uint64_t>(first + there), end = static_cast<uint64_t>(first) + out.size();
  if (begin < end)
    CounterRandom(static_cast<uint64_t>(state.config.train.seed), name)
        .fill_normal(out.data() + there, begin, end, initial_deviation(state.config, name));
}

}  // namespace

json numbers_json(const TrainState& state) {
  json result = progress_json(state);
  result["config"] = dump_run_config(state.run_config);
  result[kOptimizerUpdates] = updates_json(state);
  if (!state.position.spikes.is_empty()) result[kSpikes] = state.position.spikes.to_json();
  return result;
}

void add_router_rows(json& state, const Tensor& previous_share, const Tensor& bias) {
  if (previous_share.defined()) state[kRouterPreviousShare] = rows_of(previous_share);
  if (bias.defined()) state[kRouterBias] = rows_of(bias);
}

json state_json(const TrainState& state) {
  json result = numbers_json(state);
  add_router_rows(result, state.model.previous_share, state.model.router_bias);
  return result;
}

RotationOptions rotation_options(const CheckpointConfig& config) {
  RotationOptions options;
  options.keep = static_cast<size_t>(config.keep);
  options.keep_every = config.keep_every;
  options.write.must_be_finite = true;
  return options;
}

void save_checkpoint(TrainState& state) {
  state.model.gatherer.wait_all();
  RotationOptions options = rotation_options(state.config.checkpoint);
  options.team = team_of(state.model.mesh);
  save_rotating(RunFolder{state.config.train.run_dir}.checkpoints(), state.position.step, state_pieces(state),
                model_identity(state.config.model), state_json(state), options);
}

void load_model_weights(TrainState& state, const fs::path& path) {
  const HfFolder folder = HfFolder::open(path);
  say_what_changes(check_same_model(model_identity(folder.model()), state.config.model, path.string(),
                                    state.config.checkpoint.allow_model_change),
                   path.string());
  std::map<std::string, int64_t> stored;
  std::map<std::string, Slice> whole;
  for (const auto& spec : folder.parameters()) stored[spec.name] = spec.num_elements();
  for (const auto& spec : make_inventory(state.config.model)) whole[spec.name] = whole_slice(spec.shape);
  FirstNotFinite not_finite;
  std::optional<ProgressBar> progress;
  if (state.model.mesh.is_first())
    progress.emplace("loading " + path.filename().string(),
                     static_cast<uint64_t>(state.model.parameters.num_elements()) * sizeof(float), "B", kLongWork_s);
  load_master(state.model, state.config.checkpoint.load,
              [&](const std::string& name, int64_t first, std::span<float> out) {
                read_or_begin(folder, stored, state, name, first, out);
                not_finite.look_at(name, whole.at(name), first, out);
                if (progress) progress->add(out.size_bytes());
              });
  const auto first = agree_on_first(not_finite.found(), team_of(state.model.mesh));
  ATHANOR_CHECK_CHECKPOINT(!first, "{} is not finite: {}; take another model or an older checkpoint", path.string(),
                           first->text());
  if (const auto& bias = folder.config().router_bias; !bias.empty()) state.model.set_router_bias(tensor_of(bias));
}

void load_progress(TrainState& state, const fs::path& model_folder) {
  const fs::path file = model_folder / kProgressFile;
  if (!fs::exists(file)) {
    ATHANOR_CHECK_CHECKPOINT(
        path_in_run(state.config.train.run_dir, model_folder).empty(),
        "{} is of this run and lacks {}, which has the step that it had reached: the run would begin at step 0 and "
        "replace its later models; put the file back, or take another checkpoint",
        model_folder.string(), kProgressFile);
    return;  // a model from elsewhere: begins at step 0
  }
  const json progress = read_json(read_file(file));
  ATHANOR_CHECK_CHECKPOINT(!progress.is_discarded(), "{} is not JSON; take another checkpoint", file.string());
  const auto& allowed = state.config.checkpoint.allow_model_change;
  apply_progress(state, progress, model_folder, std::ranges::find(allowed, "vocab_size") != allowed.end());
  note_fresh_moments(state);
  const fs::path config = RunFolder{model_folder.parent_path().parent_path()}.config();
  if (state.position.step > 0 && fs::is_regular_file(config)) state.earlier_config = read_file(config);
}

namespace {

void export_model(const TrainState& state, const fs::path& folder, const ParameterReader& read, const Team& team) {
  HfExportOptions options;
  options.dtype = dtype_of(precision_of(state.config).model);
  options.tokenizer = find_tokenizer_file(state.config.train.run_dir);
  options.extra_files = {{kProgressFile, progress_json(state).dump(2) + "\n"}};
  options.overwrite = true;  // a run that was cut repeats its last steps
  HfConfig config;
  config.model = state.config.model;
  config.eos_token_ids = {state.data.eos_id};
  add_kept_settings(state.config.train.run_dir, config);
  config.router_aux_loss_coef = state.config.moe.router_aux_loss_coef;
  if (state.model.router_bias.defined()) config.router_bias = rows_of(state.model.router_bias);
  export_hf_folder(folder, config, read, options, team);
}

// Writes what all ranks have into a temporary folder, and makes the final folder from that.
void export_from_parts(const TrainState& state, const fs::path& folder, const fs::path& parts, const Team& team) {
  write_checkpoint(parts, master_pieces(state.model), model_identity(state.config.model), {}, {.must_be_finite = true},
                   {}, team);
  std::optional<CheckpointReader> reader;  // only on ranks that write a file
  const auto read = [&](const ParameterSpec& spec, int64_t first, std::span<float> out) {
    if (!reader) reader = CheckpointReader::open(parts, team.worked);
    Slice slice = whole_slice(spec.shape);
    slice.flat_begin = first;
    slice.flat_end = first + static_cast<int64_t>(out.size());
    reader->load({{"master/" + spec.name, slice, out.data()}});
  };
  export_model(state, folder, read, team);
}

// No rank holds the whole model. The parts go whatever becomes of the export: they take as much room as the master.
void export_together(const TrainState& state, const fs::path& folder) {
  const Team team = team_of(state.model.mesh);
  const fs::path parts = temporary_name(folder.string() + ".parts");
  team.on_first([&] { remove_tree(parts); });
  std::exception_ptr failure;
  try {
    export_from_parts(state, folder, parts, team);
  } catch (const CommError&) {
    throw;  // there is no rank to agree with
  } catch (const Error&) {
    failure = std::current_exception();  // every rank's
  }
  team.on_all([] {});  // every rank has closed them: NFS keeps what is mapped
  team.on_first([&] {
    if (const auto why = try_remove_tree(parts); !why.empty()) log::warn("{}; remove it by hand", why);
  });
  if (failure) std::rethrow_exception(failure);
}

}  // namespace

fs::path save_model(TrainState& state) {
  state.model.gatherer.wait_all();
  const fs::path folder = RunFolder{state.config.train.run_dir}.models() / step_folder_name(state.position.step);
  if (state.model.mesh.world().size() > 1) {
    export_together(state, folder);
  } else {
    export_model(
        state, folder,
        [&](const ParameterSpec& spec, int64_t first, std::span<float> out) {
          state.model.parameters.read_master(state.model.parameters.entry(spec.name), first, out);
          check_finite(spec.name, whole_slice(spec.shape), first, std::as_bytes(out).data(), std::ssize(out));
        },
        team_of(state.model.mesh));
  }
  return folder;
}

}  // namespace athanor::inline saves
