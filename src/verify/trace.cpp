#include "verify/trace.h"

#include <algorithm>
#include <cstring>

#include "base/bounded_json.h"
#include "base/files.h"
#include "base/hash.h"

namespace athanor::inline verify {
namespace fs = std::filesystem;
namespace {

using Json = nlohmann::json;

// The format of a file: the length of its JSON (u64), the JSON, the values of all pieces as fp32.

std::string key_of(int64_t step, const std::string& tensor) { return fmt::format("{} {}", step, tensor); }

Json to_json(const StepNumbers& n) {
  return {{"loss", n.loss},       {"aux", n.aux},        {"z", n.z},
          {"entropy", n.entropy}, {"norm", n.grad_norm}, {"lr", n.lr},
          {"targets", n.targets}, {"chosen", n.chosen},  {"taken", n.taken},
          {"moved", n.moved},     {"dropped", n.dropped}};
}

// JSON has no infinities: they are read back as null.
double number_of(const Json& json) { return json.is_null() ? std::nan("") : json.get<double>(); }

StepNumbers from_json(const Json& json) {
  StepNumbers n;
  n.loss = number_of(json.at("loss")), n.aux = number_of(json.at("aux")), n.z = number_of(json.at("z"));
  n.entropy = number_of(json.at("entropy")), n.grad_norm = number_of(json.at("norm")), n.lr = number_of(json.at("lr"));
  n.targets = json.at("targets");
  n.chosen = json.at("chosen").get<std::vector<int64_t>>(), n.taken = json.at("taken").get<std::vector<int64_t>>();
  n.moved = json.at("moved").get<std::vector<int64_t>>(), n.dropped = json.at("dropped").get<std::vector<int64_t>>();
  return n;
}

std::vector<int64_t> list_of(const Tensor& counts) {
  const Tensor flat = counts.contiguous();
  return {flat.const_data_ptr<int64_t>(), flat.const_data_ptr<int64_t>() + flat.numel()};
}

}  // namespace

StepNumbers numbers_of(const StepReport& report) {
  const LossNumbers& parts = report.parts;
  StepNumbers n;
  n.targets = parts.num_targets;
  n.loss = parts.mean_loss();
  n.aux = parts.aux_sum, n.z = parts.z_sum;
  n.grad_norm = report.grad_norm, n.lr = report.lr;
  if (parts.routers.defined()) {
    n.entropy = parts.routers.entropy_sum.sum().item<double>();
    n.chosen = list_of(parts.routers.chosen), n.taken = list_of(parts.routers.taken);
    n.moved = list_of(parts.routers.moved), n.dropped = list_of(parts.routers.dropped);
  }
  return n;
}

void Trace::add_pieces(int64_t step, const std::vector<PieceView>& pieces) {
  for (const PieceView& piece : pieces) {
    Held held{key_of(step, piece.tensor), piece.slice, {}};
    held.values.resize(static_cast<size_t>(piece.slice.num_elements()));
    if (piece.data) {
      std::copy_n(piece.data, held.values.size(), held.values.data());
    } else {
      piece.read(0, held.values);
    }
    held_.push_back(std::move(held));
  }
}

void Trace::add_copy(const std::string& name, const void* bytes, size_t num_bytes) {
  copies_.push_back({0, "copy", name, "", "", hash_hex(bytes, num_bytes)});
}

void Trace::write(const fs::path& path) const {
  Json steps = Json::array(), pieces = Json::array();
  for (const auto& step : steps_) steps.push_back(to_json(step));
  for (const Held& held : held_) {
    const Slice& s = held.slice;
    pieces.push_back({held.tensor, s.global_shape, s.offset, s.extent, s.flat_begin, s.flat_end});
  }
  const std::string text = Json{{"steps", steps}, {"pieces", pieces}, {"copies", copies_}}.dump();
  const uint64_t length = text.size();
  AtomicFile file(path);
  file.write(&length, sizeof length);
  file.write(text);
  for (const Held& held : held_) file.write(held.values.data(), held.values.size() * sizeof(float));
  file.commit();
}

Trace Trace::read(const fs::path& path) {
  const std::string bytes = read_file(path);
  uint64_t length = 0, at = sizeof length;
  if (bytes.size() >= at) std::memcpy(&length, bytes.data(), sizeof length);
  ATHANOR_CHECK_DATA(length > 0 && length <= bytes.size() - at, "{}: it is cut off", path.string());
  const Json json = parse_json(std::string_view(bytes).substr(at, length), path.string());
  at += length;
  Trace trace;
  for (const auto& step : json.at("steps")) trace.steps_.push_back(from_json(step));
  json.at("copies").get_to(trace.copies_);
  std::ranges::sort(trace.copies_, {}, &TracedTensor::name);  // the order of their faults
  for (const auto& piece : json.at("pieces")) {
    Held held{piece.at(0), {piece.at(1), piece.at(2), piece.at(3), piece.at(4), piece.at(5)}, {}};
    check_slice(held.slice, path.string() + ": " + held.tensor);
    held.values.resize(static_cast<size_t>(held.slice.num_elements()));
    const size_t size = held.values.size() * sizeof(float);
    ATHANOR_CHECK_DATA(size <= bytes.size() - at, "{}: it is cut off", path.string());
    std::memcpy(held.values.data(), bytes.data() + at, size);
    at += size;
    trace.held_.push_back(std::move(held));
  }
  return trace;
}

std::string WholeTrace::file_name(int rank) { return fmt::format("rank-{}.trace", rank); }

WholeTrace WholeTrace::read(const fs::path& folder, int num_ranks) {
  std::vector<Trace> ranks;
  for (int rank = 0; rank < num_ranks; ++rank) ranks.push_back(Trace::read(folder / file_name(rank)));
  WholeTrace whole;
  whole.steps_ = ranks.at(0).steps_;
  whole.join(ranks);
  whole.compare_reports(ranks);
  whole.compare_copies(ranks);
  return whole;
}

const std::vector<float>& WholeTrace::values(int64_t step, const std::string& kind, const std::string& name) const {
  static const std::vector<float> none;
  const auto found = tensors_.find(key_of(step, kind + "/" + name));
  return found == tensors_.end() ? none : found->second;
}

void WholeTrace::join(const std::vector<Trace>& ranks) {
  std::map<std::string, std::vector<uint8_t>> times_held;
  for (const Trace& rank : ranks) {
    for (const Trace::Held& held : rank.held_) {
      const Slice whole = whole_slice(held.slice.global_shape);
      auto& values = tensors_[held.tensor];
      auto& times = times_held[held.tensor];
      values.resize(static_cast<size_t>(whole.num_elements()));
      times.resize(values.size());
      CommonRuns(held.slice, whole).for_each([&](const CommonRun& run) {
        std::copy_n(held.values.data() + run.in_a, run.count, values.data() + run.in_b);
        for (int64_t i = 0; i < run.count; ++i) {
          uint8_t& count = times[static_cast<size_t>(run.in_b + i)];
          if (count < 255) ++count;  // otherwise 257 of thousands of ranks would look like one
        }
      });
    }
  }
  for (const auto& [tensor, times] : times_held) {
    const auto wrong = std::find_if(times.begin(), times.end(), [](uint8_t t) { return t != 1; });
    if (wrong == times.end()) continue;
    const auto count = std::count_if(times.begin(), times.end(), [](uint8_t t) { return t != 1; });
    faults_.push_back(fmt::format("step {}: {} of {} elements are not held by exactly one rank; the first, {}, by {}",
                                  tensor, count, times.size(), wrong - times.begin(), *wrong));
  }
}

void WholeTrace::compare_reports(const std::vector<Trace>& ranks) {
  for (size_t r = 1; r < ranks.size(); ++r) {
    if (ranks[r].steps_ == ranks[0].steps_) continue;
    for (size_t s = 0; s < std::min(ranks[r].steps_.size(), ranks[0].steps_.size()); ++s) {
      const Json mine = to_json(ranks[r].steps_[s]), first = to_json(ranks[0].steps_[s]);
      for (const auto& [name, value] : mine.items()) {
        if (value == first[name]) continue;
        faults_.push_back(fmt::format("step {}: rank {} reports {} = {}, rank 0 {}", s + 1, r, name,
                                      value.dump().substr(0, 40), first[name].dump().substr(0, 40)));
      }
    }
    return;  // the differences of one rank are enough
  }
}

void WholeTrace::compare_copies(const std::vector<Trace>& ranks) {
  std::map<std::string, std::pair<size_t, std::string>> first;
  for (size_t r = 0; r < ranks.size(); ++r) {
    for (const TracedTensor& copy : ranks[r].copies_) {
      const auto& [holder, expected] = first.emplace(copy.name, std::pair{r, copy.hash}).first->second;
      if (copy.hash == expected) continue;
      faults_.push_back(
          fmt::format("{} is not the same on ranks {} and {}, which have copies of it", copy.name, holder, r));
    }
  }
}

}  // namespace athanor::inline verify
