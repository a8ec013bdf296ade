# Builds src/launch/signatures.toml into the room launch (src/launch/signatures.h): a change of it compiles one file.

set(signatures ${CMAKE_SOURCE_DIR}/src/launch/signatures.toml)
set(embed ${CMAKE_SOURCE_DIR}/cmake/embed_text.cmake)
add_custom_command(OUTPUT ${CMAKE_BINARY_DIR}/signatures_text.cpp DEPENDS ${signatures} ${embed}
  COMMAND ${CMAKE_COMMAND} -DTEXT=${signatures} -DOUT=${CMAKE_BINARY_DIR}/signatures_text.cpp
    -DFUNCTION=athanor::launch::built_in_signatures -DHEADER=launch/signatures.h -P ${embed}
  COMMENT "signatures.toml as a source file")
target_sources(athanor_launch PRIVATE ${CMAKE_BINARY_DIR}/signatures_text.cpp)
