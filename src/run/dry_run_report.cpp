// Prints a dry run as text and as JSON.

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "arch/inventory.h"
#include "base/text.h"
#include "layout/optimizer_lines.h"
#include "layout/stages.h"
#include "run/dry_run.h"

namespace athanor::inline run {
namespace {

std::string bytes(double value) { return format_bytes(value); }

std::string where(const DryRun& run, const Layout& layout) {
  std::vector<std::string> at;
  for (const Axis axis : {Axis::kPipeline, Axis::kReplicate, Axis::kShard, Axis::kExpert, Axis::kTensor})
    at.push_back(fmt::format("{} {}", axis_name(axis), layout.coordinate(run.rank, axis)));
  return join(at);
}

std::string stages_text(const DryRun& run, const RunConfig& config, const Layout& layout) {
  std::vector<std::string> stages;
  for (const StageLayers& s :
       stages_of(config.model, config.parallelism, layout.coordinate(run.rank, Axis::kPipeline))) {
    stages.push_back(fmt::format("{}layers {} to {}{}", s.embeds ? "embedding, " : "", s.first, s.end - 1,
                                 s.has_head ? ", norm and output" : ""));
  }
  return join(stages, "; ");
}

std::string line(const std::string& name, double value, const std::string& remark = "") {
  return fmt::format("  {:<34}{:>12}{}\n", name, bytes(value), remark.empty() ? "" : "   " + remark);
}

// Returns "data 1.13GiB, pipeline (3) 384.00MiB": by group, with the number of its communicators if there are several.
std::string describe_opened(const DryRun& run) {
  std::vector<std::string> groups;
  for (const OpenedGroup& group : run.opened) {
    const std::string several = group.communicators > 1 ? fmt::format(" ({})", group.communicators) : "";
    groups.push_back(fmt::format("{}{} {}", group_name(group.group), several, bytes(group.bytes)));
  }
  return join(groups);
}

std::string memory_table(const DryRun& run, const RunConfig& config) {
  const MemoryNeed& need = run.need;
  const std::string again =
      config.parallelism.recompute.empty() ? "" : "; computed again: " + join(config.parallelism.recompute);
  std::string text =
      run.on_device ? fmt::format("memory of the rank's device ({})\n", config.train.device.word()) : "memory\n";
  text += line("weights", static_cast<double>(run.state.weights), config.train.dtype);
  text += line("rest of the master", static_cast<double>(run.state.master), "the lower bits of fp32, of what is owned");
  text += line("moments", static_cast<double>(run.state.optimizer), "fp32, of what is owned");
  text += line("gradients", static_cast<double>(run.state.gradient), "fp32");
  text += line("activations kept", need.activation_bytes - run.batch_bytes,
               fmt::format("{} microbatch{} in flight at most{}", run.in_flight, run.in_flight > 1 ? "es" : "", again));
  text += line(
      "activations that come and go", need.transient_bytes,
      run.on_device ? "with what attention takes in backward" : fmt::format("scratch of {} thread(s)", run.threads));
  text += line("tokens and targets of a step", run.batch_bytes);
  const auto in_place_of_activations = [&](const std::string& name, double held, const std::string& what) {
    const bool counts = held > need.activation_bytes + need.transient_bytes &&
                        held >= std::max(need.update_bytes, run.measured_update_bytes);
    if (held > 0)
      text += line(name, held, fmt::format("{}; in {}place of activations", what, counts ? "the total in " : ""));
  };
  in_place_of_activations("in the update, for a time", need.update_bytes, "matrices at their home");
  in_place_of_activations("in a measured update, for a time", run.measured_update_bytes,
                          "metrics.update_watch_interval");
  if (need.graph_bytes > 0)
    text += line("next to the recorded graph", need.graph_bytes, "the graph keeps a microbatch's activations");
  if (run.on_device) {
    text += line("buffers of communicators", need.communicator_bytes, describe_opened(run));
    text += line("kept by the allocator", need.allocator_bytes, "a tenth of what comes and goes");
    if (need.workspace_bytes > 0) text += line("workspaces of cuBLAS", need.workspace_bytes);
  }
  if (run.staging_bytes > 0 && !run.on_device)
    text += line("copy for checkpoints", run.staging_bytes, "checkpoint.async; fp32, of what this rank writes");
  text += line("total", run.total_bytes());
  if (run.staging_bytes > 0 && run.on_device)
    text += line("of the host: copy for checkpoints", run.staging_bytes,
                 "checkpoint.async; fp32, of what this rank writes");
  if (run.local_bytes > 0)
    text += line("of local_dir: local checkpoints", run.local_bytes,
                 run.local_bytes > 2 * run.staging_bytes ? "two, with copies of another node's" : "two");
  return text;
}

// One line for each value of checkpoint.writers: jobs have thousands of nodes.
std::string checkpoint_table(const DryRun& run, const RunConfig& config) {
  if (run.written_by_node.empty()) return "";
  std::string text = fmt::format("\nbytes of a full checkpoint by node\n  {:<14}{:>8}{:>14}{:>12}{:>12}{:>12}\n",
                                 "writers", "nodes", "that write", "least", "most", "together");
  for (const auto& [writers, nodes] : run.written_by_node) {
    const auto [least, most] = std::ranges::minmax_element(nodes);
    text += fmt::format("  {:<14}{:>8}{:>14}{:>12}{:>12}{:>12}{}\n", writers, nodes.size(),
                        std::ranges::count_if(nodes, [](double written) { return written > 0; }), bytes(*least),
                        bytes(*most), bytes(std::accumulate(nodes.begin(), nodes.end(), 0.0)),
                        writers == config.checkpoint.writers.word() ? "   as configured" : "");
  }
  return text;
}

std::string held_table(const DryRun& run, const RunConfig& config) {
  int64_t total = 0;
  std::string text = "parameters\n";
  for (const auto& [replication, elements] : run.held) {
    text += fmt::format("  {:<34}{:>20}\n", replication.name(), format_thousands(static_cast<double>(elements)));
    total += elements;
  }
  return text + fmt::format("  {:<34}{:>20}   of {} in the model, in {} buckets of {:.3g} MB or a parameter\n", "held",
                            format_thousands(static_cast<double>(total)),
                            format_thousands(static_cast<double>(count_parameters(config.model))), run.num_buckets,
                            config.parallelism.bucket_mb);
}

std::string optimizer_lines(const RunConfig& config) {
  std::string text;
  for (const std::string& line : describe_optimizers(config)) text += "  " + line + "\n";
  return text.empty() ? "" : "\noptimizers of the whole model\n" + text;
}

std::string traffic_table(const DryRun& run) {
  std::string text =
      fmt::format("sent in a step by this rank\n  {:<14}{:<16}{:<18}{:>7}{:>10}{:>12}{:>12}{:>12}{:>11}\n", "what",
                  "collective", "group", "ranks", "calls", "bytes", "inside", "outside", "in flight");
  SentLine sum{.what = "together"};
  const auto row = [](const SentLine& l) {
    const std::string ranks = l.ranks > 0 ? std::to_string(l.ranks) : "";
    const std::string in_flight = l.in_flight > 0 ? fmt::format("{:>11}", l.in_flight) : "";
    return fmt::format("  {:<14}{:<16}{:<18}{:>7}{:>10.0f}{:>12}{:>12}{:>12}{}\n", l.what, l.collective, l.group, ranks,
                       l.calls, bytes(l.bytes), bytes(l.inside), bytes(l.bytes - l.inside), in_flight);
  };
  for (const SentLine& l : run.sent) {
    text += row(l);
    sum.calls += l.calls, sum.bytes += l.bytes, sum.inside += l.inside;
  }
  sum.ranks = 0;
  return text + row(sum);
}

}  // namespace

std::string report(const DryRun& run, const RunConfig& config, int num_ranks) {
  const Layout layout(config, num_ranks);
  std::string text = fmt::format(
      "{} ranks: pipeline {} x replicate {} x shard {} x tensor {}, expert {}; sharding {}; {} microbatches of {} x {} "
      "tokens, schedule {}\n",
      num_ranks, layout.pipeline(), layout.replicate(), layout.shard(), layout.tensor(), layout.expert(),
      config.parallelism.sharding.word(), layout.microbatches(), config.train.micro_batch_size, config.data.seq_len,
      layout.pipeline() > 1 ? config.parallelism.pipeline_schedule.word() : "none");
  if (config.topology.ranks_per_node == 0 && num_ranks > 1)
    text += fmt::format(
        "all {} ranks are taken to be on one node, since topology.ranks_per_node is not set; with it, what is sent "
        "between nodes and written by each is counted\n",
        num_ranks);
  text += fmt::format("a step computes {:.4g} TFLOP for the model, {:.4g} with what backward computes again\n",
                      run.model_flops * 1e-12, run.executed_flops * 1e-12);
  text += fmt::format("rank {}: {}; {}\n\n", run.rank, where(run, layout), stages_text(run, config, layout));
  return text + held_table(run, config) + optimizer_lines(config) + "\n" + memory_table(run, config) + "\n" +
         traffic_table(run) + checkpoint_table(run, config);
}

std::string to_json(const DryRun& run, const RunConfig& config, int num_ranks) {
  const Layout layout(config, num_ranks);
  nlohmann::ordered_json out;
  out["ranks"] = num_ranks;
  const int64_t per_node = config.topology.ranks_per_node;
  out["nodes"] = per_node > 0 ? num_ranks / per_node : 1;
  out["model_flops"] = run.model_flops;
  out["executed_flops"] = run.executed_flops;
  out["rank"] = run.rank;
  for (const Axis axis : {Axis::kPipeline, Axis::kReplicate, Axis::kShard, Axis::kExpert, Axis::kTensor})
    out["coordinates"][axis_name(axis)] = layout.coordinate(run.rank, axis);
  for (const auto& [replication, elements] : run.held) out["held_elements"][replication.name()] = elements;
  out["buckets"] = run.num_buckets;
  out["optimizers"] = describe_optimizers(config);
  auto& memory = out["memory_bytes"];
  memory["weights"] = run.state.weights;
  memory["master"] = run.state.master;
  memory["moments"] = run.state.optimizer;
  memory["gradients"] = run.state.gradient;
  memory["activations_kept"] = run.need.activation_bytes;
  memory["activations_transient"] = run.need.transient_bytes;
  memory["update_transient"] = run.need.update_bytes;
  memory["measured_update_transient"] = run.measured_update_bytes;
  memory["next_to_graph"] = run.need.graph_bytes;
  if (run.on_device) {
    memory["communicators"] = run.need.communicator_bytes;
    memory["allocator"] = run.need.allocator_bytes;
    memory["workspaces"] = run.need.workspace_bytes;
  }
  memory["total"] = run.total_bytes();
  (run.on_device ? out["host_memory_bytes"] : memory)["copy_for_checkpoints"] = run.staging_bytes;
  if (run.local_bytes > 0) out["local_checkpoints_bytes"] = run.local_bytes;
  for (const auto& [writers, nodes] : run.written_by_node) out["checkpoint_bytes_by_node"][writers] = nodes;
  for (const OpenedGroup& group : run.opened) out["communicator_bytes"][group_name(group.group)] = group.bytes;
  out["in_flight"] = run.in_flight;
  for (const SentLine& l : run.sent) {
    out["sent"].push_back({{"what", l.what},
                           {"collective", l.collective},
                           {"group", l.group},
                           {"ranks", l.ranks},
                           {"calls", l.calls},
                           {"bytes", l.bytes},
                           {"inside", l.inside},
                           {"in_flight", l.in_flight}});
  }
  for (const auto& [group, most] : run.collectives_in_flight()) out["collectives_in_flight"][group] = most;
  return out.dump(2) + "\n";
}

}  // namespace athanor::inline run
