#include "launch/node_devices.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "base/text.h"
#include "launch/device_listings.h"
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
  NodeDevices found{.vendor = Vendor::kNvidia, .from = "/proc/driver/nvidia/gpus"};
  for (const auto& folder : sorted_entries(here.root / "proc/driver/nvidia/gpus")) {
    found.model = value_in(folder / "information", "Model");
    found.devices.push_back({std::to_string(found.cards++), value_in(folder / "information", "GPU UUID"),
                             numa_of_pci(here, folder.filename().string())});
  }
  return found;
}

// A node of kfd with SIMD units is a GPU, or one of the two GCDs of an MI250X; the others are processors. location_id
// is the PCI address: eight bits of the bus, five of the device and three of the function.
NodeDevices amd_of_kernel(const Surroundings& here) {
  NodeDevices found{.vendor = Vendor::kAmd, .from = "/sys/class/kfd/kfd/topology"};
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
    found.model = read_kernel_line(node / "name").value_or("");
    found.devices.push_back({std::to_string(found.cards++), "", numa_of_pci(here, address)});
  }
  return found;
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
  NodeDevices found{.vendor = Vendor::kIntel, .from = "/sys/bus/pci/devices"};
  for (const auto& device : sorted_entries(here.root / kPciDevices)) {
    if (read_kernel_line(device / "vendor") != "0x8086") continue;
    if (!read_kernel_line(device / "class").value_or("").starts_with("0x0380")) continue;
    const int tiles = tiles_of_card(device), numa = numa_of_pci(here, device.filename().string());
    const std::string card = std::to_string(found.cards++);
    for (int tile = 0; tile < tiles; ++tile)
      found.devices.push_back({tiles > 1 ? card + "." + std::to_string(tile) : card, "", numa});
    found.model = "GPU " + read_kernel_line(device / "device").value_or("");
  }
  return found;
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
    NodeDevices found = tool.parse(*text);
    if (!found.devices.empty()) return found;
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
    NodeDevices found = find(here);
    if (found.cards > 0) return found;
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
  NodeDevices found = first_found(here);
  if (found.vendor == Vendor::kIntel) apply_hierarchy(found, here);
  const bool is_flat = found.restriction.empty();
  for (const auto& [vendor, variable] : kRestrictions) {
    const auto value = here.variables.find(variable);
    if (vendor != found.vendor || value == here.variables.end()) continue;
    if (vendor == Vendor::kIntel && value->second.empty()) continue;  // no mask; others mean by it that none is left
    apply_restriction(found, variable, value->second, is_flat);
  }
  return found;
}

}  // namespace athanor::launch
