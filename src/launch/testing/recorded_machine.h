#pragma once
// For tests: folders with the files of the kernel of a machine, made from a listing in testing/machines/.
//
// A line of a listing is one of
//   host NAME
//   cpus LIST socket N numa N threads T    processors; with T = 2 the second half of the list are second threads
//   pci ADDRESS vendor V device D class C numa N
//   tiles ADDRESS CARD N                   the tiles of an Intel card
//   nvidia ADDRESS numa N UUID MODEL...    a GPU in /proc/driver/nvidia
//   kfd N cpu, kfd N ADDRESS numa N        a node of AMD's driver

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

#include "base/testing/folder_test.h"
#include "launch/cpu_layout.h"
#include "launch/surroundings.h"

namespace athanor::launch {

class RecordedMachine : public FolderTest {
 protected:
  // Returns surroundings without variables in which nothing is on the path. The files of the machine are made once in
  // the program, so that a test must not change them.
  static Surroundings machine(const std::string& name) { return machine_below(shared_folder(), name); }

  // The same with files of the test's own, once in a test.
  Surroundings machine_of_its_own(const std::string& name) const { return machine_below(folder_, name); }

  static void put(const Surroundings& here, const std::string& path, const std::string& text) {
    std::filesystem::create_directories((here.root / path).parent_path());
    std::ofstream(here.root / path) << text << "\n";
  }

  // A program on the path of `here` that prints `said`, or does what the lines of `script` do.
  void put_program(Surroundings& here, const std::string& name, const std::string& script) const {
    const auto path = write("bin/" + name, "#!/bin/sh\n" + script + "\n");
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    here.variables["PATH"] = (folder_ / "bin").string();
  }

 private:
  // A folder that the process which made it removes at its end.
  static const std::filesystem::path& shared_folder() {
    struct Folder {
      pid_t owner = ::getpid();
      std::filesystem::path path =
          std::filesystem::path(testing::TempDir()) / fmt::format("athanor_test_{}_machines", owner);
      ~Folder() {
        std::error_code ignored;
        if (::getpid() == owner) std::filesystem::remove_all(path, ignored);
      }
    };
    static const Folder folder;
    return folder.path;
  }

  static Surroundings machine_below(const std::filesystem::path& made, const std::string& name) {
    const char* source = std::getenv("ATHANOR_SOURCE_DIR");
    const std::filesystem::path own = std::filesystem::path(__FILE__).parent_path() / "machines";
    const auto folder = source ? std::filesystem::path(source) / "src/launch/testing/machines" : own;
    Surroundings here;
    here.root = made / name;
    const bool is_made = std::filesystem::exists(here.root);
    std::ifstream listing(folder / (name + ".txt"));
    EXPECT_TRUE(listing) << folder;
    std::set<int> online;
    for (std::string line; std::getline(listing, line);) {
      if (line.starts_with("host ")) here.host = line.substr(5);
      if (!is_made) add_line(here, line, online);
    }
    if (is_made) return here;
    put(here, "sys/devices/system/cpu/online", cpu_list_text({online.begin(), online.end()}));
    return here;
  }

  static std::vector<int> cpus_of(const std::string& list) {
    const size_t colon = list.find(':');
    auto cpus = parse_cpu_list(list.substr(0, colon), "listing");
    if (colon == list.npos) return cpus;
    std::vector<int> some;
    for (size_t i = 0; i < cpus.size(); i += std::stoul(list.substr(colon + 1))) some.push_back(cpus[i]);
    return some;
  }

  static void add_cpus(const Surroundings& here, std::istringstream& words, std::set<int>& online) {
    std::string list, socket, numa, key;
    size_t threads = 1;
    words >> list >> key >> socket >> key >> numa >> key >> threads;
    const auto cpus = cpus_of(list);
    const size_t cores = cpus.size() / threads;
    for (size_t i = 0; i < cpus.size(); ++i) {
      std::vector<int> siblings;
      for (size_t thread = 0; thread < threads; ++thread) siblings.push_back(cpus[i % cores + thread * cores]);
      const std::string folder = fmt::format("sys/devices/system/cpu/cpu{}/topology/", cpus[i]);
      put(here, folder + "thread_siblings_list", cpu_list_text(siblings));
      put(here, folder + "physical_package_id", socket);
    }
    put(here, fmt::format("sys/devices/system/node/node{}/cpulist", numa), cpu_list_text(cpus));
    online.insert(cpus.begin(), cpus.end());
  }

  static void add_kfd(const Surroundings& here, std::istringstream& words) {
    std::string node, address, key, numa;
    words >> node >> address >> key >> numa;
    const std::string folder = "sys/class/kfd/kfd/topology/nodes/" + node;
    if (address == "cpu") return put(here, folder + "/properties", "cpu_cores_count 16\nsimd_count 0");
    const auto bus = std::stoul(address.substr(5, 2), nullptr, 16);
    put(here, folder + "/properties",
        fmt::format("cpu_cores_count 0\nsimd_count 440\nlocation_id {}\ndomain 0", bus << 8));
    put(here, folder + "/name", "gfx90a");
    put(here, "sys/bus/pci/devices/" + address + "/numa_node", numa);
  }

  static void add_line(const Surroundings& here, const std::string& line, std::set<int>& online) {
    std::istringstream words(line);
    std::string kind, address, key, value;
    words >> kind;
    if (kind == "cpus") add_cpus(here, words, online);
    if (kind == "kfd") add_kfd(here, words);
    if (kind == "pci") {
      words >> address;
      while (words >> key >> value)
        put(here, "sys/bus/pci/devices/" + address + "/" + (key == "numa" ? "numa_node" : key), value);
    }
    if (kind == "tiles") {
      int tiles = 0;
      words >> address >> key >> tiles;
      for (int tile = 0; tile < tiles; ++tile)
        put(here, fmt::format("sys/bus/pci/devices/{}/drm/{}/gt/gt{}/id", address, key, tile), std::to_string(tile));
    }
    if (kind == "nvidia") {
      std::string numa, uuid, model;
      words >> address >> key >> numa >> uuid;
      std::getline(words >> std::ws, model);
      put(here, "proc/driver/nvidia/gpus/" + address + "/information",
          fmt::format("Model: \t\t {}\nIRQ:   \t\t 123\nGPU UUID: \t {}\nBus Location: \t {}", model, uuid, address));
      put(here, "sys/bus/pci/devices/" + address + "/numa_node", numa);
      put(here, "sys/bus/pci/devices/" + address + "/vendor", "0x10de");
    }
  }
};

}  // namespace athanor::launch
