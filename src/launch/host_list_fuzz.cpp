// Any text of a scheduler, a host file, the kernel or a vendor's tool is read, or refused with a ConfigError. Names of
// hosts that are read have no character of a shell or an option.

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "launch/cpu_layout.h"
#include "launch/host_list.h"
#include "launch/node_devices.h"

namespace {

using namespace athanor::launch;

void check_name(std::string_view name) {
  if (name.starts_with('-') || name.find_first_of(" \t\n;|&$`'\"\\<>()*?/") != name.npos) std::abort();
}

void read_as(int kind, std::string_view text) {
  switch (kind) {
    case 0:
      for (const auto& name : expand_node_list(text, "fuzz")) check_name(name);
      break;
    case 1: expand_counts(text, "fuzz"); break;
    case 2:
      for (const auto& host : parse_host_file(text, "fuzz", RepeatedHost::kRefused)) check_name(host.name);
      break;
    case 3:
      for (const auto& host : parse_host_file(text, "fuzz", RepeatedHost::kSlots)) check_name(host.name);
      break;
    case 4:
      if (const auto cpus = parse_cpu_list(text, "fuzz"); parse_cpu_list(cpu_list_text(cpus), "fuzz") != cpus)
        std::abort();
      break;
    default:
      for (const auto parse : {parse_nvidia_smi, parse_rocm_smi, parse_xpu_smi, parse_lspci}) parse(text);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  try {
    read_as(data[0] % 6, {reinterpret_cast<const char*>(data) + 1, size - 1});
  } catch (const athanor::ConfigError&) {
  }
  return 0;
}
