#include "watch/step_again.h"

#include <algorithm>
#include <exception>

#include "base/error.h"
#include "comm/derived_worlds.h"
#include "ops/transfer.h"
#include "parallel/gradient_reducer.h"
#include "train/gradients.h"
#include "train/microbatch.h"

namespace athanor::inline watch {
namespace {

constexpr int64_t kMessageElements = int64_t{16} << 20;

struct Neighbours {
  comm::Communicator& ranks;
  int to, from;  // in `ranks`
};

// Sends `own` to one rank and fills `other` from another one; both are in host memory.
void exchange(const Neighbours& with, const Tensor& own, const Tensor& other) {
  comm::Pending received, sent;
  if (other.numel() > 0) received = with.ranks.receive(other, with.from);
  if (own.numel() > 0) sent = with.ranks.send(own, with.to);
  received.wait();
  sent.wait();
}

// The sequences of data rank `data_rank`, which another rank holds.
Batch take_over_sequences(const Batch& own, const Neighbours& with, const Layout& layout, int data_rank,
                          int64_t micro_batch_size) {
  if (own.held.empty()) return own;  // all of them
  Batch other{own.num_sequences, own.seq_len, std::vector<int32_t>(own.tokens.size()), own.next,
              sequences_of(layout, data_rank, micro_batch_size)};
  const auto tensor_of = [](const std::vector<int32_t>& tokens) {
    return at::from_blob(const_cast<int32_t*>(tokens.data()), {std::ssize(tokens)}, at::kInt);
  };
  exchange(with, tensor_of(own.tokens), tensor_of(other.tokens));
  return other;
}

// Through the memory of the hosts, a message at a time.
void take_over_weights(const Tensor& own, const Tensor& other, const Neighbours& with) {
  const int64_t most = std::max(own.numel(), other.numel());
  for (int64_t at = 0; at < most; at += kMessageElements) {
    const auto part = [at](const Tensor& of) {
      const int64_t begin = std::min(at, of.numel());
      return of.narrow(0, begin, std::min(kMessageElements, of.numel() - begin));
    };
    const Tensor to = part(other), received = at::empty(to.sizes(), at::TensorOptions(to.scalar_type()));
    exchange(with, ops::fetch(part(own)), received);
    ops::send_bytes(to, received.data_ptr());
  }
}

std::vector<Microbatch> microbatches_of(const TrainState& s, const Batch& batch, int64_t step, const Layout& layout,
                                        int data_rank) {
  auto microbatches = split_batch(batch, s.config, s.data.eos_id, step, layout, data_rank);
  send_to(s.model.device(), microbatches);
  return microbatches;
}

// Returns where the first value came up that is not finite, as `watch` sees it, with the parts of layers.
std::optional<NotFiniteOrigin> run(TrainState& s, const std::vector<Microbatch>& microbatches, FiniteWatch& watch) {
  s.model.parameters.grad().zero_();
  watch.see_all(true);
  run_microbatches(s, microbatches);
  watch.see_all(false);
  s.model.parameters.grad().zero_();
  return find_origin(watch.first(), s.model.mesh, s.model.device());
}

std::optional<NotFiniteOrigin> with_other_sequences(TrainState& s, const RefusedStep& refused,
                                                    const StandIns& stand_ins) {
  const Mesh& mesh = s.model.mesh;
  const Layout& layout = mesh.layout();
  const int size = layout.data(), own = mesh.data_rank(), from = (own - stand_ins.shift + size) % size;
  const Neighbours with{mesh.host_group(GroupKind::kData), (own + stand_ins.shift) % size, from};
  const Batch batch = take_over_sequences(refused.batch, with, layout, from, s.config.train.micro_batch_size);
  return run(s, microbatches_of(s, batch, refused.step, layout, from), *refused.watch);
}

// A model in which this rank has another one's place.
struct SecondModel {
  SecondModel(TrainState& s, comm::World& world, const std::shared_ptr<FiniteWatch>& first_watch)
      : mesh(s.model.mesh.layout(), world), observers(s.observers) {
    mesh.use(s.model.device(), s.config.parallelism.device_sums);
    watch = std::make_shared<FiniteWatch>(mesh, s.model.device());
    watch->see_all(true);
    observers.remove(first_watch);
    observers.add(watch);
  }

  // Allocates the model. Sends nothing, so that a rank may fail alone.
  void make_model(const TrainState& s) {
    RunConfig config = s.config;
    if (config.moe.dispatch == DispatchKind::kAuto)
      config.moe.dispatch = DispatchKind::kAllToAll;  // the same bits, without measurements
    model = std::make_unique<ModelState>(config, mesh,
                                         ModelStateOptions{.device = s.model.device(), .observers = &observers});
  }

  void show_gradients() const {
    const auto& buckets = model->parameters.buckets();
    for (auto bucket = buckets.rbegin(); bucket != buckets.rend(); ++bucket) {
      const FlatRange range = bucket->range;
      observers.tell({bucket_place(model->parameters, *bucket), Observation::Phase::kReduce,
                      Observation::kAllMicrobatches, model->parameters.grad().narrow(0, range.begin, range.size())});
    }
  }

  Mesh mesh;
  Observers observers;
  std::shared_ptr<FiniteWatch> watch;
  std::unique_ptr<ModelState> model;
};

// Returns why a rank cannot have its second model; "" if all have theirs. Collective.
std::string make_second_models(SecondModel& second, const TrainState& s) {
  std::string reason;
  try {
    second.make_model(s);
  } catch (const std::exception& error) {
    reason = error.what();
  }
  comm::Communicator& all = s.model.mesh.host_group(GroupKind::kWorld);
  const Tensor fails = at::full({1}, reason.empty() ? 0 : 1, at::kLong);
  all.all_reduce(fails, comm::Reduction::kMax).wait();
  if (fails.item<int64_t>() == 0) return "";
  return "a node has no memory for the weights of another rank";
}

std::optional<NotFiniteOrigin> in_other_places(TrainState& s, const RefusedStep& refused, int shift,
                                               std::string& impossible) {
  comm::World& world = s.model.mesh.world();
  comm::RenumberedWorld renumbered(world, shift);
  SecondModel second(s, renumbered, refused.watch);
  impossible = make_second_models(second, s);
  if (!impossible.empty()) return std::nullopt;
  ModelState& model = *second.model;
  const Layout& layout = second.mesh.layout();
  const int size = world.size(), from = (world.rank() - shift + size) % size;
  const Neighbours with{s.model.mesh.host_group(GroupKind::kWorld), (world.rank() + shift) % size, from};
  s.model.gatherer.wait_all();  // on a device the update of the refused step was queued, and its gathers with it
  take_over_weights(s.model.parameters.compute(), model.parameters.compute(), with);
  if (s.model.previous_share.defined()) model.set_previous_share(s.model.previous_share);
  if (s.model.router_bias.defined()) model.set_router_bias(s.model.router_bias);
  const int data_rank = layout.data_rank(from);
  const Batch batch = take_over_sequences(refused.batch, with, layout, data_rank, s.config.train.micro_batch_size);
  second.observers.begin_gradients();
  model.pipeline.forward_backward(microbatches_of(s, batch, refused.step, layout, data_rank));
  second.show_gradients();
  second.observers.end_gradients();
  auto origin = find_origin(second.watch->first(), second.mesh, model.device());
  if (origin) origin->rank = renumbered.base_rank(origin->rank);
  return origin;
}

}  // namespace

std::optional<NotFiniteOrigin> compute_again_here(TrainState& s, const RefusedStep& refused) {
  const Mesh& mesh = s.model.mesh;
  const auto watch = refused.watch ? refused.watch : std::make_shared<FiniteWatch>(mesh, s.model.device());
  if (!refused.watch) s.observers.add(watch);
  auto origin = run(s, microbatches_of(s, refused.batch, refused.step, mesh.layout(), mesh.data_rank()), *watch);
  if (!refused.watch) s.observers.remove(watch);
  return origin;
}

ComputedAgain compute_again(TrainState& s, const RefusedStep& refused, const StandIns& stand_ins, int rank,
                            const RankNodes& nodes) {
  ComputedAgain result;
  result.origin = stand_ins.what == StandIns::TakesOver::kSequences
                      ? with_other_sequences(s, refused, stand_ins)
                      : in_other_places(s, refused, stand_ins.shift, result.impossible);
  const int own = s.model.mesh.rank();
  const bool here = result.origin && result.origin->is_here;
  const bool stands_in = own == stand_ins.stand_in_for(s.model.mesh.layout(), rank);
  const Tensor found =
      at::tensor({int64_t{here && stands_in}, int64_t{here && nodes.node_of(own) == nodes.node_of(rank)}});
  s.model.mesh.host_group(GroupKind::kWorld).all_reduce(found, comm::Reduction::kMax).wait();
  result.on_stand_in = found[0].item<int64_t>() == 1;
  result.on_node = found[1].item<int64_t>() == 1;
  return result;
}

namespace {

int on_ring(int place, int size) { return (place % size + size) % size; }

int shifted(const Layout& layout, const StandIns& stand_ins, int rank, int shift) {
  if (stand_ins.what == StandIns::TakesOver::kPlace) return on_ring(rank + shift, layout.world_size());
  return layout.group_of(GroupKind::kData,
                         rank)[static_cast<size_t>(on_ring(layout.data_rank(rank) + shift, layout.data()))];
}

// True if each data rank has the experts of the one whose sequences it takes over.
bool keeps_experts(const Layout& layout, const std::vector<int>& data_ranks, int shift) {
  const int size = layout.data();
  for (int d = 0; d < size; ++d) {
    const auto expert = [&](int at) {
      return layout.coordinate(data_ranks[static_cast<size_t>(at % size)], Axis::kExpert);
    };
    if (expert(d) != expert(d + shift)) return false;
  }
  return true;
}

}  // namespace

int StandIns::stand_in_for(const Layout& layout, int rank) const { return shifted(layout, *this, rank, shift); }

int StandIns::replaced_by(const Layout& layout, int rank) const { return shifted(layout, *this, rank, -shift); }

std::optional<StandIns> choose_stand_ins(const Layout& layout, const std::vector<int>& node_of_rank, int rank) {
  const auto node_of = [&](int each) { return node_of_rank[static_cast<size_t>(each)]; };
  const std::vector<int> data_ranks = layout.group_of(GroupKind::kData, rank);
  // A balance group is made of the sequences of consecutive data ranks, which have to stay together.
  for (int shift = layout.balance_ranks(); shift < layout.data(); shift += layout.balance_ranks()) {
    const int stand_in = data_ranks[static_cast<size_t>(on_ring(layout.data_rank(rank) + shift, layout.data()))];
    if (node_of(stand_in) != node_of(rank) && keeps_experts(layout, data_ranks, shift))
      return StandIns{StandIns::TakesOver::kSequences, shift};
  }
  for (int shift = 1; shift < layout.world_size(); ++shift) {
    if (node_of(on_ring(rank + shift, layout.world_size())) != node_of(rank))
      return StandIns{StandIns::TakesOver::kPlace, shift};
  }
  return std::nullopt;
}

}  // namespace athanor::inline watch
