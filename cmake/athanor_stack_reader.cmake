# athanor-stacks, which reads the stacks of a process for `athanor status --stacks`. It needs libdw (elfutils); without it the
# ranks write their stacks themselves where they can.

pkg_check_modules(LIBDW QUIET IMPORTED_TARGET libdw)
option(ATHANOR_STACKS "Build athanor-stacks" ${LIBDW_FOUND})
if(ATHANOR_STACKS)
  pkg_check_modules(LIBDW REQUIRED IMPORTED_TARGET libdw)
  add_executable(athanor-stacks ${CMAKE_CURRENT_SOURCE_DIR}/board/stack_reader/main.cpp)
  target_link_libraries(athanor-stacks PRIVATE athanor_flags PkgConfig::LIBDW)
endif()
