#include "base/first_word.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <future>
#include <vector>

namespace athanor::first_word_test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// A port of this machine at which a socket listens, without an answer, while the object lives.
class SilentPort {
 public:
  SilentPort() : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address_;
    EXPECT_EQ(::bind(socket_, reinterpret_cast<const sockaddr*>(&address_), length), 0);
    EXPECT_EQ(::listen(socket_, 8), 0);
    ::getsockname(socket_, reinterpret_cast<sockaddr*>(&address_), &length);
  }
  ~SilentPort() { ::close(socket_); }
  int number() const { return ntohs(address_.sin_port); }

 private:
  int socket_;
  sockaddr_in address_{};
};

MasterAddress a_free_address() { return {"127.0.0.1", SilentPort().number(), false, "0"}; }

TEST(FirstWord, ReachesAllRanksThatAskBeforeOrAfterRank0HasFailedAndThenRank0Continues) {
  const MasterAddress master = a_free_address();
  std::vector<std::future<std::optional<int>>> others;
  for (int i = 0; i < 5; ++i) {
    others.push_back(std::async(std::launch::async, [&master] { return hear_first_word(master, 300s); }));
  }
  const auto begin = Clock::now();
  give_first_word(master, 5, 2, 300s);
  EXPECT_LT(Clock::now() - begin, 60s);
  for (auto& one : others) EXPECT_EQ(one.get(), 2);
}

TEST(FirstWord, IsNotHeardFromAnotherServerAndTheLimitIsKept) {
  const SilentPort store;
  const auto begin = Clock::now();
  EXPECT_FALSE(hear_first_word({"127.0.0.1", store.number(), false, "0"}, 800ms));
  EXPECT_FALSE(hear_first_word(a_free_address(), 300ms));
  EXPECT_GE(Clock::now() - begin, 1100ms);
  give_first_word(a_free_address(), 1, 2, 300ms);  // no rank asks
  EXPECT_LT(Clock::now() - begin, 60s);
}

}  // namespace
}  // namespace athanor::first_word_test
