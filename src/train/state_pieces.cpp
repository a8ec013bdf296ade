#include "train/state_pieces.h"

#include "ops/transfer.h"
#include "parallel/share.h"
#include "train/optimizer_pieces.h"

namespace athanor::inline train {
namespace {

constexpr const char* kMaster = "master";

std::string tensor_name(const char* kind, const BucketEntry& e) { return std::string(kind) + "/" + e.name; }

// What of each parameter lies in the ranges that `range_of` gives of each bucket.
template <class RangeOf>
std::vector<EntryPart> parts_of_buckets(const ParameterStore& parameters, const RangeOf& range_of) {
  std::vector<EntryPart> parts;
  auto bucket = parameters.buckets().begin();
  for (const BucketEntry& e : parameters.table()) {
    while (e.flat_begin >= bucket->range.end) ++bucket;
    const FlatRange common = intersect(e.range(), range_of(*bucket));
    if (common.size() > 0) parts.push_back({&e, common});
  }
  return parts;
}

// The parts of each parameter that this rank writes.
std::vector<EntryPart> written_parts(const ModelState& model, Writers writers) {
  std::vector<EntryPart> parts;
  auto bucket = model.parameters.buckets().begin();
  for (const BucketEntry& e : model.parameters.table()) {
    while (e.flat_begin >= bucket->range.end) ++bucket;
    for (const FlatRange part : model.plan.of(*bucket).shards.written(bucket->range, writers)) {
      const FlatRange common = intersect(e.range(), part);
      if (common.size() > 0) parts.push_back({&e, common});
    }
  }
  return parts;
}

void add_master_target(TrainState& state, const BucketEntry& e, FlatRange range, std::vector<TargetView>& targets) {
  const auto write = [&state, &e, first = range.begin - e.flat_begin](int64_t at, std::span<const float> values) {
    state.model.parameters.write_master(e, first + at, values);
  };
  targets.push_back({tensor_name(kMaster, e), slice_of(e, range), nullptr, write});
}

// What one of several equal owners has read.
void share_with_copies(TrainState& state, const FreshState& fresh, SharedBy how) {
  for (const Bucket& bucket : state.model.parameters.buckets()) {
    comm::Communicator* copies = state.model.plan.of(bucket).copies;
    if (!copies || copies->size() == 1) continue;
    const FlatRange owned = state.model.plan.owned(bucket);
    share_from_first(*copies, state.model.parameters.compute().narrow(0, owned.begin, owned.size()), how);
    if (!fresh.all) {
      for_each_owned_state(state.optimizer.set, owned,
                           [&](const Tensor& values) { share_from_first(*copies, values, how); });
    }
    const Tensor& low = state.model.parameters.master_low();
    if (low.defined())
      share_from_first(*copies, low.narrow(0, state.model.parameters.state_begin(owned), owned.size()), how);
  }
}

void gather_weights(ModelState& model) {
  for (const Bucket& bucket : model.parameters.buckets()) model.gatherer.start(bucket);
  model.gatherer.wait_all();
}

}  // namespace

std::vector<EntryPart> canonical_parts(const ParameterStore& parameters, const ShardPlan& plan) {
  return parts_of_buckets(parameters, [&](const Bucket& bucket) { return plan.canonical(bucket); });
}

std::vector<EntryPart> canonical_parts(const ModelState& model) {
  return canonical_parts(model.parameters, model.plan);
}

Team team_of(const Mesh& mesh) {
  comm::Communicator& world = mesh.group(GroupKind::kWorld);
  return {
      world.rank(),
      world.size(),
      [&world](const std::string& own) { return gather_texts(world, own); },
      [&world](const std::string& of_first) { return broadcast_text(world, of_first); },
      [&world](std::vector<int64_t>& numbers) {
        world.all_reduce(at::from_blob(numbers.data(), {std::ssize(numbers)}, at::kLong), comm::Reduction::kMax).wait();
      },
      [&mesh](int64_t amount) { mesh.world().note_work(amount); }};
}

std::vector<PieceView> master_pieces(const ModelState& model, Writers writers) {
  std::vector<PieceView> pieces;
  for (const auto& [entry, range] : written_parts(model, writers)) {
    const BucketEntry& e = *entry;
    const auto read = [&parameters = model.parameters, &e, first = range.begin - e.flat_begin](
                          int64_t at, std::span<float> out) { parameters.read_master(e, first + at, out); };
    const auto there = [&parameters = model.parameters, begin = range.begin](int64_t at, int64_t count) {
      return parameters.master_there({begin + at, begin + at + count});
    };
    pieces.push_back({tensor_name(kMaster, e), slice_of(e, range), nullptr, read,
                      ops::FetchAside::copies_of(model.parameters.compute(), there)});
  }
  return pieces;
}

std::vector<PieceView> state_pieces(const TrainState& state) {
  const Writers writers = state.config.checkpoint.writers;
  std::vector<PieceView> pieces = master_pieces(state.model, writers);
  add_optimizer_pieces(state.optimizer.set, state.model.mesh, written_parts(state.model, writers), pieces);
  return pieces;
}

std::vector<PieceView> gradient_pieces(const ModelState& model) {
  std::vector<PieceView> pieces;
  for (const auto& [entry, range] : canonical_parts(model)) {
    const Tensor grad = model.parameters.grad().narrow(0, range.begin, range.size());
    const auto read = [grad](int64_t first, std::span<float> out) {
      ops::fetch_bytes(grad.narrow(0, first, std::ssize(out)), out.data());
    };
    pieces.push_back({tensor_name("grad", *entry), slice_of(*entry, range), ops::fp32_on_host(grad), read});
  }
  return pieces;
}

std::vector<TargetView> state_targets(TrainState& state, const FreshState& fresh) {
  std::vector<TargetView> targets;
  const auto owned = [&](const Bucket& bucket) { return state.model.plan.owned(bucket); };
  for (const auto& [entry, range] : parts_of_buckets(state.model.parameters, owned)) {
    const comm::Communicator* copies = state.model.plan.of(entry->replication).copies;
    if (copies && copies->rank() != 0) continue;
    add_master_target(state, *entry, range, targets);
    if (!fresh.has(entry->name)) add_element_targets(state.optimizer.set, *entry, range, targets);
  }
  if (!fresh.all)
    add_whole_targets(
        state.optimizer.set, [&](const BucketEntry& e) { return !fresh.has(e.name); }, targets);
  return targets;
}

void zero_optimizer_state(TrainState& state) {
  for (const auto& optimizer : state.optimizer.set.optimizers())
    for (const HeldState& held : optimizer->state()) held.values.zero_();
}

void share_loaded_state(TrainState& state, const FreshState& fresh) {
  if (fresh.all) zero_optimizer_state(state);
  for (const BucketEntry& e : state.model.parameters.table())
    if (!fresh.all && fresh.has(e.name)) zero_state_of(state.optimizer.set, e);
  share_with_copies(state, fresh, state.config.checkpoint.load);
  gather_weights(state.model);
}

void load_master(ModelState& model, SharedBy how,
                 const std::function<void(const std::string& name, int64_t first, std::span<float> out)>& read) {
  constexpr int64_t kReadBlock = int64_t{1} << 22;  // 16 MiB at a time on their way
  for (const BucketEntry& e : model.parameters.table()) {
    comm::Communicator& holders = *model.plan.of(e.replication).sum;
    if (holders.size() == 1) {
      model.parameters.fill_master(e.name, [&](int64_t first, std::span<float> out) {
        for_each_run(e, first, static_cast<int64_t>(out.size()), [&](int64_t global, int64_t at, int64_t count) {
          read(e.name, global, out.subspan(static_cast<size_t>(at), static_cast<size_t>(count)));
        });
      });
      continue;
    }
    const Tensor block = at::zeros({kReadBlock}, at::kFloat);
    const Tensor there = at::zeros({kReadBlock}, block.options().device(model.device()));
    for (int64_t first = 0; first < e.num_elements(); first += kReadBlock) {
      const int64_t count = std::min(kReadBlock, e.num_elements() - first);
      const std::span<float> values(block.data_ptr<float>(), static_cast<size_t>(count));
      if (holders.rank() == 0) {
        for_each_run(e, first, count, [&](int64_t global, int64_t at, int64_t length) {
          read(e.name, global, values.subspan(static_cast<size_t>(at), static_cast<size_t>(length)));
        });
      }
      const Tensor shared = there.narrow(0, 0, (count + 1) / 2 * 2);
      if (holders.rank() == 0) ops::send_bytes(shared, values.data());
      share_from_first(holders, shared, how);
      ops::fetch_bytes(shared, block.data_ptr());
      model.parameters.write_master(e, first, values);
    }
  }
}

}  // namespace athanor::inline train
