# libathanor: the rooms without libtorch (except kernels) as one shared library, which the program and libathanor_core link.
#
# Its target is athanor_library, since `athanor` is the program. It holds the rooms whole, so that the log, the fault
# points and the types of errors exist once in a process, whoever opens what later. Whoever links rooms with libtorch
# names this library before them: the linker then takes from it what the static rooms would define a second time.

set(CMAKE_BUILD_RPATH_USE_ORIGIN ON)  # a build folder may be moved, or carried to another machine

include(athanor_version)
add_library(athanor_library SHARED ${ATHANOR_BUILD_INFO}
  ${CMAKE_SOURCE_DIR}/src/kernels/cpu/matmul_path.cpp)  # `athanor --version` names the paths that this CPU has
add_dependencies(athanor_library athanor_commit)
foreach(room base record config arch layout board launch wire staging tokenizer documents tasks dataset prepare checkpoint plot report)
  # The objects make the library; the room after them only names the libraries that it needs.
  target_sources(athanor_library PRIVATE $<TARGET_OBJECTS:athanor_${room}>)
  target_link_libraries(athanor_library PRIVATE athanor_${room})
endforeach()
set_target_properties(athanor_library PROPERTIES OUTPUT_NAME athanor
  VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
# Calls within the library are direct, as they were while the rooms were part of the program.
target_link_options(athanor_library PRIVATE -Wl,-Bsymbolic-functions)
