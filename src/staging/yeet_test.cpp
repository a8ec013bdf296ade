// Whole transfers between threads of one process, each a node with its own folder.
#include "staging/yeet.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/fault.h"
#include "base/temporary_folder.h"
#include "staging/leaders.h"
#include "staging/testing/folder_content.h"
#include "wire/thread_wire.h"

namespace athanor::staging::yeet_test {
namespace fs = std::filesystem;

constexpr uint64_t kChunk = 4096;

/// Flips a bit of chunks that a rank receives.
class DamagingWire : public comm::Wire {
 public:
  using Chooses = std::function<bool(int64_t bytes)>;
  DamagingWire(std::unique_ptr<Wire> wire, Chooses chooses) : wire_(std::move(wire)), chooses_(std::move(chooses)) {}
  int rank() const override { return wire_->rank(); }
  int size() const override { return wire_->size(); }
  int max_tag() const override { return wire_->max_tag(); }
  std::string library() const override { return wire_->library(); }
  void send(int peer, int tag, const void* data, int64_t bytes, uint64_t token) override {
    wire_->send(peer, tag, data, bytes, token);
  }
  void receive(int peer, int tag, void* data, int64_t bytes, uint64_t token) override {
    if (tag > 0) rooms_[token] = data;  // a chunk
    wire_->receive(peer, tag, data, bytes, token);
  }
  void poll(std::vector<Finished>& finished) override {
    const size_t before = finished.size();
    wire_->poll(finished);
    for (size_t i = before; i < finished.size(); ++i) {
      const auto room = rooms_.find(finished[i].token);
      if (room == rooms_.end() || !chooses_(finished[i].bytes)) continue;
      static_cast<char*>(room->second)[finished[i].bytes - 1] ^= 1;
    }
  }
  void close() override { wire_->close(); }
  [[noreturn]] void abort(int exit_code) override { std::_Exit(exit_code); }

 private:
  std::unique_ptr<Wire> wire_;
  Chooses chooses_;
  std::map<uint64_t, void*> rooms_;
};

struct Job {
  explicit Job(int ranks) : num_ranks(ranks) {}

  /// Runs the job. @return what rank 0 learns; all ranks have its exit code.
  YeetOutcome run(YeetRequest request) {
    request.chunk_bytes = kChunk;
    request.lists_nodes = true;
    auto wires = comm::thread_wires(num_ranks);
    if (damages) wires[1] = std::make_unique<DamagingWire>(std::move(wires[1]), damages);
    std::vector<YeetOutcome> outcomes(wires.size());
    std::vector<std::vector<std::shared_ptr<void>>> keep_alive(wires.size());
    {
      std::vector<std::jthread> threads;
      for (size_t rank = 0; rank < wires.size(); ++rank)
        threads.emplace_back([&, rank] {
          outcomes[rank] = yeet(*wires[rank], request, host_of(static_cast<int>(rank)), keep_alive[rank]);
        });
    }
    for (const YeetOutcome& outcome : outcomes) EXPECT_EQ(outcome.exit_code, outcomes[0].exit_code);
    return outcomes[0];
  }

  int num_ranks;
  std::function<std::string(int)> host_of = [](int rank) { return "node" + std::to_string(rank); };
  DamagingWire::Chooses damages = {};
};

void make_source(const fs::path& src) {
  write(src / "long", some_bytes(20 * kChunk + 77, 1));
  write(src / "exact", some_bytes(2 * kChunk, 2));
  write(src / "folder/run", "#!/bin/sh\n");
  fs::permissions(src / "folder/run", fs::perms(0751));
  for (int i = 0; i < 50; ++i) write(src / "many" / std::to_string(i), some_bytes(static_cast<size_t>(i) * 13, 3));
  write(src / "new\nline \xff", "odd");
  write(src / "empty", "");
  fs::create_directories(src / "empty folder");
  fs::create_symlink("../long", src / "folder/link");
  fs::permissions(src / "folder", fs::perms(0555));
}

TEST(Yeet, EveryNodeHasTheSameFilesWithModesTimesLinksAndOddNames) {
  for (const int nodes : {1, 2, 3, 6}) {
    const TemporaryFolder here;
    make_source(here / "src");
    const auto outcome =
        Job(nodes).run({.sources = {(here / "src").string()}, .target = (here / "to-{rank}").string()});
    ASSERT_EQ(outcome.exit_code, 0) << outcome.failure;
    for (int node = 0; node < nodes; ++node)
      EXPECT_EQ(what_is_in(here / ("to-" + std::to_string(node)) / "src"), what_is_in(here / "src"))
          << node << " of " << nodes;
    EXPECT_EQ(outcome.report.num_nodes(), nodes);
    EXPECT_EQ(outcome.report.bytes_written(), outcome.bytes * static_cast<uint64_t>(nodes));
    fs::permissions(here / "src/folder", fs::perms(0755));
  }
}

TEST(Yeet, WhatIsThereIsNotSentAndWhatOneNodeLacksIs) {
  const TemporaryFolder here;
  make_source(here / "src");
  Job job(3);
  const YeetRequest request{.sources = {(here / "src").string()}, .target = (here / "to-{rank}").string()};
  ASSERT_EQ(job.run(request).exit_code, 0);
  const auto second = job.run(request);
  EXPECT_EQ(second.sent_bytes, 0u);
  EXPECT_EQ(second.report.bytes_written(), 0u);
  fs::remove(here / "to-2/src/exact");
  const auto third = job.run(request);
  EXPECT_EQ(third.sent_bytes, 2 * kChunk);
  EXPECT_EQ(third.report.bytes_written(), 2 * kChunk);
  EXPECT_EQ(what_is_in(here / "to-2/src"), what_is_in(here / "src"));
}

TEST(Yeet, ChecksumFindsBytesThatChangedWithoutTheirTime) {
  const TemporaryFolder here;
  make_source(here / "src");
  Job job(2);
  YeetRequest request{.sources = {(here / "src").string()}, .target = (here / "to-{rank}").string()};
  ASSERT_EQ(job.run(request).exit_code, 0);
  const auto time = fs::last_write_time(here / "to-1/src/exact");
  write(here / "to-1/src/exact", some_bytes(2 * kChunk, 99));
  fs::last_write_time(here / "to-1/src/exact", time);
  EXPECT_EQ(job.run(request).sent_bytes, 0u);
  request.compares_bytes = true;
  EXPECT_EQ(job.run(request).sent_bytes, 2 * kChunk);
  EXPECT_EQ(what_is_in(here / "to-1/src"), what_is_in(here / "src"));
  EXPECT_EQ(job.run(request).sent_bytes, 0u);
}

TEST(Yeet, RanksThatShareAFolderWriteItOnce) {
  const TemporaryFolder here;
  make_source(here / "src");
  Job job(6);
  job.host_of = [](int rank) { return "node" + std::to_string(rank / 2); };
  const auto outcome = job.run({.sources = {(here / "src").string()}, .target = (here / "to-{host}").string()});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.failure;
  EXPECT_EQ(outcome.report.num_nodes(), 3);
  for (int node = 0; node < 3; ++node)
    EXPECT_EQ(what_is_in(here / ("to-node" + std::to_string(node)) / "src"), what_is_in(here / "src"));
}

TEST(Yeet, AFolderThatIsNotOnTheNodesOwnDiskIsRefused) {
  const TemporaryFolder here;
  make_source(here / "src");
  const auto outcome = Job(3).run({.sources = {(here / "src").string()}, .target = (here / "shared").string()});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_NE(outcome.failure.find("{host}"), std::string::npos) << outcome.failure;
}

TEST(Yeet, ChunksThatArriveDamagedAreSentAgainAndTheLinkIsNamed) {
  const TemporaryFolder here;
  make_source(here / "src");
  Job job(3);
  int passes = 0;
  job.damages = [&](int64_t bytes) { return bytes > 1000 && ++passes <= 2; };
  const auto outcome = job.run({.sources = {(here / "src").string()}, .target = (here / "to-{rank}").string()});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.failure;
  ASSERT_EQ(outcome.warnings.size(), 1u);
  EXPECT_NE(outcome.warnings[0].find("to rank 1"), std::string::npos) << outcome.warnings[0];
  for (int node = 0; node < 3; ++node)
    EXPECT_EQ(what_is_in(here / ("to-" + std::to_string(node)) / "src"), what_is_in(here / "src"));
}

TEST(Yeet, ALinkThatDamagesEverythingEndsTheTransferByName) {
  const TemporaryFolder here;
  make_source(here / "src");
  Job job(3);
  job.damages = [](int64_t bytes) { return bytes > 1000; };
  const auto outcome = job.run({.sources = {(here / "src").string()}, .target = (here / "to-{rank}").string()});
  EXPECT_EQ(outcome.exit_code, 78);
  EXPECT_NE(outcome.failure.find("to rank 1"), std::string::npos) << outcome.failure;
  EXPECT_FALSE(fs::exists(here / "to-1/src/long"));
}

TEST(Yeet, IfOneDiskFailsItsNodeIsNamedAndAllOthersHaveEverything) {
  const TemporaryFolder here;
  make_source(here / "src");
  Job job(4);
  const YeetRequest request{.sources = {(here / "src").string()}, .target = (here / "to-{rank}").string()};
  // Each node writes 74 pieces, of which 51 are of short files. Whichever node comes last to the 280th piece has
  // written more than 51 itself, so a part of a long file is on its disk and need not be sent again.
  arm_fault("yeet.write:enospc@280");
  const auto outcome = job.run(request);
  disarm_fault("yeet.write");
  EXPECT_EQ(outcome.exit_code, 74);
  ASSERT_EQ(outcome.report.num_failed(), 1);
  const int failed = outcome.report.failed()[0].node;
  EXPECT_TRUE(outcome.failure.starts_with("node" + std::to_string(failed) + ": cannot write")) << outcome.failure;
  EXPECT_NE(outcome.failure.find("No space left"), std::string::npos) << outcome.failure;
  for (int node = 0; node < 4; ++node)
    EXPECT_EQ(what_is_in(here / ("to-" + std::to_string(node)) / "src") == what_is_in(here / "src"), node != failed);
  const auto second = job.run(request);
  EXPECT_EQ(second.exit_code, 0);
  EXPECT_LT(second.sent_bytes, outcome.bytes);
  EXPECT_EQ(what_is_in(here / ("to-" + std::to_string(failed)) / "src"), what_is_in(here / "src"));
}

TEST(Yeet, ASourceThatChangesWhileItIsSentIsNowhereGivenItsName) {
  const TemporaryFolder here;
  make_source(here / "src");
  YeetRequest request{.sources = {(here / "src").string()}, .target = (here / "to-{rank}").string()};
  request.will_send = [&](uint64_t) { write(here / "src/long", some_bytes(20 * kChunk + 77, 5)); };
  const auto outcome = Job(3).run(request);
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_NE(outcome.failure.find("long changed while it was sent"), std::string::npos) << outcome.failure;
  for (int node = 0; node < 3; ++node) EXPECT_FALSE(fs::exists(here / ("to-" + std::to_string(node)) / "src/long"));
}

TEST(Yeet, ASourceThatVanishesEndsAllNodes) {
  const TemporaryFolder here;
  make_source(here / "src");
  YeetRequest request{.sources = {(here / "src").string()}, .target = (here / "to-{rank}").string()};
  request.will_send = [&](uint64_t) { fs::remove(here / "src/long"); };
  const auto outcome = Job(5).run(request);
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_NE(outcome.failure.find("src/long"), std::string::npos) << outcome.failure;
}

TEST(Yeet, LinksThatLeaveTheTargetAndSpecialFilesAreRefusedBeforeAnythingIsWritten) {
  const TemporaryFolder here;
  fs::create_directories(here / "src/a");
  fs::create_symlink("/etc/passwd", here / "src/a/link");
  const auto outcome = Job(2).run({.sources = {(here / "src").string()}, .target = (here / "to-{rank}").string()});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_NE(outcome.failure.find("/etc/passwd"), std::string::npos);
  EXPECT_FALSE(fs::exists(here / "to-0"));
  fs::remove(here / "src/a/link");
  ASSERT_EQ(::mkfifo((here / "src/a/pipe").c_str(), 0600), 0);
  EXPECT_EQ(Job(2).run({.sources = {(here / "src").string()}, .target = (here / "to-{rank}").string()}).exit_code, 2);
}

TEST(Leaders, NumbersAndRanksAreInverseForAnyBits) {
  std::vector<uint64_t> bits{0x8000000000000001, 0, 0xf0f0, 1};
  const Leaders leaders(bits);
  ASSERT_EQ(leaders.count(), 11);
  for (int node = 0; node < leaders.count(); ++node) {
    EXPECT_TRUE(leaders.has(leaders.rank_of(node)));
    EXPECT_EQ(leaders.node_of(leaders.rank_of(node)), node);
  }
}

TEST(Report, IsTheSameSizeForTenThousandNodesAndNamesTheSlowest) {
  Report all;
  for (int node = 0; node < 10'000; ++node) {
    const NodeLine line{node, "node" + std::to_string(node), node == 777 ? 90.0 : 1 + node * 1e-4,
                        1000, node % 1000 == 5 ? 74 : 0,     "full"};
    all.merge(Report::decode(Report(line, false).encode()));
  }
  EXPECT_LT(all.encode().size(), 8000u);
  EXPECT_EQ(all.num_nodes(), 10'000);
  EXPECT_EQ(all.slowest()[0].host, "node777");
  EXPECT_EQ(all.num_failed(), 10);
  EXPECT_EQ(all.failed()[0].node, 5);
  EXPECT_NEAR(all.median_s(), 1.5, 0.08);
  EXPECT_EQ(all.bytes_written(), 10'000'000u);
}

}  // namespace athanor::staging::yeet_test
