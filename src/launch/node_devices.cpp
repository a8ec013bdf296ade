#include "launch/node_devices.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/text.h"
#include "launch/process.h"

namespace athanor::launch {

namespace fs = std::filesystem;
namespace {

constexpr const char* kPciDevices = "sys/bus/pci/devices";

std::vector<fs::path> sorted_entries(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code failed;
  for (fs::directory_iterator entry(folder, failed), end; !failed && entry != end; entry.increment(failed))
    entries.push_back(entry->path());
  std::ranges::sort(entries);
  return entries;
}

int numa_of_pci(const Surroundings& here, const std::string& address) {
  const auto text = read_kernel_line(here.root / kPciDevices / address / "numa_node");
  int numa = -1;
  if (text) std::from_chars(text->data(), text->data() + text->size(), numa);
  return numa;
}

// Returns the value of a line "key:  value" or "key value" of a small file of a driver.
std::string value_in(const fs::path& path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const size_t begin = line.find_first_not_of(": \t", key.size());
    if (begin != line.npos) return line.substr(begin, line.find_last_not_of(" \t\r") + 1 - begin);
  }
  return "";
}

// NVIDIA's driver numbers its GPUs in the order of their PCI addresses, which are the names of these folders
// (CUDA does so with CUDA_DEVICE_ORDER=PCI_BUS_ID, and for equal GPUs).
NodeDevices nvidia_of_kernel(const Surroundings& here) {
  NodeDevices node{.vendor = Vendor::kNvidia, .from = "/proc/driver/nvidia/gpus"};
  for (const auto& folder : sorted_entries(here.root / "proc/driver/nvidia/gpus")) {
    node.model = value_in(folder / "information", "Model");
    node.devices.push_back({std::to_string(node.cards++), value_in(folder / "information", "GPU UUID"),
                            numa_of_pci(here, folder.filename().string())});
  }
  return node;
}

// A node of kfd with SIMD units is a GPU, or one of the two GCDs of an MI250X; the others are processors. location_id
// is the PCI address: eight bits of the bus, five of the device and three of the function.
NodeDevices amd_of_kernel(const Surroundings& here) {
  NodeDevices of_amd{.vendor = Vendor::kAmd, .from = "/sys/class/kfd/kfd/topology"};
  auto nodes = sorted_entries(here.root / "sys/class/kfd/kfd/topology/nodes");
  std::ranges::sort(nodes, {}, [](const fs::path& node) {
    return std::pair(node.filename().string().size(), node.filename().string());  // 2 comes before 10
  });
  const auto number = [](const std::string& text) { return std::strtoull(text.c_str(), nullptr, 10); };
  for (const auto& node : nodes) {
    if (number(value_in(node / "properties", "simd_count")) == 0) continue;
    const auto location = number(value_in(node / "properties", "location_id"));
    const std::string address =
        fmt::format("{:04x}:{:02x}:{:02x}.{:x}", number(value_in(node / "properties", "domain")), location >> 8 & 0xff,
                    location >> 3 & 0x1f, location & 7);
    of_amd.model = read_kernel_line(node / "name").value_or("");
    of_amd.devices.push_back({std::to_string(of_amd.cards++), "", numa_of_pci(here, address)});
  }
  return of_amd;
}

// The tiles of a card: the driver i915 has a folder gt/gtN for each, the driver xe a folder tileN.
int tiles_of_card(const fs::path& device) {
  int tiles = 0;
  for (const auto& entry : sorted_entries(device)) {
    const std::string name = entry.filename().string();
    if (name.starts_with("tile")) ++tiles;
  }
  for (const auto& card : sorted_entries(device / "drm")) {
    if (!card.filename().string().starts_with("card")) continue;
    const int of_i915 = static_cast<int>(sorted_entries(card / "gt").size());
    tiles = std::max(tiles, of_i915);
  }
  return std::max(tiles, 1);
}

// Intel's cards for computing are display controllers (class 0x0380), the graphics of processors are VGA (0x0300).
NodeDevices intel_of_kernel(const Surroundings& here) {
  NodeDevices node{.vendor = Vendor::kIntel, .from = "/sys/bus/pci/devices"};
  for (const auto& device : sorted_entries(here.root / kPciDevices)) {
    if (read_kernel_line(device / "vendor") != "0x8086") continue;
    if (!read_kernel_line(device / "class").value_or("").starts_with("0x0380")) continue;
    const int tiles = tiles_of_card(device), numa = numa_of_pci(here, device.filename().string());
    const std::string card = std::to_string(node.cards++);
    for (int tile = 0; tile < tiles; ++tile)
      node.devices.push_back({tiles > 1 ? card + "." + std::to_string(tile) : card, "", numa});
    node.model = "GPU " + read_kernel_line(device / "device").value_or("");
  }
  return node;
}

NodeDevices devices_of_tools(const Surroundings& here) {
  struct Tool {
    std::vector<std::string> words;
    NodeDevices (*parse)(std::string_view);
  };
  const Tool tools[] = {{{"nvidia-smi", "-L"}, parse_nvidia_smi},
                        {{"rocm-smi", "--showid", "--showtoponuma"}, parse_rocm_smi},
                        {{"xpu-smi", "discovery"}, parse_xpu_smi},
                        {{"lspci"}, parse_lspci}};
  for (const auto& tool : tools) {
    const auto text = ask_tool(tool.words, here);
    if (!text) continue;
    NodeDevices node = tool.parse(*text);
    if (!node.devices.empty()) return node;
  }
  return {};
}

// What ZE_FLAT_DEVICE_HIERARCHY makes of tiles: each is a device ("FLAT", the default), or their card is.
void apply_hierarchy(NodeDevices& found, const Surroundings& here) {
  const std::string hierarchy = here.variable("ZE_FLAT_DEVICE_HIERARCHY").value_or("FLAT");
  if (hierarchy != "COMPOSITE") return;
  std::vector<Device> cards;
  for (const auto& tile : found.devices) {
    const std::string card = tile.id.substr(0, tile.id.find('.'));
    if (cards.empty() || cards.back().id != card) cards.push_back({card, "", tile.numa});
  }
  if (cards.size() < found.devices.size()) found.restriction = "ZE_FLAT_DEVICE_HIERARCHY=COMPOSITE";
  found.devices = std::move(cards);
}

// True if an item of a variable means this device. Of Intel's tiles, "1" means the card 1 with both of them, unless
// each is a device: then it is a number among all tiles.
bool means(const std::string& item, const Device& device, size_t index, Vendor vendor, bool is_flat) {
  if (!device.uuid.empty() && item.size() > 4 && device.uuid.starts_with(item)) return true;  // beginnings are allowed
  if (vendor == Vendor::kIntel && is_flat) return item == std::to_string(index) || item == device.id;
  return item == device.id || (vendor == Vendor::kIntel && item == device.id.substr(0, device.id.find('.')));
}

struct Restriction {
  Vendor vendor;
  const char* variable;
};
constexpr Restriction kRestrictions[] = {{Vendor::kNvidia, "CUDA_VISIBLE_DEVICES"},
                                         {Vendor::kAmd, "ROCR_VISIBLE_DEVICES"},
                                         {Vendor::kAmd, "HIP_VISIBLE_DEVICES"},
                                         {Vendor::kIntel, "ZE_AFFINITY_MASK"}};

// Keeps the devices that the variable names, in its order. As the drivers do, -1 and what follows it name none.
void apply_restriction(NodeDevices& found, const std::string& variable, const std::string& value, bool is_flat) {
  std::vector<Device> kept;
  std::string_view rest = value;
  while (!rest.empty()) {
    const size_t comma = std::min(rest.find(','), rest.size());
    const std::string item(rest.substr(0, comma));
    rest.remove_prefix(std::min(comma + 1, rest.size()));
    if (item == "-1" || item == "NoDevFiles" || item == "none" || item == "void") break;
    const size_t before = kept.size();
    for (size_t i = 0; i < found.devices.size(); ++i)
      if (means(item, found.devices[i], i, found.vendor, is_flat)) kept.push_back(found.devices[i]);
    ATHANOR_CHECK(kept.size() > before,
                  "{}={}: this node has no device {}, but {} of {} ({}); correct or unset the variable", variable,
                  printable(value), printable(item), found.devices.size(), vendor_name(found.vendor), found.from);
  }
  if (kept.size() == found.devices.size()) return;
  found.devices = std::move(kept);
  found.restriction = fmt::format("{}={}", variable, printable(value));
  // The second variable of AMD numbers what the first has left.
  if (found.vendor == Vendor::kAmd)
    for (size_t i = 0; i < found.devices.size(); ++i) found.devices[i].id = std::to_string(i);
}

NodeDevices first_found(const Surroundings& here) {
  for (const auto find : {nvidia_of_kernel, amd_of_kernel, intel_of_kernel}) {
    NodeDevices node = find(here);
    if (node.cards > 0) return node;
  }
  std::error_code ignored;
  return fs::is_directory(here.root / kPciDevices, ignored) ? NodeDevices{} : devices_of_tools(here);
}

}  // namespace

const char* vendor_name(Vendor vendor) {
  switch (vendor) {
    case Vendor::kNvidia: return "NVIDIA";
    case Vendor::kAmd: return "AMD";
    case Vendor::kIntel: return "Intel";
    case Vendor::kNone: break;
  }
  return "no vendor";
}

NodeDevices find_devices(const Surroundings& here) {
  NodeDevices node = first_found(here);
  if (node.vendor == Vendor::kIntel) apply_hierarchy(node, here);
  const bool is_flat = node.restriction.empty();
  for (const auto& [vendor, variable] : kRestrictions) {
    const auto value = here.variables.find(variable);
    if (vendor != node.vendor || value == here.variables.end()) continue;
    if (vendor == Vendor::kIntel && value->second.empty()) continue;  // no mask; others mean by it that none is left
    apply_restriction(node, variable, value->second, is_flat);
  }
  return node;
}

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
  NodeDevices node{.vendor = Vendor::kNvidia, .from = "nvidia-smi -L"};
  bool has_parts = false;
  for (const auto& line : lines_of(text)) {
    const auto uuid = after(line, "(UUID: ", ")");
    if (!uuid) continue;
    if (line.starts_with("GPU ")) {
      has_parts = false;
      ++node.cards;
      node.model = after(line, ": ", " (UUID").value_or("");
      node.devices.push_back({"", *uuid, -1});
    } else if (line.find("MIG ") != line.npos && !node.devices.empty()) {
      if (!has_parts) node.devices.pop_back();
      has_parts = true;
      node.devices.push_back({"", *uuid, -1});
    }
  }
  number_devices(node);
  return node;
}

// Lines "GPU[0]          : Device Name:          Instinct MI210" and "GPU[0]  : (Topology) Numa Node: 3".
NodeDevices parse_rocm_smi(std::string_view text) {
  NodeDevices of_amd{.vendor = Vendor::kAmd, .from = "rocm-smi"};
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
      if (const auto name = after(line, key)) of_amd.model = *name;
  }
  for (const auto& [number, numa] : numa_of) of_amd.devices.push_back({std::to_string(number), "", numa});
  of_amd.cards = static_cast<int>(of_amd.devices.size());
  return of_amd;
}

// A table with "| 0         | Device Name: Intel(R) Data Center GPU Max 1550      |" for each card.
NodeDevices parse_xpu_smi(std::string_view text) {
  NodeDevices node{.vendor = Vendor::kIntel, .from = "xpu-smi discovery"};
  for (const auto& line : lines_of(text)) {
    const auto name = after(line, "Device Name: ");
    if (!name) continue;
    node.model = *name;
    const int tiles = name->find("Max 1550") != name->npos ? 2 : 1;
    for (int tile = 0; tile < tiles; ++tile)
      node.devices.push_back(
          {tiles > 1 ? std::to_string(node.cards) + "." + std::to_string(tile) : std::to_string(node.cards), "", -1});
    ++node.cards;
  }
  return node;
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
    NodeDevices node{.vendor = row.vendor, .from = "lspci"};
    for (const auto& line : lines_of(text)) {
      for (const char* kind : row.classes) {
        const auto what = after(line, kind, " (rev");
        if (!what || what->find(row.name) == what->npos) continue;
        node.model = *what;
        node.devices.emplace_back();
        ++node.cards;
      }
    }
    number_devices(node);
    if (node.cards > 0) return node;
  }
  return {};
}

}  // namespace athanor::launch
