#include "layout/replication.h"

namespace athanor::inline layout {

std::optional<GroupKind> Replication::replicas() const {
  switch (kind) {
    case kDense:
    case kExpert: return std::nullopt;
    case kKeyValue: return GroupKind::kKeyValue;
    case kPartial:
    case kReplicated: return GroupKind::kTensor;
    case kTied: return GroupKind::kTied;
  }
  return std::nullopt;
}

bool Replication::replicas_add() const { return kind == kKeyValue || kind == kPartial || kind == kTied; }

const char* Replication::name() const {
  switch (kind) {
    case kDense: return "dense";
    case kExpert: return "expert";
    case kKeyValue: return "key_value";
    case kPartial: return "partial";
    case kReplicated: return "replicated";
    case kTied: return "tied";
  }
  return "";
}

}  // namespace athanor::inline layout
