#include "board/node_report.h"

#include <cmath>

#include "base/bounded_json.h"
#include "base/error.h"

namespace athanor::board {
namespace {

using nlohmann::ordered_json;

ordered_json json_of(const RankReport& rank) {
  ordered_json json{{"rank", rank.rank},       {"process", rank.process}, {"state", rank.state},
                    {"attempt", rank.attempt}, {"step", rank.step},       {"phase", rank.phase}};
  if (rank.microbatch >= 0) json["microbatch"] = rank.microbatch;
  json["phase_s"] = rounded(rank.phase_s);
  json["change_s"] = rounded(rank.change_s);
  if (rank.gone_s) json["gone_s"] = rounded(*rank.gone_s);
  if (rank.torn) json["torn"] = true;
  if (const auto& waits = rank.waits) {
    json["waits"] = {{"group", waits->group}, {"name", waits->name}, {"number", waits->number}, {"call", waits->call}};
    if (waits->peer >= 0) json["waits"]["peer"] = waits->peer;
  }
  json["groups"] = ordered_json::array();
  for (const auto& group : rank.groups)
    json["groups"].push_back(ordered_json::array({group.group, group.name, group.size, group.started}));
  return json;
}

RankReport rank_of(const nlohmann::json& json) {
  RankReport rank;
  json.at("rank").get_to(rank.rank);
  json.at("process").get_to(rank.process);
  json.at("state").get_to(rank.state);
  json.at("attempt").get_to(rank.attempt);
  json.at("step").get_to(rank.step);
  json.at("phase").get_to(rank.phase);
  rank.microbatch = json.value("microbatch", -1);
  json.at("phase_s").get_to(rank.phase_s);
  json.at("change_s").get_to(rank.change_s);
  if (json.contains("gone_s")) rank.gone_s = json.at("gone_s").get<double>();
  rank.torn = json.value("torn", false);
  if (json.contains("waits")) {
    const auto& waits = json.at("waits");
    rank.waits =
        WaitReport{waits.at("group"), waits.at("name"), waits.at("number"), waits.at("call"), waits.value("peer", -1)};
  }
  for (const auto& group : json.at("groups"))
    rank.groups.push_back({group.at(0), group.at(1), group.at(2), group.at(3)});
  return rank;
}

}  // namespace

double rounded(double seconds) { return std::round(seconds * 1000) / 1000; }

ordered_json to_json(const NodeReport& report) {
  ordered_json json{{"format", kReportFormat},         {"node", report.node},
                    {"job_ranks", report.job_ranks},   {"written", report.written},
                    {"interval_s", report.interval_s}, {"ranks", ordered_json::array()}};
  for (const RankReport& rank : report.ranks) json["ranks"].push_back(json_of(rank));
  return json;
}

NodeReport parse_node_report(const std::string& text, const std::string& file) {
  const nlohmann::json json = parse_json(text, file);
  try {
    const int format = json.at("format");
    if (format != kReportFormat)
      fail<DataError>("{}: format {}, but this version reads {}; use the version that trains", file, format,
                      kReportFormat);
    NodeReport report;
    json.at("node").get_to(report.node);
    json.at("job_ranks").get_to(report.job_ranks);
    json.at("written").get_to(report.written);
    json.at("interval_s").get_to(report.interval_s);
    for (const auto& rank : json.at("ranks")) report.ranks.push_back(rank_of(rank));
    return report;
  } catch (const nlohmann::json::exception& error) {
    fail<DataError>("{}: {}", file, json_error_reason(error.what()));
  }
}

}  // namespace athanor::board
