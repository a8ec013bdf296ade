// Any bytes as a log have a cause, and any text as a file of signatures is read, or refused with a ConfigError. What is
// shown has no control characters, and hosts at fault are names or addresses.

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/error.h"
#include "launch/classify.h"

namespace {

using namespace athanor::launch;

void check_shown(const Classification& found) {
  for (const char c : classification_text(found))
    if (static_cast<unsigned char>(c) < ' ' && c != '\n') std::abort();
  for (const auto& host : found.hosts)
    if (host.empty() || host.starts_with('-') || host.find_first_of(" \t\n;|&$`'\"\\<>()*?/") != host.npos)
      std::abort();
  if (classification_json(found, 1).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).empty())
    std::abort();
}

// The byte chooses the exit code, and whether the hosts are known.
void classify(uint8_t choice, std::string_view log) {
  static const SignatureSet signatures = SignatureSet::load();
  const int file = ::memfd_create("log", 0);
  if (file < 0 || ::write(file, log.data(), log.size()) != static_cast<ssize_t>(log.size())) std::abort();
  constexpr int kCodes[] = {0, 1, 124, 137, 143, -14, 271, 75};
  const JobHosts hosts(choice & 8 ? std::vector<Host>{{"n1", 1}, {"n2.site.org", 2}} : std::vector<Host>());
  check_shown(classify_log("/proc/self/fd/" + std::to_string(file), kCodes[choice & 7], hosts, signatures));
  ::close(file);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    if (data[0] & 16)
      SignatureSet(parse_signatures(text, "fuzz"));
    else
      classify(data[0], text);
  } catch (const athanor::ConfigError&) {
  }
  return 0;
}
