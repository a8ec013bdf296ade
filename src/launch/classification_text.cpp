// The two forms of a classification.

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "base/text.h"
#include "launch/classify.h"

namespace athanor::launch {
namespace {

// If the kind has another name than the cause: "code_bug (configuration)".
std::string cause_text(const CauseRow& row) {
  return row.name == std::string(row.kind) ? row.name : fmt::format("{} ({})", row.name, row.kind);
}

// Bytes that are no UTF-8 are shown as ?, since some terminals take the bytes 0x80 to 0x9f for control characters.
std::string shown_line(std::string text) {
  while (const auto at = find_invalid_utf8(text)) text[*at] = '?';
  for (size_t at = text.find("\xc2"); at != text.npos; at = text.find("\xc2", at + 1))
    if (static_cast<unsigned char>(text[at + 1]) < 0xa0) text.replace(at, 2, "?");
  return printable(text);
}

}  // namespace

std::string classification_text(const Classification& found) {
  const CauseRow& row = row_of(found.cause);
  std::string text = fmt::format("cause: {}\nverdict: {}\nhosts: {}\n", cause_text(row), name_of(row.verdict),
                                 found.hosts.empty() ? "none" : join(found.hosts, " "));
  for (const Suspect& each : found.suspects) text += fmt::format("suspect: {}: {}\n", each.host, each.reason);
  if (found.last_step) text += fmt::format("last step: {}\n", *found.last_step);
  text += fmt::format("action: {}\n", row.action);
  for (const Evidence& each : found.evidence)
    text += each.line == 0 ? fmt::format("evidence: {}\n", each.text)
                           : fmt::format("evidence: line {}: {}\n", each.line, shown_line(each.text));
  return text;
}

nlohmann::ordered_json classification_json(const Classification& found, std::optional<int> exit_code) {
  const CauseRow& row = row_of(found.cause);
  nlohmann::ordered_json evidence = nlohmann::ordered_json::array();
  for (const Evidence& each : found.evidence)
    evidence.push_back({{"line", each.line}, {"text", each.text}, {"signature", each.signature}});
  nlohmann::ordered_json suspects = nlohmann::ordered_json::array(), reasons = nlohmann::ordered_json::object();
  for (const Suspect& each : found.suspects) {
    suspects.push_back(each.host);
    reasons[each.host] = each.reason;
  }
  nlohmann::ordered_json json{{"format", 1},
                              {"exit_code", exit_code ? nlohmann::ordered_json(*exit_code) : nlohmann::ordered_json()},
                              {"cause", row.name},
                              {"kind", row.kind},
                              {"verdict", name_of(row.verdict)},
                              {"hosts", found.hosts},
                              {"suspects", std::move(suspects)},
                              {"suspect_reasons", std::move(reasons)},
                              {"action", row.action},
                              {"time_may_cure", name_of(row.time)},
                              {"swap_may_cure", name_of(row.swap)}};
  json["last_step"] = found.last_step ? nlohmann::ordered_json(*found.last_step) : nlohmann::ordered_json();
  json["lines"] = found.num_lines;
  json["bytes"] = found.num_bytes;
  json["evidence"] = std::move(evidence);
  return json;
}

}  // namespace athanor::launch
