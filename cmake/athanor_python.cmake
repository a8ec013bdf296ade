# The target athanor_python, which no other target builds: the module of python/athanor, for the libtorch of a Python that
# has the headers ATHANOR_PYTHON_INCLUDE. setup.py calls it.
set(ATHANOR_PYTHON_INCLUDE "" CACHE PATH "Python.h's folder: with it there is the target athanor_python")
set(ATHANOR_TORCH_VERSION "" CACHE STRING "torch.__version__ of the libtorch, for the Python module")
if(ATHANOR_PYTHON_INCLUDE)
  add_library(athanor_python MODULE EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/python/module.cpp)
  target_include_directories(athanor_python PRIVATE ${CMAKE_SOURCE_DIR}/src)
  target_include_directories(athanor_python SYSTEM PRIVATE ${ATHANOR_PYTHON_INCLUDE})
  target_compile_definitions(athanor_python PRIVATE TORCH_EXTENSION_NAME=_athanor ATHANOR_TORCH_VERSION="${ATHANOR_TORCH_VERSION}")
  target_link_libraries(athanor_python PRIVATE athanor_core athanor_library athanor_torch ${ATHANOR_LIBTORCH}/lib/libtorch_python.so)
  set_target_properties(athanor_python PROPERTIES PREFIX "" OUTPUT_NAME _athanor BUILD_RPATH "$ORIGIN")
endif()
