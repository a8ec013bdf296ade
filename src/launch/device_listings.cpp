#include "launch/device_listings.h"

#include <algorithm>
#include <map>
#include <optional>
#include <sstream>
#include <string>

namespace athanor::launch {
namespace {

// What follows `key` on a line, up to `end` or the end of the line; nothing if the key is not there.
std::optional<std::string> after(const std::string& line, std::string_view key, std::string_view end = "") {
  const size_t at = line.find(key);
  if (at == line.npos) return std::nullopt;
  std::string rest = line.substr(at + key.size());
  if (!end.empty()) rest.resize(std::min(rest.size(), rest.find(end)));
  const size_t first = std::min(rest.find_first_not_of(" \t"), rest.size());
  rest = rest.substr(first);
  rest.resize(rest.find_last_not_of(" \t\r|") + 1);
  return rest;
}

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  std::istringstream stream{std::string(text)};
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

void number_devices(NodeDevices& found) {
  for (size_t i = 0; i < found.devices.size(); ++i) found.devices[i].id = std::to_string(i);
}

}  // namespace

// Lines "GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-893f...)", and below one "  MIG 1g.5gb  Device  0: (UUID:
// MIG-3e1d...)".
NodeDevices parse_nvidia_smi(std::string_view text) {
  NodeDevices found{.vendor = Vendor::kNvidia, .from = "nvidia-smi -L"};
  bool has_parts = false;
  for (const auto& line : lines_of(text)) {
    const auto uuid = after(line, "(UUID: ", ")");
    if (!uuid) continue;
    if (line.starts_with("GPU ")) {
      has_parts = false;
      ++found.cards;
      found.model = after(line, ": ", " (UUID").value_or("");
      found.devices.push_back({"", *uuid, -1});
    } else if (line.find("MIG ") != line.npos && !found.devices.empty()) {
      if (!has_parts) found.devices.pop_back();
      has_parts = true;
      found.devices.push_back({"", *uuid, -1});
    }
  }
  number_devices(found);
  return found;
}

// Lines "GPU[0]          : Device Name:          Instinct MI210" and "GPU[0]  : (Topology) Numa Node: 3".
NodeDevices parse_rocm_smi(std::string_view text) {
  NodeDevices found{.vendor = Vendor::kAmd, .from = "rocm-smi"};
  std::map<int, int> numa_of;
  for (const auto& line : lines_of(text)) {
    const auto number = after(line, "GPU[", "]");
    if (!line.starts_with("GPU[") || !number || number->empty() || number->size() > 4 ||
        number->find_first_not_of("0123456789") != number->npos)
      continue;
    int& numa = numa_of.try_emplace(std::stoi(*number), -1).first->second;
    if (const auto node = after(line, "Numa Node: ");
        node && !node->empty() && node->size() < 5 && node->find_first_not_of("0123456789") == node->npos)
      numa = std::stoi(*node);
    for (const char* key : {"Device Name:", "Card series:", "Card Series:"})
      if (const auto name = after(line, key)) found.model = *name;
  }
  for (const auto& [number, numa] : numa_of) found.devices.push_back({std::to_string(number), "", numa});
  found.cards = static_cast<int>(found.devices.size());
  return found;
}

// A table with "| 0         | Device Name: Intel(R) Data Center GPU Max 1550      |" for each card.
NodeDevices parse_xpu_smi(std::string_view text) {
  NodeDevices found{.vendor = Vendor::kIntel, .from = "xpu-smi discovery"};
  for (const auto& line : lines_of(text)) {
    const auto name = after(line, "Device Name: ");
    if (!name) continue;
    found.model = *name;
    const int tiles = name->find("Max 1550") != name->npos ? 2 : 1;
    for (int tile = 0; tile < tiles; ++tile)
      found.devices.push_back(
          {tiles > 1 ? std::to_string(found.cards) + "." + std::to_string(tile) : std::to_string(found.cards), "", -1});
    ++found.cards;
  }
  return found;
}

// Lines "00:04.0 3D controller: NVIDIA Corporation GA100 [A100 SXM4 40GB] (rev a1)".
NodeDevices parse_lspci(std::string_view text) {
  struct Row {
    Vendor vendor;
    const char* name;
    std::vector<const char*> classes;
  };
  const Row rows[] = {
      {Vendor::kNvidia, "NVIDIA", {"3D controller: ", "VGA compatible controller: "}},
      {Vendor::kAmd, "[AMD/ATI]", {"Display controller: ", "Processing accelerators: "}},
      {Vendor::kIntel, "Intel", {"Display controller: "}},
  };
  for (const auto& row : rows) {
    NodeDevices found{.vendor = row.vendor, .from = "lspci"};
    for (const auto& line : lines_of(text)) {
      for (const char* kind : row.classes) {
        const auto what = after(line, kind, " (rev");
        if (!what || what->find(row.name) == what->npos) continue;
        found.model = *what;
        found.devices.emplace_back();
        ++found.cards;
      }
    }
    number_devices(found);
    if (found.cards > 0) return found;
  }
  return {};
}

}  // namespace athanor::launch
