#include "launch/findings.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "launch/host_names.h"

namespace athanor::launch {
namespace {

constexpr size_t kEvidenceBytes = 400;
constexpr size_t kMostNamed = 4'096;
constexpr size_t kMostBlocks = 4'096;
constexpr uint64_t kBlockLines = 24;     // between two lines of a block
constexpr uint64_t kBeginningLines = 2;  // between two lines of a block that may both be its first one
constexpr size_t kMostPlaces = 131'072;  // more ranks than any machine has today

EvidenceLine evidence_of(const LogLine& line) {
  return {line.number, line.offset, std::string(line.text.substr(0, kEvidenceBytes))};
}

std::string_view group(const std::vector<Pattern::Group>& groups, std::string_view name) {
  for (const auto& each : groups)
    if (each.name == name) return each.text;
  return {};
}

std::optional<int64_t> to_number(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

void add_once(std::vector<Named>& all, Named::Kind kind, std::string_view text, const LogLine& line, uint64_t begin) {
  const auto same = [&](const Named& each) { return each.kind == kind && each.text == text; };
  if (text.empty() || all.size() >= kMostNamed || std::ranges::any_of(all, same)) return;
  all.push_back({kind, std::string(text), evidence_of(line), {}, begin});
}

constexpr std::array<std::pair<std::string_view, Named::Kind>, 5> kNaming{{{"host", Named::Kind::kHost},
                                                                           {"address", Named::Kind::kAddress},
                                                                           {"nid", Named::Kind::kNid},
                                                                           {"node", Named::Kind::kNode},
                                                                           {"rank", Named::Kind::kRank}}};

// The most exact of what a line names. An address that is written where a host may be counts as an address. Returns
// whether it names anything.
bool add_named(std::vector<Named>& all, const std::vector<Pattern::Group>& groups, const LogLine& line,
               uint64_t begin) {
  for (const auto& [name, kind] : kNaming) {
    const std::string_view text = group(groups, name);
    if (text.empty()) continue;
    add_once(all, is_address(text) ? Named::Kind::kAddress : kind, text, line, begin);
    return true;
  }
  return false;
}

}  // namespace

Findings::Findings(const SignatureSet& signatures) : signatures_(signatures) {}

void Findings::look_at_prefixes(std::string_view piece, uint64_t offset) {
  constexpr size_t kFirstPiece = 64 << 10, kOtherPieces = 4 << 10;
  std::string_view rest = piece;
  const size_t left = piece.size() - std::min(piece.size(), offset == 0 ? kFirstPiece : kOtherPieces);
  PeeledLine line;
  while (rest.size() > left) {
    const uint64_t at = offset + piece.size() - rest.size();
    const std::string clean = without_escapes(next_line(rest).substr(0, kLongestLine));
    peel(clean, signatures_, scratch_, line);
    census_.count(line, at);
  }
}

// Lines of progress are the most frequent ones, and are recognised with their prefixes as well.
bool Findings::matches(const Signature& signature, const LogLine& line) {
  if (signature.tells == Tells::kProgress) return signature.pattern.find(line.text, scratch_, groups_);
  const std::string_view text = peeled(line).text;
  if (signature.pattern.find(text, scratch_, groups_)) return true;
  const bool may_see_all = signature.sees_prefixes || !signature.names_hosts;
  return may_see_all && text.size() < line.text.size() && signature.pattern.find(line.text, scratch_, groups_);
}

const PeeledLine& Findings::peeled(const LogLine& line) {
  if (is_peeled_) return peeled_;
  peel(line.text, signatures_, scratch_, peeled_);
  is_peeled_ = true;
  census_.count(peeled_, line.offset);
  note_prefix_places();
  return peeled_;
}

// A prefix may have a rank and its host, or a prefix with the rank may stand in one with the host.
void Findings::note_prefix_places() {
  for (size_t i = 0; i < peeled_.prefixes.size(); ++i) {
    const Prefix& inner = peeled_.prefixes[i];
    const auto rank = to_number(inner.rank);
    if (!rank || prefix_places_.size() >= kMostPlaces) continue;
    for (size_t outer = i + 1; outer-- > 0;) {
      const Prefix& place = peeled_.prefixes[outer];
      if (place.host.empty() || !may_be_host(place.host)) continue;
      prefix_places_.try_emplace(*rank, PrefixPlace{std::string(place.host), inner.kind, place.kind});
      break;
    }
  }
}

void Findings::take(const LogLine& line) {
  signatures_.find_candidates(line.text, candidates_);
  is_peeled_ = false;
  bool is_explained = false;
  for (const uint32_t index : candidates_) {
    const Signature& signature = signatures_.at(index);
    // The first signature that matches explains a line; places are read from any line.
    const bool explains = signature.tells != Tells::kPlace && signature.tells != Tells::kBlock;
    if (explains && is_explained) continue;
    report_begin_ = 0;
    if (!matches(signature, line)) continue;
    if (!signature.in.empty() && !join_block(index, line)) continue;
    if (signature.tells == Tells::kBlock) begin_block(index, line);
    is_explained = is_explained || explains;
    record(index, line);
  }
}

void Findings::record(uint32_t index, const LogLine& line) {
  const Signature& signature = signatures_.at(index);
  note_place();
  note_innocent(signature.policy);
  if (signature.tells == Tells::kPlace || signature.tells == Tells::kBlock) return;
  if (signature.tells == Tells::kProgress) return note_step(line);
  if (signature.tells == Tells::kExit) {
    if (const auto code = to_number(group(groups_, "code"))) reported_code_ = static_cast<int>(*code);
    return;
  }
  if (signature.tells == Tells::kFinished) {
    finished_ = evidence_of(line);
    return;
  }
  auto [entry, is_new] = open_.try_emplace(index);
  if (!is_new && steps_since(entry->second) >= kStepsThatProve) {
    if (is_survived(entry->second)) survived_.insert_or_assign(index, std::move(entry->second));
    entry->second = Seen();
    is_new = true;
  }
  Seen& seen = entry->second;
  if (is_new) {
    seen.signature = index;
    seen.first = evidence_of(line);
  }
  seen.steps_before_last = num_steps_;
  add_names(signature, line, seen);
}

void Findings::note_step(const LogLine& line) {
  const auto step = to_number(group(groups_, "step"));
  // All ranks may report a step; only a later one is progress.
  if (step && last_step_ && *step == *last_step_) return;
  if (step) last_step_ = step;
  ++num_steps_;
  if (!progress_) progress_.emplace();
  progress_->number = line.number;
  progress_->offset = line.offset;
  progress_->text.assign(line.text.substr(0, kEvidenceBytes));  // most lines of a log: its memory is used again
}

void Findings::note_place() {
  const std::string_view host = group(groups_, "host"), address = group(groups_, "address");
  if (host.empty() || !may_be_host(host) || is_address(host)) return;
  const auto rank = to_number(group(groups_, "rank"));
  if (rank && host_of_rank_.size() < kMostPlaces) host_of_rank_.try_emplace(*rank, host);
  if (!address.empty() && host_of_address_.size() < kMostPlaces)
    host_of_address_.try_emplace(std::string(address), host);
}

void Findings::note_innocent(HostPolicy policy) {
  const std::string_view other = group(groups_, "other"), host = group(groups_, "host");
  if (innocent_.size() >= kMostNamed) return;
  if (!other.empty()) innocent_.insert(machine_name(other));
  if (policy == HostPolicy::kInnocent && !host.empty()) innocent_.insert(machine_name(host));
}

void Findings::add_names(const Signature& signature, const LogLine& line, Seen& seen) {
  if (signature.policy == HostPolicy::kInnocent) return;
  const bool names = add_named(seen.named, groups_, line, report_begin(line));
  const bool blames = signature.policy == HostPolicy::kAtFault || signature.policy == HostPolicy::kSuspect;
  if (!names && blames && seen.named.size() < kMostNamed) name_printer(line, seen);
}

// The second line of a frame, for example, belongs to what has just begun.
void Findings::begin_block(uint32_t index, const LogLine& line) {
  if (blocks_.size() >= kMostBlocks) blocks_.clear();
  Block& block = blocks_[block_key(index)];
  if (block.last_line > 0 && line.number - block.last_line <= kBeginningLines && add_to(block, line.number)) return;
  block = {line.number, line.number, {}};
  add_to(block, line.number);
}

// Adds what earlier lines of the same report have named to what this one names. If they contradict each other, the
// lines of two reports are mixed, and nothing is known.
bool Findings::join_block(uint32_t index, const LogLine& line) {
  for (const uint32_t beginning : signatures_.blocks_of(index)) {
    const auto found = blocks_.find(block_key(beginning));
    if (found == blocks_.end() || line.number - found->second.last_line > kBlockLines) continue;
    if (!add_to(found->second, line.number)) {
      blocks_.erase(found);
      continue;
    }
    report_begin_ = found->second.first_line;
    groups_.clear();
    for (const auto& [name, text] : found->second.named) groups_.push_back({name, text});
    return true;
  }
  return false;
}

bool Findings::add_to(Block& block, uint64_t line) {
  for (const auto& [name, text] : groups_) {
    const auto known =
        std::ranges::find(block.named, name, [](const auto& each) { return std::string_view(each.first); });
    if (known != block.named.end() && known->second != text) return false;
    if (known == block.named.end()) block.named.emplace_back(name, text);
  }
  block.last_line = line;
  return true;
}

std::string Findings::block_key(uint32_t index) const {
  std::string key = std::to_string(index);
  for (const Prefix& prefix : peeled_.prefixes)
    if (!prefix.host.empty() || !prefix.rank.empty())
      key.append(" ").append(prefix.host).append("/").append(prefix.rank);
  return key;
}

void Findings::name_printer(const LogLine& line, Seen& seen) {
  Named named{Named::Kind::kPrinter, "", evidence_of(line), {}, report_begin(line)};
  if (auto printer = printer_in_text(line)) named.printers.push_back(std::move(*printer));
  const auto& prefixes = peeled(line).prefixes;
  for (auto prefix = prefixes.rbegin(); prefix != prefixes.rend(); ++prefix)
    if (!prefix->host.empty() || !prefix->rank.empty())
      named.printers.push_back({std::string(prefix->host), std::string(prefix->rank), prefix->kind});
  for (const Printer& each : named.printers) named.text += each.host + " " + each.rank + "; ";
  const auto same = [&](const Named& each) { return each.kind == named.kind && each.text == named.text; };
  if (named.printers.empty() || std::ranges::any_of(seen.named, same)) return;
  seen.named.push_back(std::move(named));
}

std::optional<Printer> Findings::printer_in_text(const LogLine& line) {
  for (const uint32_t index : signatures_.tags()) {
    if (!matches(signatures_.at(index), line)) continue;
    note_place();
    return Printer{std::string(group(groups_, "host")), std::string(group(groups_, "rank")), {}};
  }
  return std::nullopt;
}

bool Findings::counts(const Printer& printer) const {
  if (!printer.prefix || census_.varies(*printer.prefix)) return true;
  return printer.host.empty() && census_.is_single();
}

bool Findings::is_survived(const Seen& seen) const {
  return signatures_.at(seen.signature).tells != Tells::kCause && steps_since(seen) >= kStepsThatProve;
}

std::vector<const Seen*> Findings::open(Tells tells) const {
  std::vector<const Seen*> found;
  for (const auto& [index, seen] : open_)
    if (signatures_.at(index).tells == tells && !is_survived(seen)) found.push_back(&seen);
  std::ranges::sort(found, {}, [](const Seen* seen) { return std::pair(seen->first.number, seen->signature); });
  return found;
}

std::vector<const Seen*> Findings::survived() const {
  std::vector<const Seen*> found;
  for (const auto& [index, seen] : open_)
    if (is_survived(seen)) found.push_back(&seen);
  for (const auto& [index, seen] : survived_)
    if (!open_.contains(index)) found.push_back(&seen);
  // The newest first: it is the nearest to the end.
  std::ranges::sort(found, [](const Seen* a, const Seen* b) { return a->first.number > b->first.number; });
  return found;
}

std::string Findings::host_of_rank(int64_t rank) const {
  const auto found = host_of_rank_.find(rank);
  if (found != host_of_rank_.end()) return found->second;
  const auto place = prefix_places_.find(rank);
  const bool is_known = place != prefix_places_.end() && census_.varies(place->second.rank_prefix) &&
                        census_.varies(place->second.host_prefix);
  return is_known ? place->second.host : "";
}

std::string Findings::host_of_address(const std::string& address) const {
  const auto found = host_of_address_.find(address);
  return found == host_of_address_.end() ? "" : found->second;
}

}  // namespace athanor::launch
