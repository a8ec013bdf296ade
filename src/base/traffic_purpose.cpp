#include "base/traffic_purpose.h"

namespace athanor {

const char* purpose_name(TrafficPurpose purpose) {
  switch (purpose) {
    case TrafficPurpose::kGradients: return "gradients";
    case TrafficPurpose::kWeights: return "weights";
    case TrafficPurpose::kLayers: return "layers";
    case TrafficPurpose::kVocabulary: return "vocabulary";
    case TrafficPurpose::kStages: return "stages";
    case TrafficPurpose::kTokens: return "tokens";
    case TrafficPurpose::kBalance: return "balance";
    case TrafficPurpose::kLosses: return "losses";
    case TrafficPurpose::kUpdates: return "updates";
  }
  return "";
}

}  // namespace athanor
