#include "run/validation_interval.h"

#include <algorithm>
#include <set>

#include "base/log.h"
#include "base/text.h"
#include "run/kept_defaults.h"

namespace athanor::inline run {
namespace {

std::vector<std::string> names_without_validation(const StageData& data) {
  std::set<std::string> with;
  for (const auto& source : data.validation) with.insert(source.name);
  std::vector<std::string> without;
  for (const auto& source : data.train.sources())
    if (!with.contains(source.name)) without.push_back(source.name);
  return without;
}

void tell_what_is_not_validated(const std::vector<StageData>& stages) {
  std::set<std::string> told;  // phases often have the same sources, and a ramp always
  for (const StageData& data : stages) {
    const auto without = names_without_validation(data);
    if (without.empty() || !told.insert(join(without)).second) continue;
    if (data.validation.empty())
      log::warn_on_all("no validation instances in {}{}, so it is not validated", join(without),
                       data.stage.name.empty() || data.stage.is_of_ramp ? "" : ", the data of " + data.stage.name);
    else
      log::warn_on_all("no validation split, so not in the validation loss: {}", join(without));
  }
}

}  // namespace

void settle_validation_interval(RunConfig& config, std::vector<StageData>& stages, const Team& team) {
  CountOrAuto& interval = config.train.validation_interval;
  const bool any = std::ranges::any_of(stages, [](const StageData& data) { return !data.validation.empty(); });
  if (interval.is_auto) {
    interval = any ? kDefaultValidationInterval : 0;
    keep_validation_interval(config, team);
  } else {
    ATHANOR_CHECK(any || interval.is_off(),
                  "train.validation_interval is {} but {} has no validation split; prepare it with "
                  "--validation-fraction 0.01, or set the interval to 0",
                  interval.count, join(names_without_validation(stages.front())));
  }
  for (StageData& data : stages) data.stage.config.train.validation_interval = interval;
  if (any && !interval.is_off()) tell_what_is_not_validated(stages);
}

}  // namespace athanor::inline run
