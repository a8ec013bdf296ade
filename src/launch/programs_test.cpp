#include "launch/programs.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/files.h"
#include "launch/testing/recorded_machine.h"

namespace athanor::launch {
namespace programs_test {

class ProgramCheck : public RecordedMachine {
 protected:
  std::string refused(const std::string& content) {
    return refusal<ConfigError>([&] { require_executable(write("program", content), own_surroundings()); });
  }
};

TEST_F(ProgramCheck, WhatTheKernelCannotExecuteIsRefused) {
  EXPECT_SAYS(refused(""), "is empty");
  EXPECT_SAYS(refused("echo hello\n"), "is a text without #! in its first line");
  EXPECT_SAYS(refused("#!/no/such/shell\n"), "is a script of /no/such/shell, which is no program here");
  EXPECT_SAYS(refused("#!\n"), "is a script of nothing");
  EXPECT_SAYS(refused("#!/usr/bin/env no-such-python -u\n"), "is a script of no-such-python, which is not on the path");
  std::string own = read_file("/proc/self/exe").substr(0, 256);
  own[18] = static_cast<char>(own[18] + 1);  // e_machine
  EXPECT_SAYS(refused(own), "is a program for another kind of processor");
}

TEST_F(ProgramCheck, ProgramsAndScriptsAreAccepted) {
  for (const std::string content : {"#!/bin/sh\nexit 0\n", "#! /bin/sh -e\n", "#!/usr/bin/env -S sh -e\n"})
    EXPECT_NO_THROW(require_executable(write("program", content), own_surroundings())) << content;
  EXPECT_NO_THROW(require_executable("/proc/self/exe", own_surroundings()));
}

}  // namespace programs_test
}  // namespace athanor::launch
