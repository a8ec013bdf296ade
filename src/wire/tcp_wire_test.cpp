#include "wire/tcp_wire.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <future>
#include <map>
#include <random>
#include <sstream>
#include <thread>
#include <tuple>

#include "base/error.h"
#include "wire/tcp_frames.h"
#include "wire/tcp_socket.h"
#include "wire/testing/tcp_ranks.h"

namespace athanor::comm::tcp_wire_test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using Finished = Wire::Finished;

std::string bytes_of(int sender, int tag, int number, int64_t length) {
  std::mt19937 random(static_cast<unsigned>(sender * 1000003 + tag * 1009 + number));
  std::string text(static_cast<size_t>(length), '\0');
  for (size_t i = 0; i < text.size(); i += 97) text[i] = static_cast<char>(random());
  return text;
}

TEST(TcpWire, RanksThatCallEachOtherAtOnceGetEachMessageOnceAndInOrder) {
  for (unsigned attempt = 0; attempt < 20; ++attempt) {
    TcpRanks ranks(8, "127.0.0.1", attempt);
    constexpr int kMessages = 5;
    std::map<std::pair<int, int>, std::vector<int>> sent, got;
    for (int a = 0; a < 8; ++a) {
      for (int b = 0; b < 8; ++b) {
        if (a == b) continue;
        sent[{a, b}].resize(kMessages);
        got[{a, b}].resize(kMessages, -1);
      }
    }
    for (auto& [pair, room] : got) {
      for (int& one : room) ranks[pair.second].receive(pair.first, 7, &one, sizeof one, 0);
    }
    for (int i = 0; i < kMessages; ++i) {
      for (auto& [pair, values] : sent) {
        values[static_cast<size_t>(i)] = pair.first * 1000 + pair.second * 100 + i;
        ranks[pair.first].send(pair.second, 7, &values[static_cast<size_t>(i)], sizeof(int), 1);
      }
    }
    const auto complete = [&] {
      return std::ranges::all_of(ranks.finished, [](auto& one) { return one.second.size() == 2 * 7 * kMessages; });
    };
    ASSERT_TRUE(ranks.poll_until([&] { return ranks.finished.size() == 8 && complete(); }));
    EXPECT_EQ(got, sent);
    for (int i = 0; i < 20; ++i) ranks.poll();
    EXPECT_TRUE(complete()) << "a message came twice";
  }
}

// A caller that waits sleeps between polls if nothing moves, and would then leave the buffers of the sockets empty or
// full.
TEST(TcpWire, WhileALongMessageComesPollsReportThatBytesMoveAndAfterwardsNoMore) {
  TcpRanks ranks(2);
  const std::string data = bytes_of(0, 1, 1, 64 << 20);  // more than buffers and one turn take
  std::string room(data.size(), '\0');
  ranks[1].receive(0, 1, room.data(), static_cast<int64_t>(room.size()), 7);
  ranks[0].send(1, 1, data.data(), static_cast<int64_t>(data.size()), 8);
  int partial_reads = 0, partial_writes = 0;
  ASSERT_TRUE(ranks.poll_until([&] {
    partial_reads += ranks[1].has_moved() && ranks.finished[1].empty();
    partial_writes += ranks[0].has_moved() && ranks.finished[0].empty();
    return !ranks.finished[1].empty() && !ranks.finished[0].empty();
  }));
  EXPECT_GT(partial_reads, 3);
  EXPECT_GT(partial_writes, 3);
  EXPECT_EQ(room, data);
  std::this_thread::sleep_for(50ms);  // acknowledgements arrive
  for (int i = 0; i < 10; ++i) ranks.poll();
  EXPECT_FALSE(ranks[0].has_moved());
  EXPECT_FALSE(ranks[1].has_moved());
}

// Messages of 0 bytes to a mebibyte with four tags, whose receives are there before or after them.
TEST(TcpWire, MessagesOfOneSenderAndTagMatchTheirReceivesInOrderWhateverTheirLengths) {
  constexpr int64_t kLengths[] = {0, 1, 1000, kMaxEager, kMaxEager + 1, 300'000, 1 << 20};
  constexpr int kMessages = 120;
  TcpRanks ranks(3);
  std::mt19937 random(5);
  struct Message {
    std::string data, room;
  };
  std::map<std::tuple<int, int, int>, std::vector<std::unique_ptr<Message>>> all;
  std::vector<std::function<void()>> actions;
  std::map<int, size_t> expected;
  for (int from = 0; from < 3; ++from) {
    for (int to = 0; to < 3; ++to) {
      if (from == to) continue;
      for (int i = 0; i < kMessages; ++i) {
        const int tag = static_cast<int>(random() % 4);
        auto& line = all[{from, to, tag}];
        auto data = bytes_of(from, tag, static_cast<int>(line.size()), kLengths[random() % std::size(kLengths)]);
        auto message = std::make_unique<Message>(Message{data, std::string(data.size(), 'x')});
        Message* at = message.get();
        line.push_back(std::move(message));
        actions.emplace_back([&ranks, from, to, tag, at] {
          ranks[from].send(to, tag, at->data.data(), static_cast<int64_t>(at->data.size()), 0);
        });
        actions.emplace_back([&ranks, from, to, tag, at] {
          ranks[to].receive(from, tag, at->room.data(), static_cast<int64_t>(at->room.size()), 1);
        });
        ++expected[from];
        ++expected[to];
      }
    }
  }
  // Sends keep their order, and receives keep theirs; the two are mixed at random.
  std::vector<std::function<void()>> sends, receives;
  for (size_t i = 0; i < actions.size(); ++i) (i % 2 == 0 ? sends : receives).push_back(actions[i]);
  for (size_t s = 0, r = 0; s < sends.size() || r < receives.size();) {
    const bool is_send = r == receives.size() || (s < sends.size() && random() % 2 == 0);
    is_send ? sends[s++]() : receives[r++]();
    if (random() % 8 == 0) ranks.poll();
  }
  ASSERT_TRUE(ranks.poll_until([&] {
    return std::ranges::all_of(expected, [&](auto& one) { return ranks.finished[one.first].size() == one.second; });
  }));
  for (const auto& [key, line] : all) {
    for (const auto& message : line) ASSERT_EQ(message->data, message->room) << "from " << std::get<0>(key);
  }
}

TEST(TcpWire, ALargeMessageArrivesWhole) {
  TcpRanks ranks(2);
  const std::string data = bytes_of(0, 0, 0, 64 << 20);
  std::string room(data.size(), ' ');
  ranks[0].send(1, 0, data.data(), 64 << 20, 1);
  ranks[1].receive(0, 0, room.data(), 64 << 20, 2);
  ASSERT_TRUE(ranks.poll_until([&] { return ranks.find(1, 2) && ranks.find(0, 1); }));
  EXPECT_EQ(ranks.find(1, 2)->bytes, 64 << 20);
  EXPECT_EQ(ranks.find(1, 2)->peer, 0);
  EXPECT_TRUE(data == room);
}

TEST(TcpWire, AMessageLongerThanItsRoomIsTooMuchAndTheNextOneIsWhole) {
  for (const int64_t length : {100, 100'000}) {  // one frame, and an offer
    for (const bool room_first : {false, true}) {
      TcpRanks ranks(2);
      const std::string data = bytes_of(0, 0, 0, length);
      std::string small(10, 'x'), whole(data.size(), 'x');
      const auto receive = [&] {
        ranks[1].receive(0, 3, small.data(), 10, 1);
        ranks[1].receive(0, 3, whole.data(), length, 2);
      };
      if (room_first) receive();
      for (const uint64_t token : {10, 11}) ranks[0].send(1, 3, data.data(), length, token);
      for (int i = 0; i < 50; ++i) ranks.poll();
      if (!room_first) receive();
      ASSERT_TRUE(ranks.poll_until(
          [&] { return ranks.find(1, 1) && ranks.find(1, 2) && ranks.find(0, 10) && ranks.find(0, 11); }));
      EXPECT_EQ(ranks.find(1, 1)->bytes, Wire::kTooMuch);
      EXPECT_EQ(small, std::string(10, 'x'));
      EXPECT_EQ(ranks.find(1, 2)->bytes, length);
      EXPECT_EQ(whole, data);
    }
  }
}

TEST(TcpWire, ARankKeepsNoMoreThanTheCreditOfWhatItHasNoRoomForAndHearsControlMessagesMeanwhile) {
  TcpRanks ranks(2);
  constexpr int kMessages = 100;
  const std::string data = bytes_of(0, 0, 0, kMaxEager);
  for (int i = 0; i < kMessages; ++i) ranks[0].send(1, 0, data.data(), kMaxEager, 1);
  for (int i = 0; i < 2000; ++i) ranks.poll();
  EXPECT_EQ(static_cast<int64_t>(ranks.finished[0].size()), kCredit / cost_of(kMaxEager));

  int said = 42, heard = 0;
  ranks[1].receive(Wire::kAnyPeer, Wire::kControlTag, &heard, sizeof heard, 2);
  ranks[0].send(1, Wire::kControlTag, &said, sizeof said, 3);
  ASSERT_TRUE(ranks.poll_until([&] { return ranks.find(1, 2); }));
  EXPECT_EQ(heard, 42);
  EXPECT_EQ(ranks.find(1, 2)->peer, 0);

  std::vector<std::string> rooms(kMessages, std::string(data.size(), 'x'));
  for (std::string& room : rooms) ranks[1].receive(0, 0, room.data(), kMaxEager, 4);
  ASSERT_TRUE(ranks.poll_until([&] { return ranks.finished[1].size() == kMessages + 1; }));
  for (const std::string& room : rooms) ASSERT_EQ(room, data);
  // What was received is confirmed, so that short messages are sent at once again.
  ranks.finished.clear();
  ranks[0].send(1, 1, data.data(), kMaxEager, 5);
  EXPECT_TRUE(ranks.poll_until([&] { return ranks.find(0, 5); }));
}

/// Calls the listening socket of a rank, as another program does.
class Stranger {
 public:
  Stranger(TcpRanks& ranks, int rank) {
    std::istringstream text(text_of(*ranks.place, rank));
    std::string host;
    int port = 0;
    text >> host >> port;
    const SocketAddress address = addresses_of(host, port).at(0);
    socket_ = Descriptor(::socket(address.storage.ss_family, SOCK_STREAM, 0));
    EXPECT_EQ(::connect(socket_.number(), address.raw(), address.length), 0);
  }
  void send(const void* data, size_t size) {
    EXPECT_EQ(::send(socket_.number(), data, size, MSG_NOSIGNAL), static_cast<ssize_t>(size));
  }
  /// Returns the bytes that are answered until the connection ends.
  std::string answer(TcpRanks& ranks) {
    std::string all;
    for (std::array<char, 64> some{};;) {
      ranks.poll();
      const ssize_t got = ::recv(socket_.number(), some.data(), some.size(), MSG_DONTWAIT);
      if (got == 0 || (got < 0 && errno != EAGAIN)) return all;
      if (got > 0) all.append(some.data(), static_cast<size_t>(got));
    }
  }

 private:
  Descriptor socket_;
};

TEST(TcpWire, StrangersAndOtherJobsAreClosedWithoutAnAnswerAndDisturbNoRank) {
  TcpRanks ranks(3);
  const uint64_t job = std::stoull(*ranks.place->get("job", 0ms));
  Hello hello;
  hello.job = job;
  hello.sender = 2;
  hello.receiver = 1;
  hello.size = 3;

  Stranger silent(ranks, 1), half(ranks, 1), other_program(ranks, 1), other_job(ranks, 1), other_size(ranks, 1);
  half.send(&hello, sizeof hello / 2);
  other_program.send(std::string(200, 'G').data(), 200);
  EXPECT_EQ(other_program.answer(ranks), "");
  Hello wrong = hello;
  wrong.job = job + 1;
  other_job.send(&wrong, sizeof wrong);
  EXPECT_EQ(other_job.answer(ranks), "");
  wrong = hello;
  wrong.size = 4;
  other_size.send(&wrong, sizeof wrong);
  EXPECT_EQ(other_size.answer(ranks), "");
  { Stranger leaves(ranks, 1); }

  int sent = 5, got = 0;
  ranks[1].receive(2, 0, &got, sizeof got, 1);
  ranks[2].send(1, 0, &sent, sizeof sent, 2);
  ASSERT_TRUE(ranks.poll_until([&] { return ranks.find(1, 1); }));
  EXPECT_EQ(got, 5);
}

TEST(TcpWire, AProgramOfAnotherVersionIsToldSo) {
  TcpRanks ranks(3);
  Hello hello;
  hello.version = Hello::kVersion + 1;
  hello.job = std::stoull(*ranks.place->get("job", 0ms));
  Stranger newer(ranks, 1);
  newer.send(&hello, sizeof hello);
  const std::string answer = newer.answer(ranks);
  ASSERT_EQ(answer.size(), sizeof(Welcome));
  Welcome welcome;
  std::memcpy(&welcome, answer.data(), sizeof welcome);
  EXPECT_EQ(welcome.verdict, Welcome::Verdict::kOtherVersion);
  EXPECT_EQ(welcome.version, Hello::kVersion);
}

TEST(TcpWire, RanksMeetByIpv6) {
  try {
    address_towards("::1", 0);
  } catch (const CommError& error) {
    GTEST_SKIP() << error.what();
  }
  TcpRanks ranks(3, "::1");
  int sent = 5, got = 0;
  ranks[1].receive(2, 0, &got, sizeof got, 1);
  ranks[2].send(1, 0, &sent, sizeof sent, 2);
  EXPECT_TRUE(ranks.poll_until([&] { return got == 5; }));
}

TEST(TcpWire, ARankOnTheHostOfTheMeetingPlaceIsReachedThereByOthers) {
  // Rank 2 has left an address of the loopback device. If this machine has another address, a rank that uses that one
  // takes the host of the meeting place instead.
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  const auto own = addresses_of(name, 0);
  if (own.empty() || own[0].is_loopback()) GTEST_SKIP() << "this machine has no address but the loopback device's";
  TcpRanks ranks(4, own[0].host());
  for (int i = 0; i < 20; ++i) ranks.poll();
  std::istringstream text(text_of(*ranks.place, 3));
  std::string host, port;
  text >> host >> port;
  EXPECT_EQ(host, own[0].host());
  ranks.place->set("rank/3", "host3\n127.0.0.1 " + port + " host3");
  int sent = 5, got = 0;
  ranks[3].receive(1, 0, &got, sizeof got, 1);
  ranks[1].send(3, 0, &sent, sizeof sent, 2);
  EXPECT_TRUE(ranks.poll_until([&] { return got == 5; }));
}

}  // namespace
}  // namespace athanor::comm::tcp_wire_test
