#include "comm/store_meeting.h"

#include <gtest/gtest.h>

#include <future>
#include <latch>
#include <thread>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "base/error.h"
#include "comm/testing/rank_messages.h"
#include "wire/tcp_socket.h"

namespace athanor::comm::store_meeting_test {
namespace {

using namespace std::chrono_literals;

/// A port that was free a moment ago.
int free_port() { return port_of(listen_at(addresses_of("127.0.0.1", 0).at(0), /*everywhere=*/false)); }

MasterAddress master_at(int port) { return {"127.0.0.1", port, false, "0"}; }

/// The error that opening ends with has to be an `Expected`.
template <class Expected>
std::string error_of_opening(const MasterAddress& master, int rank) {
  try {
    open_store_meeting(master, rank, 300ms);
    return "";
  } catch (const Expected& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    return error.what();
  }
}

TEST(StoreMeeting, RanksThatComeBeforeRank0WaitForItAndAllGetOneNumberAndTheTextsOfOthers) {
  const MasterAddress master = master_at(free_port());
  std::vector<std::future<uint64_t>> ranks;
  std::latch all_have_read(4);
  for (int rank = 3; rank >= 0; --rank) {
    ranks.push_back(std::async(std::launch::async, [&, rank] {
      if (rank == 0) std::this_thread::sleep_for(300ms);
      const auto place = open_store_meeting(master, rank, 10s);
      const uint64_t job = meet(*place, {rank, 4, "host", "text of " + std::to_string(rank)}, 10s);
      const auto text = text_of(*place, (rank + 1) % 4);
      EXPECT_EQ(text, "text of " + std::to_string((rank + 1) % 4));
      all_have_read.arrive_and_wait();  // rank 0 serves until then
      return job;
    }));
  }
  const uint64_t job = ranks[0].get();
  for (size_t i = 1; i < 4; ++i) EXPECT_EQ(ranks[i].get(), job);
}

TEST(StoreMeeting, WithoutAServerTheAddressIsNamedAndWhoWouldServe) {
  MasterAddress master = master_at(free_port());
  const std::string of_rank_0 = error_of_opening<CommError>(master, 1);
  EXPECT_TRUE(has(of_rank_0, fmt::format("no process serves the meeting place at 127.0.0.1:{}", master.port)));
  EXPECT_TRUE(has(of_rank_0, "rank 0 has not come within 0.")) << of_rank_0;
  EXPECT_TRUE(has(of_rank_0, "parallelism.collective_timeout_s")) << of_rank_0;
  master.is_served = true;
  EXPECT_TRUE(has(error_of_opening<CommError>(master, 0), "torchrun's agent has not come"));
}

TEST(StoreMeeting, AnUnknownHostIsRefusedOnEachRankWithTheVariableAndItsValue) {
  const MasterAddress master{"no-such-host.invalid", free_port(), false, "0"};
  for (const int rank : {0, 1}) {
    const std::string error = error_of_opening<ConfigError>(master, rank);
    EXPECT_TRUE(has(error, "MASTER_ADDR (no-such-host.invalid) is not a host that this machine")) << error;
  }
}

TEST(StoreMeeting, AnAddressOfAnotherHostIsRefusedOnRank0) {
  const MasterAddress master{"192.0.2.1", free_port(), false, "0"};  // RFC 5737: no host has it
  const std::string error = error_of_opening<ConfigError>(master, 0);
  EXPECT_TRUE(has(error, "MASTER_ADDR (192.0.2.1) does not lead to ")) << error;
}

TEST(StoreMeeting, APortThatAnotherProgramHasIsRefusedOnEachRank) {
  const Descriptor other = listen_at(addresses_of("127.0.0.1", 0).at(0), /*everywhere=*/false);
  const MasterAddress master = master_at(port_of(other));
  const std::string of_rank_0 = error_of_opening<ConfigError>(master, 0);
  EXPECT_TRUE(of_rank_0.starts_with(fmt::format("MASTER_PORT ({}) cannot be used on ", master.port))) << of_rank_0;
  const std::string of_rank_1 = error_of_opening<ConfigError>(master, 1);  // the program never answers
  EXPECT_TRUE(has(of_rank_1, fmt::format("what listens at 127.0.0.1:{} is not the store of rank 0", master.port)))
      << of_rank_1;
}

TEST(StoreMeeting, OfTorchrunsAgentItJoinsTheStoreAndEachAttemptHasItsOwnTexts) {
  c10d::TCPStoreOptions options;
  options.isServer = true;
  options.port = 0;
  options.waitWorkers = false;
  const c10d::TCPStore agent("127.0.0.1", options);
  MasterAddress master{"127.0.0.1", agent.getPort(), true, "0"};
  const auto first = open_store_meeting(master, 0, 5s);
  first->set("key", "of the first attempt");
  EXPECT_EQ(first->count("number"), 1);
  EXPECT_EQ(first->count("number"), 2);
  master.attempt = "1";
  const auto second = open_store_meeting(master, 0, 5s);
  EXPECT_FALSE(second->get("key", 0ms));
  EXPECT_EQ(second->count("number"), 1);
  EXPECT_EQ(first->get("key", 0ms), "of the first attempt");
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_FALSE(second->get("key", 1s)) << "a text that no process sets is an absence, after the patience";
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 900ms);
}

}  // namespace
}  // namespace athanor::comm::store_meeting_test
