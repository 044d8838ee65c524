# The Parquet plugin: all ballast/*/*_parquet.cpp in one library, libballast_parquet.so, that the program loads
# when it meets a Parquet file (ballast/text/parquet_plugin.h). Without it all else builds and runs.
#
# It stands on Arrow's C++ libraries. The pyarrow wheel, which tools/setup installs, brings them with their headers; no
# Python runs. The wheel (26.0.1, manylinux_2_28) has the C++ library's new ABI: its symbols take
# std::__cxx11::basic_string, as ours and libtorch's do (_GLIBCXX_USE_CXX11_ABI=1). It asks for nothing newer than the
# libstdc++ of GCC 6 (GLIBCXX_3.4.22) and glibc 2.28. Its libraries find each other by a run path $ORIGIN.
if(NOT TARGET ballast_text)
  return()
endif()
set(record ${PROJECT_SOURCE_DIR}/.deps/pyarrow)
set(Arrow_FOLDER "")
if(EXISTS ${record})
  set_property(DIRECTORY ${PROJECT_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${record})
  file(STRINGS ${record} Arrow_FOLDER LIMIT_COUNT 1)
endif()
set(Arrow_FOUND_FOLDER "${Arrow_FOLDER}" CACHE INTERNAL "For tools/dist")
# The wheel has no links without a version in their names.
file(GLOB arrow_libraries ${Arrow_FOLDER}/libparquet.so.* ${Arrow_FOLDER}/libarrow.so.*)
list(LENGTH arrow_libraries found)
if(NOT Arrow_FOLDER OR NOT found EQUAL 2)
  message(STATUS "No Parquet plugin: Arrow's libraries were not found (tools/setup installs them with pyarrow)")
  return()
endif()
file(GLOB parquet_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/ballast/*/*_parquet.cpp)
add_library(ballast_parquet SHARED ${parquet_sources})
target_include_directories(ballast_parquet PRIVATE ${PROJECT_SOURCE_DIR})
target_include_directories(ballast_parquet SYSTEM PRIVATE ${Arrow_FOLDER}/include)
# CMake leaves folders of the checkout, as .deps, out of run paths. Among the libraries it comes behind CMake's own.
target_link_libraries(ballast_parquet PRIVATE fmt::fmt ${arrow_libraries} "-Wl,-rpath,${Arrow_FOLDER}")
