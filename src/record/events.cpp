#include "record/events.h"

#include "record/json_lines.h"

namespace athanor::inline record {

std::string Event::text(const char* member) const {
  const auto found = line.find(member);
  if (found == line.end()) return "";
  return found->is_string() ? found->get<std::string>() : found->is_number() ? found->dump() : "";
}

int64_t Event::integer(const char* member, int64_t otherwise) const { return integer_in(line, member, otherwise); }

void for_each_event(const std::filesystem::path& file, uint64_t begin, const std::function<void(const Event&)>& take) {
  for_each_object(file, begin, [&](nlohmann::json&& line) {
    const auto kind = line.find("event");
    if (kind == line.end() || !kind->is_string() || kind->get_ref<const std::string&>().empty()) return;
    Event event{*kind, integer_in(line, "step"), integer_in(line, "attempt"), number_in(line, "time", 0), {}};
    event.line = std::move(line);
    take(event);
  });
}

}  // namespace athanor::inline record
