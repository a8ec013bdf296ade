#include "board/publisher.h"

#include <algorithm>
#include <cstring>

#include "base/hash.h"

namespace athanor::board {
namespace {

// Zero means that there is no group.
uint64_t identity_of(std::string_view name, std::span<const int> members, std::string_view kind) {
  std::string text(name);
  text.append(1, '\0').append(kind).append(1, '\0');
  text.append(reinterpret_cast<const char*>(members.data()), members.size_bytes());
  return std::max<uint64_t>(hash_u64(text), 1);
}

}  // namespace

int Publisher::add_group(std::string_view name, std::span<const int> members, std::string_view kind) const {
  if (!record_) return -1;
  uint64_t identity = identity_of(name, members, kind);
  const auto is_taken = [&](const GroupName& group) { return group.identity == identity; };
  // A second group with equal members is another one, and the second one on every rank.
  while (std::any_of(std::begin(record_->groups), std::end(record_->groups), is_taken)) ++identity;
  for (uint32_t i = 0; i < kMaxGroups; ++i) {
    GroupName& group = record_->groups[i];
    if (group.identity.load(std::memory_order_relaxed) != 0) continue;
    group.size = static_cast<int32_t>(members.size());
    std::memset(group.name, 0, sizeof(group.name));
    name.copy(group.name, sizeof(group.name) - 1);
    record_->started[i].store(0, std::memory_order_relaxed);
    group.identity.store(identity, std::memory_order_release);
    return static_cast<int>(i);
  }
  return -1;
}

}  // namespace athanor::board
