#include "launch/node_devices.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "launch/testing/recorded_machine.h"

namespace athanor::launch {
namespace node_devices_test {

class NodeDevicesOf : public RecordedMachine {
 protected:
  static std::vector<int> numa_of(const NodeDevices& found) {
    std::vector<int> numa;
    for (const auto& device : found.devices) numa.push_back(device.numa);
    return numa;
  }
  static std::string ids_of(const NodeDevices& found) {
    std::string ids;
    for (const auto& device : found.devices) ids += (ids.empty() ? "" : ",") + device.id;
    return ids;
  }
};

TEST_F(NodeDevicesOf, AuroraHasTwelveTilesOnSixCards) {
  const auto found = find_devices(machine("aurora"));
  EXPECT_EQ(found.vendor, Vendor::kIntel);
  EXPECT_EQ(found.cards, 6);
  EXPECT_EQ(ids_of(found), "0.0,0.1,1.0,1.1,2.0,2.1,3.0,3.1,4.0,4.1,5.0,5.1");
  EXPECT_EQ(numa_of(found), (std::vector<int>{0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1}));
}

TEST_F(NodeDevicesOf, FrontierHasEightGcdsWhoseNumaNodesAreInAnotherOrder) {
  const auto found = find_devices(machine("frontier"));
  EXPECT_EQ(found.vendor, Vendor::kAmd);
  EXPECT_EQ(ids_of(found), "0,1,2,3,4,5,6,7");
  EXPECT_EQ(numa_of(found), (std::vector<int>{3, 3, 1, 1, 0, 0, 2, 2}));
  EXPECT_EQ(found.model, "gfx90a");
}

TEST_F(NodeDevicesOf, PerlmutterAndPolarisHaveFourGpusInReverse) {
  for (const char* name : {"perlmutter", "polaris"}) {
    const auto found = find_devices(machine(name));
    EXPECT_EQ(found.vendor, Vendor::kNvidia);
    EXPECT_EQ(found.model, "NVIDIA A100-SXM4-40GB");
    EXPECT_EQ(numa_of(found), (std::vector<int>{3, 2, 1, 0}));
  }
}

TEST_F(NodeDevicesOf, ADgxHasEightAndANodeWithADisplayAdapterHasNone) {
  EXPECT_EQ(find_devices(machine("dgx_h100")).devices.size(), 8u);
  const auto none = find_devices(machine("two_sockets"));
  EXPECT_EQ(none.vendor, Vendor::kNone);
  EXPECT_TRUE(none.devices.empty());
}

TEST_F(NodeDevicesOf, CudaVisibleDevicesRestrictsByNumberAndByUuid) {
  auto here = machine("dgx_h100");
  here.variables["CUDA_VISIBLE_DEVICES"] = "4,5,6,7";
  auto found = find_devices(here);
  EXPECT_EQ(numa_of(found), (std::vector<int>{1, 1, 1, 1}));
  EXPECT_EQ(found.restriction, "CUDA_VISIBLE_DEVICES=4,5,6,7");
  here.variables["CUDA_VISIBLE_DEVICES"] = "GPU-ac34c587";
  EXPECT_EQ(ids_of(find_devices(here)), "6");
  for (const char* none : {"", "-1", "-1,0"}) {
    here.variables["CUDA_VISIBLE_DEVICES"] = none;
    EXPECT_TRUE(find_devices(here).devices.empty()) << none;
  }
  here.variables["CUDA_VISIBLE_DEVICES"] = "0,8";
  EXPECT_SAYS(refusal<ConfigError>([&] { find_devices(here); }),
              "CUDA_VISIBLE_DEVICES=0,8: this node has no device 8, but 8 of NVIDIA");
}

TEST_F(NodeDevicesOf, TheSecondVariableOfAmdCountsWhatTheFirstHasLeft) {
  auto here = machine("frontier");
  here.variables["ROCR_VISIBLE_DEVICES"] = "4,5,6";
  here.variables["HIP_VISIBLE_DEVICES"] = "2";
  EXPECT_EQ(numa_of(find_devices(here)), (std::vector<int>{2}));
}

TEST_F(NodeDevicesOf, TilesAreCountedAsZeFlatDeviceHierarchyTells) {
  auto here = machine("aurora");
  here.variables["ZE_AFFINITY_MASK"] = "0,11";  // each tile is a device, the default
  EXPECT_EQ(ids_of(find_devices(here)), "0.0,5.1");
  here.variables["ZE_AFFINITY_MASK"] = "0.1,3.0";
  EXPECT_EQ(ids_of(find_devices(here)), "0.1,3.0");
  here.variables["ZE_FLAT_DEVICE_HIERARCHY"] = "COMPOSITE";
  here.variables["ZE_AFFINITY_MASK"] = "0,5";
  EXPECT_EQ(ids_of(find_devices(here)), "0,5");
  here.variables["ZE_AFFINITY_MASK"] = "";  // no mask
  EXPECT_EQ(find_devices(here).devices.size(), 6u);
}

// The lines of a DGX H100, of a node with three MI210, and of a node of Aurora (cut to two cards), from the tests of
// gpu_stress (Purdue RCAC, MIT).
TEST(DeviceListings, ToolsOfThreeVendorsAreRead) {
  const auto nvidia = parse_nvidia_smi(
      "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-deb02430-f8f0-88a9-2871-7cc1acc99eee)\n"
      "GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-13e10222-7b1d-85b6-0a60-46b35bc724dc)\n");
  ASSERT_EQ(nvidia.devices.size(), 2u);
  EXPECT_EQ(nvidia.devices[1].uuid, "GPU-13e10222-7b1d-85b6-0a60-46b35bc724dc");
  EXPECT_EQ(nvidia.model, "NVIDIA H100 80GB HBM3");

  const auto amd = parse_rocm_smi(
      "============================ ROCm System Management Interface ============================\n"
      "GPU[0]          : Device Name:          Instinct MI210\n"
      "GPU[0]          : GUID:                 13566\n"
      "GPU[1]          : Device Name:          Instinct MI210\n"
      "GPU[2]          : Device Name:          Instinct MI210\n"
      "GPU[0]\t\t: (Topology) Numa Node: 3\n"
      "GPU[0]\t\t: (Topology) Numa Affinity: 3\n"
      "================================== End of ROCm SMI Log ===================================\n");
  ASSERT_EQ(amd.devices.size(), 3u);
  EXPECT_EQ(amd.devices[0].numa, 3);
  EXPECT_EQ(amd.devices[1].numa, -1);
  EXPECT_EQ(amd.model, "Instinct MI210");

  const auto intel = parse_xpu_smi(
      "+-----------+--------------------------------------------------------------+\n"
      "| Device ID | Device Information                                           |\n"
      "+-----------+--------------------------------------------------------------+\n"
      "| 0         | Device Name: Intel(R) Data Center GPU Max 1550               |\n"
      "|           | Vendor Name: Intel(R) Corporation                            |\n"
      "|           | PCI BDF Address: 0000:18:00.0                                |\n"
      "| 1         | Device Name: Intel(R) Data Center GPU Max 1550               |\n");
  EXPECT_EQ(intel.cards, 2);
  ASSERT_EQ(intel.devices.size(), 4u);
  EXPECT_EQ(intel.devices[3].id, "1.1");
}

TEST(DeviceListings, PartsOfAGpuCountInItsPlace) {
  const auto found = parse_nvidia_smi(
      "GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-a)\n"
      "  MIG 3g.20gb     Device  0: (UUID: MIG-1)\n"
      "  MIG 3g.20gb     Device  1: (UUID: MIG-2)\n"
      "GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-b)\n");
  ASSERT_EQ(found.devices.size(), 3u);
  EXPECT_EQ(found.devices[1].uuid, "MIG-2");
  EXPECT_EQ(found.cards, 2);
}

TEST(DeviceListings, LspciCountsNoGraphicsOfProcessorsAndNoDisplayAdapters) {
  const auto found = parse_lspci(
      "00:02.0 VGA compatible controller: Intel Corporation UHD Graphics 630 (rev 02)\n"
      "01:00.0 3D controller: NVIDIA Corporation GA100 [A100 SXM4 40GB] (rev a1)\n"
      "02:00.0 VGA compatible controller: ASPEED Technology, Inc. ASPEED Graphics Family (rev 52)\n");
  EXPECT_EQ(found.vendor, Vendor::kNvidia);
  EXPECT_EQ(found.cards, 1);
  EXPECT_EQ(parse_lspci("00:02.0 VGA compatible controller: Intel Corporation UHD Graphics 630 (rev 02)\n").cards, 0);
}

TEST(DeviceListings, OtherTextIsNoDevice) {
  for (const char* text : {"", "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n",
                           "GPU[x]: Numa Node: 9999999999999999999\n", "No device discovered\n"}) {
    EXPECT_TRUE(parse_nvidia_smi(text).devices.empty()) << text;
    EXPECT_TRUE(parse_rocm_smi(text).devices.empty()) << text;
    EXPECT_TRUE(parse_xpu_smi(text).devices.empty()) << text;
    EXPECT_TRUE(parse_lspci(text).devices.empty()) << text;
  }
}

TEST_F(NodeDevicesOf, AToolIsAskedOnlyWhereTheKernelShowsNoPciDevices) {
  Surroundings here;
  here.root = folder_ / "container";
  put_program(here, "nvidia-smi", "echo 'GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-a)'");
  EXPECT_EQ(find_devices(here).devices.size(), 1u);
  put(here, "sys/bus/pci/devices/0000:00:00.0/vendor", "0x8086");
  EXPECT_TRUE(find_devices(here).devices.empty());
}

TEST_F(NodeDevicesOf, AToolThatHangsIsLeftAndTheNextIsAsked) {
  Surroundings here;
  here.root = folder_ / "container";
  here.tool_limit = std::chrono::milliseconds(300);
  put_program(here, "nvidia-smi", "exec sleep 1000");
  put_program(here, "lspci", "echo '01:00.0 3D controller: NVIDIA Corporation GA100 [A100 SXM4 40GB] (rev a1)'");
  here.variables["PATH"] += ":/bin:/usr/bin";
  EXPECT_EQ(find_devices(here).from, "lspci");
}

}  // namespace node_devices_test
}  // namespace athanor::launch
