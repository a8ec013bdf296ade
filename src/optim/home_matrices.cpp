#include "optim/home_matrices.h"

#include <algorithm>
#include <map>

#include "comm/watches.h"

namespace athanor::inline optim {
namespace {

// One exchange of a group: the views that go to each rank, and those that are filled by each.
struct Exchange {
  explicit Exchange(comm::Communicator& group)
      : ranks(group), sends(static_cast<size_t>(group.size())), receives(sends.size()) {}

  void send(int to, const Tensor& view) { sends[static_cast<size_t>(to)].push_back(view); }
  void receive(int from, const Tensor& view) { receives[static_cast<size_t>(from)].push_back(view); }
  void run(const at::TensorOptions& options) const;

  comm::Communicator& ranks;
  std::vector<std::vector<Tensor>> sends, receives;
};

std::vector<int64_t> counts_of(const std::vector<std::vector<Tensor>>& views) {
  std::vector<int64_t> counts;
  for (const auto& of_rank : views) {
    int64_t count = 0;
    for (const Tensor& view : of_rank) count += view.numel();
    counts.push_back(count);
  }
  return counts;
}

void Exchange::run(const at::TensorOptions& options) const {
  if (ranks.size() == 1) return;
  std::vector<Tensor> all;
  for (const auto& of_rank : sends)
    for (const Tensor& view : of_rank) all.push_back(view.reshape({-1}));
  const Tensor in = all.empty() ? at::empty({0}, options) : at::cat(all);
  const auto in_counts = counts_of(sends), out_counts = counts_of(receives);
  int64_t total = 0;
  for (const int64_t count : out_counts) total += count;
  const Tensor out = at::empty({total}, options);
  const comm::SendsFor purpose(TrafficPurpose::kUpdates);
  ranks.all_to_all(out, in, out_counts, in_counts).wait();
  int64_t at = 0;
  for (const auto& of_rank : receives) {
    for (const Tensor& view : of_rank) {
      view.copy_(out.narrow(0, at, view.numel()).view(view.sizes()));
      at += view.numel();
    }
  }
}

// The values of one update on this rank.
class Values {
 public:
  Values(const HomePlan& plan, const Tensor& flat) : plan_(plan), flat_(flat) {
    wholes_.resize(plan.matrices.size());
    held_.resize(plan.matrices.size());
    make_stacks();
    make_parts();
  }

  const std::vector<HomeStack>& stacks() const { return stacks_; }

  // A piece of flat memory, if another rank is the home; or the same piece of this rank's part.
  Tensor in_flat(FlatRange range) const { return flat_.narrow(0, range.begin, range.size()); }
  Tensor in_part(size_t matrix, FlatRange range) const {
    const FlatRange held = plan_.matrices[matrix].held;
    return held_[matrix].narrow(0, range.begin - held.begin, range.size());
  }
  Tensor part(size_t matrix) const { return held_[matrix]; }
  bool has_part(size_t matrix) const { return held_[matrix].defined(); }
  // The part of a tensor rank, of a matrix of which this rank is the home.
  Tensor part_of_whole(size_t matrix, int tensor_rank) const {
    const HomeMatrix& of = plan_.matrices[matrix];
    if (of.cut_dim < 0) return wholes_[matrix];
    const TensorPart& part = of.parts[static_cast<size_t>(tensor_rank)];
    return wholes_[matrix].narrow(of.cut_dim, part.begin, part.size);
  }

 private:
  void make_stacks() {
    std::map<std::pair<int64_t, int64_t>, std::vector<size_t>> by_shape;
    for (size_t m = 0; m < plan_.matrices.size(); ++m) {
      const HomeMatrix& matrix = plan_.matrices[m];
      if (plan_.is_home(matrix)) by_shape[{matrix.rows, matrix.columns}].push_back(m);
    }
    for (const auto& [shape, matrices] : by_shape) {
      HomeStack stack{at::empty({std::ssize(matrices), shape.first, shape.second}, flat_.options()), {}};
      for (size_t i = 0; i < matrices.size(); ++i) {
        wholes_[matrices[i]] = stack.values[static_cast<int64_t>(i)];
        stack.entries.push_back(plan_.matrices[matrices[i]].entry);
      }
      stacks_.push_back(std::move(stack));
    }
  }

  // The parts on the home's data rank: in the whole matrix, if they are all of it.
  void make_parts() {
    for (size_t m = 0; m < plan_.matrices.size(); ++m) {
      const HomeMatrix& matrix = plan_.matrices[m];
      if (matrix.home_data != plan_.data_index) continue;
      held_[m] = plan_.is_home(matrix) && matrix.cut_dim < 0 ? wholes_[m].view({-1})
                                                             : at::empty({matrix.held.size()}, flat_.options());
    }
  }

  const HomePlan& plan_;
  const Tensor& flat_;
  std::vector<HomeStack> stacks_;
  std::vector<Tensor> wholes_, held_;  // by matrix; undefined if they are elsewhere
};

// What this rank owns of the parts whose home is at its data rank: from flat memory to the parts, or back.
void copy_owned(const HomePlan& plan, const std::vector<OwnedRange>& owned, const Values& values, bool to_parts) {
  for (size_t m = 0; m < plan.matrices.size(); ++m) {
    if (!values.has_part(m)) continue;
    const FlatRange held = plan.matrices[m].held;
    auto each = std::ranges::upper_bound(owned, held.begin, {}, [](const OwnedRange& o) { return o.flat.end; });
    for (; each != owned.end() && each->flat.begin < held.end; ++each) {
      const FlatRange common = intersect(each->flat, held);
      const Tensor flat = values.in_flat(common), part = values.in_part(m, common);
      to_parts ? part.copy_(flat) : flat.copy_(part);
    }
  }
}

void copy_part_of_home(const HomePlan& plan, const Values& values, bool to_whole) {
  for (size_t m = 0; m < plan.matrices.size(); ++m) {
    const HomeMatrix& matrix = plan.matrices[m];
    if (!plan.is_home(matrix) || matrix.cut_dim < 0) continue;
    const Tensor whole = values.part_of_whole(m, plan.tensor_index), part = values.part(m).view(whole.sizes());
    to_whole ? whole.copy_(part) : part.copy_(whole);
  }
}

}  // namespace

HomePlan HomeMatrices::plan(const std::vector<const BucketEntry*>& entries) const {
  const auto selects = [&](const BucketEntry& entry) { return std::ranges::find(entries, &entry) != entries.end(); };
  return plan_homes(
      {store_.table(), store_.buckets(), shards_.mesh().layout(), shards_.mesh().rank(), shards_.kind(), selects});
}

void HomeMatrices::update(const HomePlan& plan, const Tensor& flat,
                          const std::function<void(std::span<const HomeStack>)>& compute) const {
  const at::NoGradGuard no_grad;
  comm::Communicator &data = shards_.mesh().group(GroupKind::kData), &tensor = shards_.mesh().group(GroupKind::kTensor);
  const Values values(plan, flat);
  Exchange to_data(data), to_tensor(tensor), from_tensor(tensor), from_data(data);
  for (const auto& [from, to, matrix, range] : plan.to_home_data)
    from == plan.data_index ? to_data.send(to, values.in_flat(range))
                            : to_data.receive(from, values.in_part(matrix, range));
  to_data.run(flat.options());
  copy_owned(plan, store_.owned(), values, /*to_parts=*/true);
  for (const auto& [from, to, matrix, range] : plan.to_home_tensor)
    from == plan.tensor_index ? to_tensor.send(to, values.part(matrix))
                              : to_tensor.receive(from, values.part_of_whole(matrix, from));
  to_tensor.run(flat.options());
  copy_part_of_home(plan, values, /*to_whole=*/true);

  if (!values.stacks().empty()) compute(values.stacks());

  copy_part_of_home(plan, values, /*to_whole=*/false);
  for (const auto& [from, to, matrix, range] : plan.from_home_tensor)
    from == plan.tensor_index ? from_tensor.send(to, values.part_of_whole(matrix, to))
                              : from_tensor.receive(from, values.part(matrix));
  from_tensor.run(flat.options());
  copy_owned(plan, store_.owned(), values, /*to_parts=*/false);
  for (const auto& [from, to, matrix, range] : plan.from_home_data)
    from == plan.data_index ? from_data.send(to, values.in_part(matrix, range))
                            : from_data.receive(from, values.in_flat(range));
  from_data.run(flat.options());
}

}  // namespace athanor::inline optim
