#include "smoke/smoke_trace.h"

#include <algorithm>
#include <bit>
#include <charconv>

#include "base/bounded_json.h"
#include "base/error.h"
#include "base/text.h"
#include "smoke/lines_trace.h"

namespace athanor::inline smoke {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kFormat = "athanor-smoke-trace 2";

// Facts have what the system tells, in any bytes.
std::string dump(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

bool reads_as(const std::string& text, int64_t& number) {
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && at == end;
}

std::string text_of(const TracedModel& model) {
  std::vector<std::string> lines;
  for (const TracedTensor& tensor : model.tensors) lines.push_back(dump(tensor));
  return fmt::format("{{\"name\": {}, \"tensors\": [\n{}]}}", dump(model.name), join(lines, ",\n"));
}

}  // namespace

std::string TracedPlace::text() const { return fmt::format("{}:{}:{}:{}", model, step, phase, name); }

TracedPlace TracedPlace::parse(const std::string& text) {
  std::vector<std::string> parts;
  size_t at = 0;
  while (parts.size() < 3 && text.find(':', at) != std::string::npos) {
    const size_t end = text.find(':', at);
    parts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  parts.push_back(text.substr(at));
  TracedPlace place;
  const bool is_whole = parts.size() == 4 && std::ranges::none_of(parts, &std::string::empty);
  ATHANOR_CHECK(is_whole && reads_as(parts[1], place.step) && place.step >= 0,
                "--trace-tensor {}: expected MODEL:STEP:PHASE:NAME, such as dense:3:forward.0:model.layers.1.mlp; "
                "`athanor smoke --trace FILE` lists all",
                printable(text));
  place.model = parts[0], place.phase = parts[2], place.name = parts[3];
  return place;
}

size_t SmokeTrace::num_tensors() const {
  size_t count = 0;
  for (const TracedModel& model : models) count += model.tensors.size();
  return count;
}

const TracedModel* SmokeTrace::find_model(const std::string& name) const {
  const auto found = std::ranges::find(models, name, &TracedModel::name);
  return found == models.end() ? nullptr : &*found;
}

std::string text_of(const SmokeTrace& trace) {
  std::vector<std::string> models;
  for (const TracedModel& model : trace.models) models.push_back(text_of(model));
  std::vector<uint64_t> bits;
  for (const double value : trace.values) bits.push_back(std::bit_cast<uint64_t>(value));
  return fmt::format("{{\"format\": {},\n\"facts\": {},\n\"models\": [\n{}],\n\"values\": {}}}\n", dump(kFormat),
                     dump(trace.facts), join(models, ",\n"), dump(bits));
}

SmokeTrace parse_trace(std::string_view text, const std::string& name) {
  if (!text.starts_with('{')) return parse_lines_trace(text, name);
  const Json root = parse_json(text, name);
  try {
    ATHANOR_CHECK_DATA(root.at("format") == kFormat, "{}: its format is {}, and this build reads {}", name,
                       printable(root.at("format").get<std::string>()), kFormat);
    SmokeTrace trace;
    root.at("facts").get_to(trace.facts);
    for (const Json& model : root.at("models"))
      trace.models.push_back(
          {model.at("name").get<std::string>(), model.at("tensors").get<std::vector<TracedTensor>>()});
    for (const Json& bits : root.at("values"))
      trace.values.push_back(std::bit_cast<double>(bits.get_ref<const uint64_t&>()));
    return trace;
  } catch (const Json::exception&) {
    fail<DataError>("{}: this is no trace of `athanor smoke`", name);
  }
}

}  // namespace athanor::inline smoke
