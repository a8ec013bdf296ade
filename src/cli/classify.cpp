// athanor classify LOG shows why a job ended, by what its log tells and by its exit code (launch/classify.h).

#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/content_kind.h"
#include "base/error.h"
#include "base/file_reader.h"
#include "base/files.h"
#include "base/text.h"
#include "cli/commands.h"
#include "documents/byte_source.h"
#include "documents/standard_input.h"
#include "launch/classify.h"

namespace athanor::inline cli {
namespace {

constexpr size_t kFrontBytes = 4;
constexpr size_t kPieceBytes = size_t{1} << 16;

Compression compression_of(std::string_view front) {
  switch (recognise_content(front)) {
    case ContentKind::kGzip: return Compression::kGzip;
    case ContentKind::kZstd: return Compression::kZstd;
    default: return Compression::kNone;
  }
}

// A stream whose first bytes have been read already.
class WithFront : public ByteSource {
 public:
  WithFront(std::string front, std::unique_ptr<ByteSource> rest) : front_(std::move(front)), rest_(std::move(rest)) {}

  size_t read(char* out, size_t capacity) override {
    if (front_.empty()) return rest_->read(out, capacity);
    const size_t size = front_.copy(out, capacity);
    front_.erase(0, size);
    return size;
  }
  uint64_t file_position() const override { return rest_->file_position() - front_.size(); }

 private:
  std::string front_;
  std::unique_ptr<ByteSource> rest_;
};

// Reads the rest of a stream from a file in memory.
std::unique_ptr<ByteSource> open_kept(ByteSource& source, Compression compression) {
  const int file = ::memfd_create("log", MFD_CLOEXEC);
  if (file < 0) fail_errno("cannot keep in memory", "standard input");
  std::string piece(kPieceBytes, '\0');
  while (const size_t got = source.read(piece.data(), piece.size()))
    for (size_t at = 0; at < got;) {
      const ssize_t written = ::write(file, piece.data() + at, got - at);
      if (written < 0) fail_errno("cannot keep in memory", "standard input");
      at += static_cast<size_t>(written);
    }
  auto kept = open_bytes(fmt::format("/proc/self/fd/{}", file), {InputKind::kText, compression});
  ::close(file);
  return kept;
}

std::unique_ptr<ByteSource> open_standard_input() {
  auto source = open_bytes(kStandardInput, {InputKind::kText});
  std::string front(kFrontBytes, '\0');
  size_t size = 0;
  while (size < front.size()) {
    const size_t got = source->read(front.data() + size, front.size() - size);
    if (got == 0) break;
    size += got;
  }
  front.resize(size);
  const Compression compression = compression_of(front);
  auto whole = std::make_unique<WithFront>(std::move(front), std::move(source));
  if (compression == Compression::kNone) return whole;
  return open_kept(*whole, compression);
}

// Opens a log by its name, or standard input for "-". Compression (gzip, zstd) is recognised by the first bytes, not
// by the name. Compressed standard input is kept in memory, compressed. @throws IoError.
std::unique_ptr<ByteSource> open_log(const std::string& name) {
  if (is_standard_input(name)) return open_standard_input();
  std::array<char, kFrontBytes> front{};
  const size_t size = FileReader(name).read_up_to(0, front.data(), front.size());
  return open_bytes(name, {InputKind::kText, compression_of({front.data(), size})});
}

struct ClassifyArguments {
  std::vector<std::string> logs;
  std::string hostfile;
  std::optional<int> exit_code;
  std::vector<std::string> signatures;
  bool json = false;
};

void check_file(const std::string& name, const std::string& path, const std::string& needed) {
  ATHANOR_CHECK(std::filesystem::exists(path), "{} {}: there is no such file; give {}", name, path, needed);
  ATHANOR_CHECK(!std::filesystem::is_directory(path), "{} {} is a folder; give {}", name, path, needed);
}

void check_files(const ClassifyArguments& arguments) {
  for (const std::string& log : arguments.logs)
    if (!is_standard_input(log)) check_file("LOG", log, "the file that has the job's output");
  ATHANOR_CHECK(std::ranges::count_if(arguments.logs, [](const auto& log) { return is_standard_input(log); }) <= 1,
                "- (standard input) is named several times, and can be read only once");
  if (!arguments.hostfile.empty()) check_file("--hostfile", arguments.hostfile, "a file with the job's hosts");
  for (const std::string& file : arguments.signatures)
    check_file("--signatures", file, "a TOML file with [[signature]] entries");
}

void print(const std::string& name, const launch::Classification& classification, const ClassifyArguments& arguments) {
  if (arguments.json) {
    auto json = launch::classification_json(classification, arguments.exit_code);
    json["log"] = name;
    fmt::print("{}\n", json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    return;
  }
  const bool is_first = name == shown_name(arguments.logs.front());
  if (arguments.logs.size() > 1) fmt::print("{}log: {}\n", is_first ? "" : "\n", printable(name));
  fmt::print("{}", launch::classification_text(classification));
}

// Returns why there is no answer; "": it was printed.
std::string classify_one(const std::string& log, const ClassifyArguments& arguments, const launch::JobHosts& hosts,
                         const launch::SignatureSet& signatures) {
  const std::string name = shown_name(log);
  const auto bytes = open_log(log);
  const auto read = [&](char* out, size_t capacity) { return bytes->read(out, capacity); };
  const auto classification = launch::classify_log(read, arguments.exit_code, hosts, signatures);
  if (classification.num_bytes == 0) return fmt::format("LOG {} is empty", name);
  if (classification.is_binary) return fmt::format("LOG {} is binary, and no text", name);
  print(name, classification, arguments);
  return "";
}

void classify(const ClassifyArguments& arguments) {
  check_files(arguments);
  const auto signatures = launch::SignatureSet::load(arguments.signatures);
  launch::JobHosts hosts;
  if (!arguments.hostfile.empty())
    hosts = launch::JobHosts(
        launch::parse_host_file(read_file(arguments.hostfile), arguments.hostfile, launch::RepeatedHost::kSlots));
  std::vector<std::string> unread;
  for (const std::string& log : arguments.logs) {
    std::string reason = classify_one(log, arguments, hosts, signatures);
    if (!reason.empty()) unread.push_back(std::move(reason));
  }
  ATHANOR_CHECK(unread.empty(), "{}: the cause is unknown; give the file that has the job's output",
                join(unread, "; "));
}

}  // namespace

void add_classify_command(CLI::App& app) {
  const auto arguments = std::make_shared<ClassifyArguments>();
  auto* command = app.add_subcommand("classify", "Show why a job ended, and which hosts are at fault, from its log");
  command
      ->add_option("LOG", arguments->logs,
                   "The file that has the output of the job, also compressed (gzip, zstd); -: standard input. Each of "
                   "several has its own answer")
      ->required();
  command
      ->add_option("--exit-code", arguments->exit_code,
                   "What the job's launcher ended with; codes below 0 and above 255 are those of PBS")
      ->check(CLI::Range(-1024, 1023));
  command->add_option("--hostfile", arguments->hostfile, "The hosts of the job; only these are named");
  command
      ->add_option("--signatures", arguments->signatures,
                   "A file with more signatures, which come before those of the program; may be given several times")
      ->allow_extra_args(false);
  command->add_flag("--json", arguments->json, "Print a JSON object");
  command->footer(
      "The log is read once, within a few MiB of memory. docs/launch.md lists causes, verdicts and actions, and\n"
      "describes files of signatures.");
  command->callback([arguments] { classify(*arguments); });
}

}  // namespace athanor::inline cli
