#include "launch/classify.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>

#include "base/exit_codes.h"
#include "base/file_reader.h"
#include "base/text.h"
#include "launch/findings.h"
#include "launch/log_times.h"

namespace athanor::launch {
namespace {

constexpr size_t kMostEvidence = 8;
// Longer than checkpoints and evaluations take: a log that continues for this long without a step is that of a hang.
constexpr double kQuiet_s = 1800;

// Codes with which Athanor reports what it knows better than its log shows.
bool decides_alone(int code) {
  namespace codes = exit_code;
  return code == codes::kStoppedAndSaved || code == codes::kRule || code == codes::kNumbersOfANode ||
         code == codes::kNumbersEverywhere || code == codes::kMemory || code == codes::kEvaluation;
}

// Ends from outside: warnings that were survived explain nothing here.
bool is_from_outside(int code) { return code == exit_code::kNoProgress || code == 143 || code == 271 || code < 0; }

class Decision {
 public:
  Decision(const Findings& findings, const SignatureSet& signatures, std::optional<int> code, const JobHosts& job)
      : findings_(findings), signatures_(signatures), code_(code_of(code, findings.reported_code())), job_(job) {}

  /// @param quiet_s  the time for which the log continued after the newest progress; 0: not known.
  Classification make(double quiet_s) {
    if (!decide()) decide_by_code(quiet_s);
    if (may_blame(result_.cause)) find_hosts();
    if (result_.hosts.empty()) find_suspects();
    return std::move(result_);
  }

 private:
  // A wrapper may end with 0, and report the code of what it ran.
  static std::optional<int> code_of(std::optional<int> given, std::optional<int> reported) {
    return given.value_or(0) != 0 ? given : reported ? reported : given;
  }

  bool decide() {
    if (findings_.finished()) {
      result_.cause = Cause::kSuccess;
      add_evidence(*findings_.finished(), "finished");
      return true;
    }
    if (code_ && decides_alone(*code_)) return false;
    const auto causes = this->causes();
    if (!causes.empty() && !(code_ == 0 && findings_.steps_since(*causes.back()) >= Findings::kStepsThatProve))
      return follow(causes, *causes.front());
    if (code_ == 0) return false;
    const auto signs = findings_.open(Tells::kSign);
    if (!signs.empty()) return follow(signs, *signs.front());
    if (code_ != exit_code::kNoProgress && (follow_echo() || follow_ended())) return true;
    const auto survived = findings_.survived();
    const bool counts = code_ && !is_from_outside(*code_) && !survived.empty();
    return counts && follow({survived.front()}, *survived.front());
  }

  // A cause that is followed by steps and by another cause has ended an earlier attempt, or no process at all.
  std::vector<const Seen*> causes() const {
    auto causes = findings_.open(Tells::kCause);
    const auto is_survived = [this](const Seen* seen) {
      return findings_.steps_since(*seen) >= Findings::kStepsThatProve;
    };
    if (!std::ranges::all_of(causes, is_survived)) std::erase_if(causes, is_survived);
    return causes;
  }

  // A process that ended by itself shows more than those that were ended after it.
  bool follow_echo() {
    const auto echoes = findings_.open(Tells::kEcho);
    if (echoes.empty()) return false;
    const auto first =
        std::ranges::find_if(echoes, [&](const Seen* seen) { return signature(*seen).cause != Cause::kCascade; });
    const Seen& chosen = first == echoes.end() ? *echoes.front() : **first;
    if (first == echoes.end() && is_stuck_start(echoes)) return false;
    return follow(echoes, chosen);
  }

  // A job that never trained and was ended from outside; of what followed only ranks are known, and no host.
  bool is_stuck_start(const std::vector<const Seen*>& echoes) const {
    const auto names_host = [](const Seen* seen) {
      return std::ranges::any_of(seen->named, [](const Named& each) { return each.kind == Named::Kind::kHost; });
    };
    return code_ && is_from_outside(*code_) && findings_.num_steps() == 0 && std::ranges::none_of(echoes, names_host);
  }

  // Processes that were ended show nothing if the job was ended.
  bool follow_ended() {
    const auto ended = findings_.open(Tells::kEnded);
    return !ended.empty() && !(code_ && is_from_outside(*code_)) && follow(ended, *ended.front());
  }

  bool follow(const std::vector<const Seen*>& all, const Seen& first) {
    result_.cause = signature(first).cause;
    add_evidence(first.first, signature(first).name);
    for (const Seen* seen : all) add_evidence(seen->first, signature(*seen).name);
    return true;
  }

  void decide_by_code(double quiet_s) {
    const bool trained = findings_.num_steps() > 0;
    result_.cause = code_ ? judge_ending({*code_, trained, false, {}}).cause : Cause::kUnknown;
    if (trained && result_.cause == Cause::kCrashUnknown) result_.cause = Cause::kSuccessMarker;
    const bool ended_from_outside = !code_ || is_from_outside(*code_);
    if (trained && ended_from_outside && quiet_s >= kQuiet_s) result_.cause = Cause::kSilentHang;
    if (code_) result_.evidence.push_back({0, fmt::format("exit code {}", *code_), "exit_code"});
    if (findings_.progress()) add_evidence(*findings_.progress(), "progress");
  }

  static bool may_blame(Cause cause) {
    const Verdict verdict = row_of(cause).verdict;
    return verdict == Verdict::kBadNode || verdict == Verdict::kSoftFailure || verdict == Verdict::kSilentHang ||
           verdict == Verdict::kStuckBeforeTraining;
  }

  // Lines that state the cause all count. Of signs only the first one does: who reports a dead peer dies next, and is
  // reported by others.
  void find_hosts() {
    for (const Seen* seen : causes())
      if (is_at_fault(*seen))
        for (const Named& named : seen->named) blame(named, *seen);
    if (!result_.hosts.empty()) return;
    for (const Seen* seen : findings_.open(Tells::kSign)) {
      if (!is_at_fault(*seen)) continue;
      for (const Named& named : seen->named) {
        if (!findings_.is_innocent(machine_name(host_of(named)))) blame(named, *seen);
        if (!result_.hosts.empty()) return;
      }
    }
    if (row_of(result_.cause).verdict == Verdict::kBadNode) find_first_to_end();
  }

  // A node is at fault, and no line names it: it is the one on which processes ended by themselves, if that is one.
  void find_first_to_end() {
    std::vector<std::pair<const Named*, const Seen*>> ended;
    for (const Seen* seen : findings_.open(Tells::kEcho))
      if (signature(*seen).cause == Cause::kCrashUnknown)
        for (const Named& named : seen->named) ended.emplace_back(&named, seen);
    const auto is_first = [&](const auto& one) {
      return machine_name(host_of(*one.first)) == machine_name(host_of(*ended.front().first));
    };
    if (ended.empty() || !std::ranges::all_of(ended, is_first)) return;
    blame(*ended.front().first, *ended.front().second);
    for (const std::string& host : result_.hosts)
      result_.suspects.push_back(
          {host, "its processes ended by themselves, and no line names a host that is at fault"});
  }

  // What a launcher or a scheduler reports of one process or node, where nothing names who was at fault. What follows
  // from something else makes no host suspect, nor does what happened on several hosts.
  void find_suspects() {
    if (code_ == exit_code::kNoProgress) return;  // all processes were ended
    std::vector<std::pair<const Named*, const Seen*>> all;
    std::string host;
    for (const Seen* seen : suspicions())
      for (const Named& named : seen->named) {
        if (named.report_begin > first_reason(signature(*seen).is_first)) continue;
        for (const std::string& each : machines_of(named)) {
          if (findings_.is_innocent(machine_name(each))) continue;
          if (!host.empty() && machine_name(host) != machine_name(each)) return;
          host = each;
          all.emplace_back(&named, seen);
        }
      }
    if (all.empty()) return;
    const auto& [named, seen] = all.front();
    blame(*named, *seen);
    result_.suspects.push_back({result_.hosts.front(), signature(*seen).reason});
  }

  std::vector<const Seen*> suspicions() const {
    std::vector<const Seen*> all;
    for (const Tells tells : {Tells::kCause, Tells::kSign, Tells::kEcho})
      for (const Seen* seen : findings_.open(tells))
        if (signature(*seen).policy == HostPolicy::kSuspect && may_be_suspected_by(signature(*seen).cause))
          all.push_back(seen);
    return all;
  }

  // The line of the first thing that may be the reason for all that comes after it. Who lost a peer reports what
  // follows. A report of who failed first may come after what launchers print of all processes.
  uint64_t first_reason(bool for_first) const {
    uint64_t line = std::numeric_limits<uint64_t>::max();
    for (const Tells tells : {Tells::kCause, Tells::kSign, Tells::kEcho, Tells::kEnded}) {
      if (for_first && (tells == Tells::kEcho || tells == Tells::kEnded)) continue;
      for (const Seen* seen : findings_.open(tells)) {
        const Signature& entry = signature(*seen);
        const bool is_reason =
            tells == Tells::kEnded || (entry.policy != HostPolicy::kSuspect && !follows(entry.cause));
        if (is_reason) line = std::min(line, seen->first.number);
      }
    }
    return line;
  }

  bool follows(Cause cause) const {
    return cause == Cause::kBadNode || cause == Cause::kNetwork || cause == Cause::kCascade ||
           cause == Cause::kSilentHang || (cause == result_.cause && cause != Cause::kCrashUnknown);
  }

  // If a rank was killed, the others report only that it is gone.
  bool may_be_suspected_by(Cause told) const {
    switch (result_.cause) {
      case Cause::kBadNode:
      case Cause::kNetwork:
      case Cause::kCascade:
      case Cause::kSilentHang:
      case Cause::kSuccessMarker:
      case Cause::kUnknown: return told == result_.cause || told == Cause::kCrashUnknown;
      case Cause::kCrashUnknown:
      case Cause::kLauncher:
      case Cause::kOutOfMemory: return told == result_.cause;
      default: return false;
    }
  }

  const Signature& signature(const Seen& seen) const { return signatures_.at(seen.signature); }

  bool is_at_fault(const Seen& seen) const {
    return signature(seen).cause == result_.cause && signature(seen).policy == HostPolicy::kAtFault;
  }

  std::string host_of(const Named& named) const {
    switch (named.kind) {
      case Named::Kind::kHost: return named.text;
      case Named::Kind::kAddress: {
        const std::string host = findings_.host_of_address(named.text);
        return host.empty() ? named.text : host;
      }
      case Named::Kind::kRank: return host_of_rank(named.text);
      case Named::Kind::kNode: return host_of_number(named.text);
      case Named::Kind::kNid: return host_of_nid(named.text);
      case Named::Kind::kPrinter: return host_of_printer(named.printers);
    }
    return "";
  }

  std::string host_of_rank(const std::string& text) const {
    if (text.empty()) return "";
    const int64_t rank = std::stoll(text);
    const std::string host = findings_.host_of_rank(rank);
    return host.empty() ? job_.host_of_rank(rank).value_or("") : host;
  }

  // Slurm numbers the nodes of a step from 0.
  std::string host_of_number(const std::string& text) const {
    const size_t number = std::stoul(text);
    return number < job_.size() ? job_.names()[number] : "";
  }

  // Cray's systems call a node by its number, with as many figures as each of them likes.
  std::string host_of_nid(const std::string& text) const {
    const unsigned long number = std::stoul(text);
    for (const std::string& name : job_.names()) {
      const std::string machine = machine_name(name);
      const bool is_nid = machine.size() > 3 && machine.size() < 12 && machine.starts_with("nid") &&
                          machine.find_first_not_of("0123456789", 3) == machine.npos;
      if (is_nid && std::stoul(machine.substr(3)) == number) return name;
    }
    return fmt::format("nid{:05}", number);
  }

  std::string host_of_printer(const std::vector<Printer>& printers) const {
    for (const Printer& printer : printers) {
      if (!findings_.counts(printer)) continue;
      const std::string host = may_be_host(printer.host) ? printer.host : host_of_rank(printer.rank);
      if (!host.empty()) return host;
    }
    return "";
  }

  // The hosts that are named, as far as they are those of the job.
  std::vector<std::string> machines_of(const Named& named) const {
    std::vector<std::string> machines;
    for (const std::string& name : names_of_list(host_of(named))) {
      const auto known = job_.find(name);
      const bool keeps = is_address(name) && !known;
      if (!keeps && (!may_be_host(name) || (!job_.empty() && !known))) continue;
      machines.push_back(keeps || job_.empty() ? name : *known);
    }
    return machines;
  }

  void blame(const Named& named, const Seen& seen) {
    const auto machines = machines_of(named);
    for (const std::string& host : machines) {
      const auto same = [&](const std::string& other) { return machine_name(other) == machine_name(host); };
      if (std::ranges::none_of(result_.hosts, same)) result_.hosts.push_back(host);
    }
    if (!machines.empty()) add_evidence(named.line, signature(seen).name);
  }

  void add_evidence(const EvidenceLine& line, const std::string& name) {
    const auto same = [&](const Evidence& other) { return other.line == line.number; };
    if (result_.evidence.size() < kMostEvidence && std::ranges::none_of(result_.evidence, same))
      result_.evidence.push_back({line.number, line.text, name});
  }

  const Findings& findings_;
  const SignatureSet& signatures_;
  const std::optional<int> code_;
  const JobHosts& job_;
  Classification result_;
};

// Reads a log, and keeps what decides.
class Reading : public LogSink {
 public:
  explicit Reading(const SignatureSet& signatures) : findings_(signatures), times_(signatures) {}

  void take(const LogLine& line) override { findings_.take(line); }

  void see_piece(std::string_view piece, uint64_t offset) override {
    if (offset == 0) is_text_ = is_text(piece);
    findings_.look_at_prefixes(piece, offset);
    const auto& progress = findings_.progress();
    if (progress) times_.see(piece, offset, progress->offset);
  }

  const Findings& findings() const { return findings_; }
  /// The time for which the log continued after the newest progress; 0: not known.
  double quiet_s() const { return times_.seconds_after().value_or(0); }
  bool is_text() const { return is_text_; }

 private:
  // Text has few bytes that are neither characters nor what terminals need. A log may have zeros in it where a node was
  // lost while it wrote.
  static bool is_text(std::string_view piece) {
    constexpr size_t kLookedAt = 64 << 10;
    const std::string_view front = piece.substr(0, kLookedAt);
    const auto is_odd = [](unsigned char c) { return (c < 0x20 && !(c >= 7 && c <= 13) && c != 0x1b) || c == 0x7f; };
    auto odd = static_cast<size_t>(std::ranges::count_if(front, is_odd));
    std::string_view rest = front;
    for (auto at = find_invalid_utf8(rest); at.has_value(); at = find_invalid_utf8(rest)) {
      rest.remove_prefix(*at + 1);
      ++odd;
    }
    return odd * 10 < front.size();
  }

  bool is_text_ = true;
  Findings findings_;
  LogTimes times_;
};

}  // namespace

Classification classify_log(const ReadLog& read, std::optional<int> exit_code, const JobHosts& hosts,
                            const SignatureSet& signatures) {
  Reading reading(signatures);
  const LogSize size = read_log(read, signatures.words(), reading);
  Classification classification = Decision(reading.findings(), signatures, exit_code, hosts).make(reading.quiet_s());
  classification.num_bytes = size.bytes;
  classification.num_lines = size.lines;
  classification.last_step = reading.findings().last_step();
  classification.is_binary = !reading.is_text() && !reading.findings().has_any();
  return classification;
}

Classification classify_log(const std::filesystem::path& log, std::optional<int> exit_code, const JobHosts& hosts,
                            const SignatureSet& signatures) {
  const FileReader file(log);
  uint64_t at = 0;
  const auto read = [&](char* out, size_t capacity) {
    const size_t got = file.read_up_to(at, out, capacity);
    at += got;
    return got;
  };
  return classify_log(read, exit_code, hosts, signatures);
}

}  // namespace athanor::launch
