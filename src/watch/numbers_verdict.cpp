#include "watch/numbers_verdict.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/exit_codes.h"
#include "ops/device_traits.h"

namespace athanor::inline watch {
namespace {

using Fault = NumbersVerdict::Fault;

// Whether the value came up, independently, on more than one node. Collective.
bool is_on_several_nodes(const Mesh& mesh, const RankNodes& nodes, bool is_here) {
  const int64_t node = nodes.node_of(mesh.rank());
  const Tensor most = at::tensor({is_here ? node : -1, is_here ? nodes.size() - node : -1});
  mesh.host_group(GroupKind::kWorld).all_reduce(most, comm::Reduction::kMax).wait();
  return nodes.size() - most[1].item<int64_t>() < most[0].item<int64_t>();
}

std::string ranks_text(const RankNodes& nodes, int rank) {
  return fmt::format("rank {} ({})", rank, nodes.name_of(nodes.node_of(rank)));
}

// The sequences of the origin's microbatch, as places in the batch.
std::string sequences_text(const TrainState& s, const NotFiniteOrigin& origin) {
  const Layout& layout = s.model.mesh.layout();
  const int data_rank = layout.data_rank(origin.rank);
  const auto& [size, whole] = std::pair(s.config.train.micro_batch_size, s.config.train.global_batch_size);
  const int64_t m = origin.seen.microbatch;
  if (m < 0) return fmt::format("the sequences of data rank {}", data_rank);
  const int64_t first = layout.first_sequence(data_rank, m);
  return size == 1 ? fmt::format("sequence {} of the step's {}", first, whole)
                   : fmt::format("sequences {} to {} of the step's {}", first, first + size - 1, whole);
}

// The second time the parts of layers were watched even if they were left out before, which name the place more
// exactly.
// @param rank  which did the work of the origin's rank then.
void name_part(NumbersVerdict& verdict, const std::optional<NotFiniteOrigin>& again, int rank,
               const RefusedStep& refused) {
  if (refused.watch->leaves_parts_out() && again && again->rank == rank) verdict.origin->seen = again->seen;
}

void judge(NumbersVerdict& verdict, const TrainState& s, const RefusedStep& refused, const ComputedAgain& again,
           const StandIns& stand_ins, const RankNodes& nodes) {
  const int rank = verdict.origin->rank, stand_in = stand_ins.stand_in_for(s.model.mesh.layout(), rank);
  const std::string there = ranks_text(nodes, stand_in);
  if (!again.impossible.empty()) {
    verdict.reason = fmt::format("the step could not be computed again on other nodes ({}), so that this is not proven",
                                 again.impossible);
  } else if (again.on_stand_in) {
    verdict.fault = Fault::kModel;
    name_part(verdict, again.origin, stand_in, refused);
    verdict.reason = fmt::format("it came up again when {} did the same work, so it is the model or its data, {}",
                                 there, sequences_text(s, *verdict.origin));
  } else if (again.on_node) {
    verdict.fault = Fault::kNode;
    verdict.reason = fmt::format(
        "all is finite when {} does the same work, and it came up on {} again in the work of another rank: {} computes "
        "wrong numbers",
        there, verdict.node, verdict.node);
  } else if (!again.origin) {
    verdict.fault = Fault::kNode;
    verdict.reason =
        fmt::format("all is finite when {} does the same work: {} computed wrong numbers", there, verdict.node);
  } else {
    verdict.reason = fmt::format("with {} doing the same work it came up on {} instead, so that nothing is proven",
                                 there, ranks_text(nodes, again.origin->rank));
  }
}

// With one node it can't be proven that it is not at fault, but the step can be computed there again.
void judge_on_one_node(NumbersVerdict& verdict, TrainState& s, const RefusedStep& refused) {
  const auto again = compute_again_here(s, refused);
  verdict.came_up_once = !again;
  if (!verdict.origin) {
    verdict.origin = again;
  } else {
    name_part(verdict, again, verdict.origin->rank, refused);
  }
  const bool alone = s.model.mesh.world().size() == 1;
  if (!alone) verdict.reason = "all ranks are on one node, so that it is not proven whether the node is at fault; ";
  const ops::DeviceTraits traits = ops::traits_of(s.model.device());
  const std::string& same = alone ? traits.part : traits.parts;
  verdict.reason +=
      again ? fmt::format("it comes up again when the step is computed again on the same {}", same)
            : fmt::format("all is finite when the step is computed again on the same {}: it came up once", same);
}

}  // namespace

int NumbersVerdict::exit_code() const {
  return fault == Fault::kNode ? exit_code::kNumbersOfANode : exit_code::kNumbersEverywhere;
}

NumbersVerdict find_fault(TrainState& s, const RefusedStep& refused) {
  const Mesh& mesh = s.model.mesh;
  const RankNodes nodes(mesh.world().hosts(), static_cast<int>(s.config.topology.ranks_per_node));
  s.model.parameters.grad().zero_();
  NumbersVerdict verdict;
  if (!refused.watch) {  // graphs are for one rank
    judge_on_one_node(verdict, s, refused);
    return verdict;
  }
  verdict.origin = find_origin(refused.watch->first(), mesh, s.model.device());
  if (!verdict.origin) return verdict;
  const int node = nodes.node_of(verdict.origin->rank);
  verdict.node = nodes.name_of(node);
  if (is_on_several_nodes(mesh, nodes, verdict.origin->is_here)) {
    verdict.fault = Fault::kModel;
    verdict.reason = "it came up on several nodes at once, so it is the model";
    if (refused.watch->leaves_parts_out())
      name_part(verdict, compute_again_here(s, refused), verdict.origin->rank, refused);
    return verdict;
  }
  const auto stand_ins = choose_stand_ins(mesh.layout(), nodes.node_of_ranks(), verdict.origin->rank);
  if (!stand_ins) {
    judge_on_one_node(verdict, s, refused);
    return verdict;
  }
  const ComputedAgain again = compute_again(s, refused, *stand_ins, verdict.origin->rank, nodes);
  judge(verdict, s, refused, again, *stand_ins, nodes);
  return verdict;
}

}  // namespace athanor::inline watch
