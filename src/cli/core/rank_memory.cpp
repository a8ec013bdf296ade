#include "plan/rank_memory.h"

#include "cli/core.h"

ATHANOR_CORE_ENTRY(rank_memory) {
  using namespace athanor;
  const auto& asked = *static_cast<const RankMemoryArguments*>(arguments);
  const PlannedPlace place = planned_place(asked.config, asked.layout.world_size());
  for (const int rank : asked.ranks) asked.needs.push_back(memory_of_rank(asked.config, asked.layout, rank, place));
  return 0;
}
