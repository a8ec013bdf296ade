# `cmake --install`: bin/athanor, both libraries with the plugins, their headers, a CMake package, recipes, golden files.
#
# Installed programs and libraries find each other by paths relative to themselves, so an installation may be moved. The
# core finds libtorch, and the Parquet plugin finds libparquet, where they were when the build was configured.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/athanor)
set(headers ${CMAKE_INSTALL_INCLUDEDIR}/athanor)

# What programs of users may include; with what these include. They may still change before version 1.
set(public_headers
  base/build_info.h base/collective.h base/combine_weights.h base/error.h base/exit_codes.h base/file_reader.h base/number_types.h base/signals.h base/text.h base/text_template.h base/traffic_purpose.h
  config/checkpoint_config.h config/choice.h config/dump.h config/duration.h config/eval_config.h config/faults_config.h config/fields.h config/model_config.h config/moe_config.h config/optimizer_config.h config/optimizer_table.h
  config/parallelism_config.h config/ranges.h config/rope_scaling.h config/run_config.h config/selection_options.h config/toml_reader.h
  arch/flops.h arch/inventory.h arch/parameter.h
  layout/buckets.h layout/communicator_memory.h layout/layout.h layout/memory.h layout/shards.h layout/optimizer_state.h
  layout/parameter_groups.h layout/stages.h
  layout/replication.h layout/schedule.h
  layout/traffic.h
  tokenizer/bpe_trainer.h tokenizer/tokenizer.h
  documents/byte_source.h documents/document_error.h documents/document_options.h documents/documents.h
  documents/inputs.h documents/record_source.h documents/records.h
  dataset/block_cache.h dataset/dataset.h dataset/epoch_order.h dataset/interleave.h dataset/loader.h dataset/manifest.h dataset/mixture.h dataset/npy.h
  dataset/open_shards.h dataset/shard_access.h
  prepare/prepare.h)
if(ATHANOR_CORE)
  list(APPEND public_headers eval/score.h blocks/library/sparse_layer.h)
endif()

set(installed_libraries athanor_library)
set(plugins)
foreach(plugin athanor_mpi_openmpi athanor_mpi_mpich athanor_parquet athanor_archive)
  if(TARGET ${plugin})
    list(APPEND plugins ${plugin})
  endif()
endforeach()

target_compile_features(athanor_library INTERFACE cxx_std_20)
target_include_directories(athanor_library INTERFACE $<INSTALL_INTERFACE:${headers}>)
target_link_libraries(athanor_library INTERFACE fmt::fmt)  # base/error.h formats messages
set_target_properties(athanor_library PROPERTIES EXPORT_NAME athanor)
if(ATHANOR_CORE)
  set_target_properties(athanor_core PROPERTIES EXPORT_NAME core)
  list(APPEND installed_libraries athanor_core)
endif()
file(RELATIVE_PATH to_libraries ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
set_target_properties(athanor PROPERTIES INSTALL_RPATH "$ORIGIN/${to_libraries}")
# The virtual environment is below the sources, where INSTALL_RPATH_USE_LINK_PATH would leave it out.
if(ATHANOR_CORE)
  set_target_properties(athanor_core PROPERTIES INSTALL_RPATH "$ORIGIN;${ATHANOR_LIBTORCH}/lib")
endif()
if(TARGET athanor_parquet)
  get_target_property(libparquet athanor_libparquet INTERFACE_LINK_LIBRARIES)
  list(FILTER libparquet INCLUDE REGEX "^/")
  list(TRANSFORM libparquet REPLACE "/[^/]*$" "")
  list(REMOVE_DUPLICATES libparquet)
  set_target_properties(athanor_parquet PROPERTIES INSTALL_RPATH "${libparquet}" INSTALL_RPATH_USE_LINK_PATH ON)
endif()

install(TARGETS athanor)
if(TARGET athanor-stacks)
  install(TARGETS athanor-stacks)
endif()
install(TARGETS ${installed_libraries} EXPORT athanor-targets)
if(plugins)
  install(TARGETS ${plugins} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
foreach(header ${public_headers})
  get_filename_component(room ${header} DIRECTORY)
  install(FILES src/${header} DESTINATION ${headers}/${room})
endforeach()
install(DIRECTORY recipes/ DESTINATION ${CMAKE_INSTALL_DATADIR}/athanor/recipes)
install(DIRECTORY tasks/ DESTINATION ${CMAKE_INSTALL_DATADIR}/athanor/tasks)
install(DIRECTORY tests/golden/ DESTINATION ${CMAKE_INSTALL_DATADIR}/athanor/golden)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

install(EXPORT athanor-targets NAMESPACE athanor:: DESTINATION ${package})
configure_package_config_file(cmake/athanor-config.cmake.in ${CMAKE_BINARY_DIR}/athanor-config.cmake
  INSTALL_DESTINATION ${package})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/athanor-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/athanor-config.cmake ${CMAKE_BINARY_DIR}/athanor-config-version.cmake
  DESTINATION ${package})
