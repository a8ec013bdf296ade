# libathanor_archive.so, if there is a libarchive (libarchive-dev): `athanor yeet` unpacks archives with it. Without it
# `athanor` is complete except for archives that are to be unpacked.

pkg_check_modules(LIBARCHIVE IMPORTED_TARGET libarchive)
if(LIBARCHIVE_FOUND)
  add_library(athanor_archive SHARED ${CMAKE_SOURCE_DIR}/src/staging/archive/tar_reader.cpp)
  target_link_libraries(athanor_archive PRIVATE athanor_flags PkgConfig::LIBARCHIVE)
  add_dependencies(athanor_staging athanor_archive)  # opened at run time, so whoever links the room needs it built
  message(STATUS "Archives: with libarchive ${LIBARCHIVE_VERSION}")
else()
  message(STATUS "Archives: left out, no libarchive found (libarchive-dev)")
endif()
